"""The task: a sample per arc and selector, ties wrong, contrasts that differ in one slot, roles by position."""

import json

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.esp.graphs import Digraph, read_graph
from headlab.models.esp.task import EspTask, margins

GRAPH = Digraph("small", ("a", "b", "c"), ((0, 1), (1, 2), (2, 0), (0, 1), (2, 2)))
TASK = EspTask(GRAPH)
INDUCTION = EspTask(GRAPH, induction=True)


def test_samples_are_the_arcs_times_the_selectors():
    examples = TASK.examples()
    assert len(examples) == 2 * GRAPH.m == 10
    expected = [[u, v, 3 + i, 5] for u, v in GRAPH.arcs for i in (0, 1)]
    assert examples.inputs.tolist() == expected
    assert examples.targets[:, 0].tolist() == [arc[i] for arc in GRAPH.arcs for i in (0, 1)]
    assert examples.read.tolist() == [[3]] * 10
    assert examples.factors["selector"].tolist() == [0, 1] * 5
    assert examples.factors["arc"].tolist() == [0, 0, 1, 1, 2, 2, 0, 0, 3, 3]
    assert examples.levels["arc"] == ("a -> b", "b -> c", "c -> a", "c -> c")
    assert TASK.positions == ("u", "v", "selector", "query")
    assert TASK.vocabulary == ("a", "b", "c", "1", "2", "#")


def test_induction_form():
    examples = INDUCTION.examples()
    assert examples.inputs[:2].tolist() == [[3, 0, 4, 1, 5, 3, 5], [3, 0, 4, 1, 5, 4, 5]]
    assert examples.read[0].tolist() == [6]
    assert torch.equal(examples.targets, TASK.examples().targets)
    assert [INDUCTION.position(name) for name in ("u", "v", "selector", "query")] == [1, 3, 5, 6]
    with pytest.raises(KeyError, match="no position 'w': there are mark 1, u, mark 2, v"):
        INDUCTION.position("w")


def test_draws_are_seeded_and_move_no_global_generator():
    state = torch.get_rng_state()
    first, again, other = (TASK.examples(seed=seed, count=7).inputs for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    rows = {tuple(row) for row in TASK.examples().inputs.tolist()}
    assert {tuple(row) for row in TASK.examples(seed=3, count=10).inputs.tolist()} == rows
    assert len(TASK.examples(count=25)) == 25
    TASK.contrasts(seed=5)
    TASK.roles(seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="0 examples were asked for"):
        TASK.examples(count=0)


def test_a_change_of_the_examples_does_not_reach_the_task():
    TASK.examples().inputs.zero_()
    assert TASK.examples().inputs[0].tolist() == [0, 1, 3, 5]


def test_metrics_by_hand():
    examples = TASK.examples()[torch.tensor([0, 1, 8])]  # (a, b, 1), (a, b, 2), the loop at c
    logits = torch.zeros(3, 4, 6)
    logits[:, 3] = torch.tensor([[2.0, 1.0, 0.0, 0.0, 1.5, 0.0], [2.0, 1.0, 0.0, 0.0, 1.5, 0.0], [0.5, 0, 3, 0, 0, 0]])
    metrics = {name: metric(logits) for name, metric in TASK.metrics(examples).items()}
    assert next(iter(metrics)) == "logit_difference"
    assert metrics["logit_difference"].tolist() == [1.0, -1.0, 2.5]
    assert metrics["margin"].tolist() == [0.5, -1.0, 2.5]
    assert metrics["accuracy"].tolist() == [1.0, 0.0, 1.0]
    expected = logits[:, 3].log_softmax(-1)[[0, 1, 2], [0, 1, 2]]
    assert torch.allclose(metrics["log_probability"], expected)


def test_ties_are_wrong_and_every_token_competes():
    examples = TASK.examples()
    zero = torch.zeros(len(examples), 4, 6)
    assert TASK.metrics(examples)["accuracy"](zero).sum() == 0
    logits = torch.nn.functional.one_hot(examples.targets[:, 0], 6).float()
    assert (margins(logits, examples.targets[:, 0]) == 1).all()
    logits[:, 5] = 1.0  # '#' ties with the target
    assert (margins(logits, examples.targets[:, 0]) == 0).all()


def test_metrics_run_under_vmap():
    examples = TASK.examples()
    logits = torch.randn(5, len(examples), 4, 6, generator=torch.Generator().manual_seed(0))
    for metric in TASK.metrics(examples).values():
        expected = torch.stack([metric(one) for one in logits])
        assert torch.allclose(torch.vmap(metric)(logits), expected)


@pytest.mark.parametrize("task", [EspTask(read_graph("complete:6")), EspTask(read_graph("rich"), induction=True), TASK])
def test_contrasts_differ_in_one_slot_and_metrics_know_which_run_is_which(task):
    contrasts = task.contrasts(seed=1, count=20)
    assert list(contrasts) == ["selector", "u", "v", "all"]
    for name, contrast in contrasts.items():
        differs = contrast.source != contrast.destination
        assert contrast.positions == task.positions
        assert contrast.read == (len(task.positions) - 1,)
        if name != "all":
            assert differs.sum(1).tolist() == [1] * len(contrast.source)
            assert differs[:, task.position(name)].all()

        def perfect(inputs):
            """The logits at '#' of a model that is always right."""
            ends = inputs[:, [task.position("u"), task.position("v")]]
            right = ends.gather(1, inputs[:, [task.position("selector")]] - task.n)
            return 5.0 * torch.nn.functional.one_hot(right, task.n + 3)

        for metric in contrast.metrics.values():
            assert (metric(perfect(contrast.source)) > metric(perfect(contrast.destination))).all()


def test_endpoints_are_redrawn_along_arcs_where_there_are_any():
    task = EspTask(read_graph("rich"))
    arcs = set(task.graph.arcs)
    share = []
    for name in ("u", "v"):
        contrast = task.contrasts(count=400)[name]
        share += [(u, v) in arcs for u, v in contrast.destination[:, :2].tolist()]
    assert sum(share) / len(share) > 0.95
    cycle = EspTask(read_graph("cycle:4")).contrasts()["u"]
    assert (cycle.source[:, 0] != cycle.destination[:, 0]).all()


def test_loops_alone_have_no_selector_contrast():
    task = EspTask(Digraph("loops", ("a", "b"), ((0, 0), (1, 1))))
    assert list(task.contrasts()) == ["u", "v", "all"]
    assert [len(role.inputs) for role in task.roles()] == [2, 2]


def test_roles_point_at_the_endpoint_that_is_asked_for():
    for task in (TASK, INDUCTION):
        for side, role in enumerate(task.roles()):
            assert role.name == f"endpoint {side + 1}"
            assert (role.inputs[:, task.position("selector")] == task.selectors[side]).all()
            assert role.queries.nonzero()[:, 1].unique().tolist() == [task.position("query")]
            queries, keys = (
                role.targets.nonzero()[:, 1].unique().tolist(),
                role.targets.nonzero()[:, 2].unique().tolist(),
            )
            assert (queries, keys) == ([task.position("query")], [task.position("uv"[side])])
            assert role.targets.sum() == len(role.inputs) == 4  # the loop has no part
    assert [len(role.inputs) for role in EspTask(read_graph("rich")).roles(count=100)] == [50, 50]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=9), st.booleans())
def test_options_make_an_equal_task(arcs, induction):
    task = EspTask(Digraph("<drawn>", ("a", "'", '"', "<b>", "x" * 200), tuple(arcs)), induction)
    again = EspTask.from_options(json.loads(json.dumps(task.options())))
    assert again == task
    assert torch.equal(again.examples().inputs, task.examples().inputs)


def test_options_take_a_specification_too():
    assert EspTask.from_options({"graph": "cycle:4"}) == EspTask(read_graph("cycle:4"))
    with pytest.raises(ValueError, match="undirected"):
        EspTask.from_options({"graph": nx.path_graph(3)})


def test_vertices_called_like_a_selector_are_told_apart():
    graph = Digraph("numbers", ("0", "1", "2"), ((0, 1), (1, 2)))
    assert EspTask(graph).vocabulary == ("0", "1", "2", "[1]", "[2]", "[#]")
    assert EspTask(Digraph("hash", ("#", "[1]"), ((0, 1),))).vocabulary == ("#", "[1]", "[[1]]", "[[2]]", "[[#]]")
    assert EspTask(Digraph("plain", ("a", "b"), ((0, 1),))).vocabulary == ("a", "b", "1", "2", "#")
