from dataclasses import replace

import numpy as np
import pytest
import torch

from headlab.analyses.study.tree.circuits import RIGHT, block_cosines, label_circuits
from headlab.analyses.study.tree.heads import detect, formation
from headlab.models.hooked import build, initialise
from headlab.models.tree.architecture import architecture
from headlab.models.tree.constructed import construct
from headlab.models.tree.recipes import PLAIN, plain_descent
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

TASK = TreeTask(TreeSource(depths=(3,), labels=16, nodes=9))


def doubled(task):
    """The two-head construction with each head there twice, at half its output: every role has a head to spare."""
    made = construct(task, "forward")
    config = {**made.architecture.config, "n_heads": 4}
    model = build(replace(made.architecture, config=config))
    own, theirs = dict(model.named_parameters()), dict(made.model.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            value = theirs[name]
            if name.startswith("blocks.0.attn.") and not name.endswith("b_O"):
                value = torch.cat([value, value]) * (0.5 if name.endswith("W_O") else 1.0)
            parameter.copy_(value)
    return model


def test_the_construction_is_told_apart_and_hangs_on_each_head():
    found = detect(construct(TASK, "forward").model, TASK, count=64)
    assert found.group("backward") == ((0, 0),)
    assert found.group("reverse") == ((0, 1),)
    assert found.group(None) == ()
    assert found.path == 1.0
    assert found.path_lost == {"backward": 1.0, "reverse": 1.0}
    for role, other in (("backward", "reverse"), ("reverse", "backward")):
        assert found.left(role, role) < 0.5
        assert found.left(role, other) == 1.0
    assert not any(each.redundant for each in found.redundancy)
    frame = found.to_frame()
    assert frame["role"].tolist() == ["backward", "reverse"]
    assert (frame["alone"] > 0.5).all()
    assert (frame["left"] == 1.0).all()


def test_heads_to_spare_are_seen_where_one_at_a_time_hides_them():
    found = detect(doubled(TASK), TASK, count=64)
    assert found.group("backward") == ((0, 0), (0, 2))
    assert found.group("reverse") == ((0, 1), (0, 3))
    for each in found.redundancy:
        assert each.redundant
        assert set(each.able) == set(found.group(each.role))
        assert max(each.alone.values()) < 0.02
        assert found.left(each.role, each.role) < 0.5


def test_an_untrained_model_has_no_such_heads():
    model = build(architecture(TASK, heads=3, d_model=24, d_head=8))
    initialise(model, scale=0.05, seed=0)
    found = detect(model, TASK, count=64)
    assert found.group(None) == ((0, 0), (0, 1), (0, 2))
    assert found.left("backward", "backward") is None
    assert all(each.able == () for each in found.redundancy)
    assert found.assignment.score.specialisation == pytest.approx(0.0, abs=1e-3)


def test_a_task_without_roles_is_refused():
    plain = TreeTask(TASK.trees, form="plain")
    model = build(architecture(plain, heads=1, d_model=8, d_head=4))
    with pytest.raises(ValueError, match="need pair tokens and a backward stage"):
        detect(model, plain)
    with pytest.raises(ValueError, match="label circuits need pair tokens"):
        label_circuits(model, plain)


def history(reverse: int, backward: int, *, noise: float = 0.01):
    """Two sigmoid curves over log-spaced steps that rise about the given ones."""
    rng = np.random.default_rng(0)
    steps = sorted({0, *np.geomspace(1, 1000, 60).round().astype(int).tolist()})

    def curve(middle):
        return 1 / (1 + np.exp(-8 * (np.log1p(steps) - np.log1p(middle)))) + noise * rng.normal(size=len(steps))

    curves = {"usage reverse": curve(reverse), "usage backward": curve(backward)}
    curves |= {"reverse": curves["usage reverse"], "backward": curves["usage backward"]}
    return [{"step": step, **{name: value[k] for name, value in curves.items()}} for k, step in enumerate(steps)]


@pytest.mark.parametrize(("reverse", "backward", "first"), [(100, 300, "reverse"), (300, 100, "backward")])
def test_which_group_formed_first_is_told_by_change_point(reverse, backward, first):
    found = formation(history(reverse, backward))
    assert found.first == first
    assert found.probability > 0.95
    for name, middle in (("usage reverse", reverse), ("usage backward", backward)):
        start, end = found.span(name)
        assert start < middle < end
    assert formation(history(reverse, backward), by="{}").first == first


def test_groups_that_form_together_or_never_are_not_told_apart():
    assert formation(history(200, 200)).first is None
    flat = [{**row, "usage backward": 0.0} for row in history(100, 100)]
    assert formation(flat).first is None
    with pytest.raises(ValueError, match="no accuracy by stage"):
        formation([{"step": 0}, {"step": 1}, {"step": 2}])


def test_label_circuits_of_the_construction_are_diagonal():
    made = construct(TASK, "forward", dtype=torch.float64)
    found = label_circuits(made.model, TASK)
    for head, (role, names) in enumerate(RIGHT.items()):
        assert found.diagonal_share(role, head) == dict.fromkeys(names, 1.0)
        for matrix in found.of(role, head).values():
            matrix = matrix - matrix[0, 1]
            assert np.allclose(matrix, 20 * np.eye(16), atol=1e-9)
    wrong = found.diagonal_share("reverse", 0)
    assert max(wrong.values()) < 0.5
    untrained = build(architecture(TASK, heads=2, d_model=24, d_head=8))
    initialise(untrained, scale=0.05, seed=0)
    assert max(label_circuits(untrained, TASK).diagonal_share("backward", 0).values()) < 0.4


def test_block_cosines_of_plain_descent():
    task = TreeTask(TreeSource(depths=(2,), labels=6, nodes=5))
    plan = plain_descent(task, recipe=replace(PLAIN, steps=1))
    model = plan.start(0)
    built = construct(task, "forward").model
    with torch.no_grad():
        for head in (0, 1):
            model.blocks[0].attn.W_Q[head] = built.W_Q[0, head] @ built.W_K[0, head].T
    found = block_cosines(model, task)
    assert set(found) == {"backward", "reverse"}
    for each in found.values():
        assert each["raw"] == pytest.approx(1.0)
        assert each["centred"] == pytest.approx(1.0)
    with torch.no_grad():
        model.blocks[0].attn.W_Q[0, :6] = 1.0
    assert block_cosines(model, task)["backward"]["raw"] < 0.6
