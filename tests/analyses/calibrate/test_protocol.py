"""Anyone's method through the public function: right, wrong, broken, slow, meddling, by heads, by sets."""

import time

import pytest
import torch

from headlab.analyses.calibrate import View, calibrate
from headlab.analyses.calibrate.adapters import auto_circuit_name, from_auto_circuit, from_hooks
from headlab.analyses.calibrate.instruments import EDGES, HEADS, exact, random
from headlab.analyses.calibrate.page import page
from headlab.analyses.calibrate.summary import by_kind, quote
from headlab.analyses.calibrate.variables import METHODS, locate
from headlab.interp.circuits import END, START, Edge, Node

ONE = {"tasks": ["xor"], "rungs": ["shaken"]}


def sentence(method, **options):
    cells = calibrate(method, **{**ONE, **options}).cells
    assert all(cell.auroc is None for cell in cells)
    (problem,) = {cell.problem for cell in cells}
    return problem


def test_exact_patching_is_right_and_random_scores_are_at_chance():
    found = calibrate({"exact": exact, "random": random}, **ONE, seeds=range(3))
    right = found.select(method="exact")
    assert {cell.auroc for cell in right} == {1.0}
    assert all(cell.passes and cell.recall == 1.0 and cell.faithfulness > 0.9 for cell in right)
    wrong = found.select(method="random")
    assert abs(sum(cell.auroc for cell in wrong) / len(wrong) - 0.5) < 0.2
    assert all(cell.low < 0.5 < cell.high and not cell.passes for cell in wrong)
    assert {cell.kind for cell in found.cells} == {"zero", "mean", "resample"}


def test_what_goes_wrong_is_a_sentence_in_a_cell():
    def raises(view):
        raise RuntimeError("no gradient here")

    def changes(view):
        with torch.no_grad():
            view.model.blocks[0].attn.W_O.mul_(2)
        return dict.fromkeys(view.items, 1.0)

    def sleeps(view):
        while True:
            time.sleep(0.01)

    assert sentence(raises) == "RuntimeError: no gradient here"
    assert sentence(changes) == "it changed the model's weights"
    assert sentence(sleeps, limit=0.2) == "it was stopped after 0.2 s"
    assert "32 of 33 items have no score" in sentence(lambda view: {view.items[0]: 1.0})
    assert "33 of 33 scores are not finite" in sentence(lambda view: dict.fromkeys(view.items, float("nan")))
    assert "it gave a NoneType" in sentence(lambda view: None)
    assert "not asked for" in sentence(lambda view: {"an edge"})


def test_a_view_holds_no_truth_and_a_private_model():
    seen = []

    def method(view):
        seen.append(view)
        return dict.fromkeys(view.items, 0.0)

    found = calibrate(method, **ONE)
    assert {cell.auroc for cell in found.cells} == {0.5}
    assert set(View.__dataclass_fields__) & {"truth", "task", "rung", "true"} == set()
    assert len({id(view.model) for view in seen}) == len(seen)
    assert not torch.equal(seen[0].model.blocks[0].attn.b_Q, calibrate_other_seed().blocks[0].attn.b_Q)


def calibrate_other_seed():
    kept = []

    def method(view):
        kept.append(view.model)
        return dict.fromkeys(view.items, 0.0)

    calibrate(method, **ONE, seeds=[1])
    return kept[0]


def test_a_set_is_scores_of_zero_and_one_and_cost_is_counted():
    def named(view):
        logits = view.model(view.inputs)
        view.model(view.inputs[:32])
        view.value(logits).sum().backward()
        return {item for item in view.items if item.destination == END}

    for cell in calibrate(named, **ONE).cells:
        assert cell.is_set
        assert 0 < cell.auroc < 1
        assert (cell.forward, cell.backward) == (1.5, 1.0)
        assert cell.last_true is not None


def test_heads_and_sites_have_scores_of_their_own():
    for level, size in (("heads", 2), ("sites", 3)):
        found = calibrate(HEADS["exact"], level=level, tasks=["xor"], rungs=["unread heads"])
        assert {cell.auroc for cell in found.cells} == {1.0}
        norms = calibrate(HEADS["weight norms"], level=level, tasks=["xor"], rungs=["unread heads"])
        assert max(cell.auroc for cell in norms.cells) < 0.5
        kept = []
        calibrate(lambda view, kept=kept: kept.append(view.items) or dict.fromkeys(view.items, 1.0), level=level, **ONE)
        assert {len(item) for item in kept[0]} == {size}


def test_single_patching_misses_a_backup_and_a_signed_ranking_negative_heads():
    singly = calibrate(EDGES["exact"], tasks=["esp"], rungs=["backup head"]).cells
    assert max(cell.recall for cell in singly) < 0.9
    signed = calibrate(EDGES["exact signed"], tasks=["xor"], rungs=["negative heads"])
    assert max(cell.auroc for cell in signed.cells) < 0.7
    assert [summary.first for summary in by_kind(signed, "exact_signed")] == ["negative heads"] * 3


def hook_gradient(model, inputs, value):
    """Gradient times activation of every head's output: attribution patching to zero, with plain hooks."""
    kept = {}

    def hook(activation, hook):
        kept[hook.name] = activation.detach().requires_grad_(True)
        return kept[hook.name]

    names = [f"blocks.{layer}.attn.hook_z" for layer in range(model.cfg.n_layers)]
    total = value(model.run_with_hooks(inputs, fwd_hooks=[(name, hook) for name in names])).sum()
    gradients = torch.autograd.grad(total, [kept[name] for name in names])
    return {name: kept[name] * gradient for name, gradient in zip(names, gradients, strict=True)}


def test_plain_hooks_and_auto_circuits_names_are_methods():
    heads = calibrate(from_hooks(hook_gradient), level="heads", tasks=["xor"], rungs=["unread heads"])
    assert {cell.auroc for cell in heads.select(kind="zero")} == {1.0}
    assert "heads or sites" in sentence(from_hooks(hook_gradient))

    def by_names(view):
        scores = exact(view)
        return {auto_circuit_name(edge): score for edge, score in scores.items()}

    assert {cell.auroc for cell in calibrate(from_auto_circuit(by_names), **ONE).cells} == {1.0}
    names = [Edge(START, Node("head", 0, 1), "q", 3), Edge(Node("mlp", 0), END, "end", 3)]
    assert [auto_circuit_name(edge) for edge in names] == [("Resid Start", "A0.1.Q", 3), ("MLP 0", "Resid End", 3)]


def test_the_page_and_the_line_to_quote_are_made_from_the_numbers():
    found = calibrate(random, **ONE, details=True)
    text = page(found)
    assert "zero: 0 of 1 rungs passed" in text
    assert "exact effect" in text
    assert "zero 0/1, mean 0/1, resample 0/1" in quote(found, "random")


def test_wrong_requests_list_what_there_is():
    for options, words in (({"level": "layers"}, "edges, heads, sites"), ({"tasks": ["sums"]}, "there are esp")):
        with pytest.raises(KeyError, match=words):
            calibrate(random, **options)
    with pytest.raises(KeyError, match="there are as built"):
        calibrate(random, rungs=["first"])


def test_interchange_accuracy_is_perfect_on_a_wrong_direction_and_the_angle_tells():
    methods = {name: METHODS[name] for name in ("mean difference", "linear probe", "random")}
    rungs = ("as built", "correlated × 3", "decorrelated × 3")
    rows = locate(methods, tasks=("esp",), rungs=rungs, seed=0)
    of = {(row.rung, row.method): row for row in rows}
    assert of["as built", "mean difference"].angle < 1
    wrong = of["correlated × 3", "mean difference"]
    assert wrong.angle > 75
    assert wrong.accuracy == 1.0
    assert of["decorrelated × 3", "linear probe"].angle < 10
    for rung in rungs:
        assert of[rung, "truth"].angle < 1e-4
        assert of[rung, "truth"].accuracy == 1.0
        assert of[rung, "random"].accuracy < 0.9
