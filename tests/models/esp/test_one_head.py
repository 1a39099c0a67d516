"""One head: no error on DAGs, |MFAS| errors elsewhere, and never fewer; margins by the formulas."""

from math import comb

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.esp.evaluation import evaluate, read_logits
from headlab.models.esp.feedback import FeedbackArcSet, given_up, minimum_feedback_arc_set
from headlab.models.esp.graphs import Digraph, read_graph
from headlab.models.esp.one_head import one_head, one_head_dag
from headlab.models.esp.task import EspTask, margins


def outcome(made, task):
    """The number of errors, and the smallest margin over the samples that are right."""
    found = margins(read_logits(made.model, task), task.examples().targets[:, 0])
    return int((found <= 0).sum()), float(found[found > 0].min())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n", range(3, 61))
def test_tournaments(n, tied):
    task = EspTask(read_graph(f"tournament:{n}"))
    made = one_head_dag(task, tied=tied)
    found = evaluate(made.model, task)
    assert found.errors == made.errors == 0
    assert made.margin == pytest.approx((n**-0.5 if tied else 1) / (4 * n))
    assert found.min_margin == pytest.approx(made.margin, rel=1e-3)
    assert made.margin_is_exact
    assert (made.model.cfg.d_model, made.model.cfg.n_heads, made.roles) == (n + 1, 1, {})


def test_random_dags_with_loops_and_parallel_arcs():
    for number in range(30):
        generator = np.random.default_rng(number)
        n = int(generator.integers(2, 12))
        names = generator.permutation(n)
        pairs = np.sort(generator.integers(0, n, (int(generator.integers(1, 3 * n)), 2)), axis=1)
        task = EspTask(
            Digraph("dag", tuple(f"v{k}" for k in range(n)), tuple((int(names[u]), int(names[v])) for u, v in pairs))
        )
        for tied in (False, True):
            made = one_head_dag(task, tied=tied)
            found = evaluate(made.model, task)
            assert found.errors == 0
            assert found.min_margin >= made.margin * 0.999
            if made.margin_is_exact:
                assert found.min_margin == pytest.approx(made.margin, rel=1e-3)


@pytest.mark.parametrize(("dtype", "n"), [("float32", 256), ("float16", 128), ("bfloat16", 64)])
def test_half_precision_holds_as_many_vertices_as_stated(dtype, n):
    chain = Digraph("chain", tuple(map(str, range(n))), tuple((k, k + 1) for k in range(n - 1)))
    assert evaluate(one_head_dag(EspTask(chain), dtype=dtype).model, EspTask(chain)).errors == 0


def test_a_cyclic_graph_is_refused_with_its_cycle():
    graph = read_graph(nx.DiGraph([("<a>", "b"), ("b", "c"), ("c", "<a>"), ("c", "d")], name="knot"))
    with pytest.raises(ValueError, match="'knot' has the cycle <a> -> b -> c -> <a>: take one-head, two-head"):
        one_head_dag(EspTask(graph))


def test_200_multigraphs_have_exactly_the_minimum_of_errors():
    for number in range(200):
        generator = np.random.default_rng(number)
        n = int(generator.integers(2, 8))
        arcs = tuple((int(u), int(v)) for u, v in generator.integers(0, n, (int(generator.integers(1, 4 * n)), 2)))
        task = EspTask(Digraph("drawn", tuple(f"v{k}" for k in range(n)), arcs))
        best = minimum_feedback_arc_set(task.graph)
        made = one_head(task, tied=bool(number % 2), feedback=best)
        assert best.exact
        errors, margin = outcome(made, task)
        assert errors == made.errors == best.upper
        assert margin >= made.margin * 0.999


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("name", "mfas"), [("click", 9), ("httpx", 6), ("jinja2", 15), ("rich", 43)])
def test_the_real_graphs(name, mfas, tied):
    task = EspTask(read_graph(name))
    made = one_head(task, tied=tied)
    assert evaluate(made.model, task).errors == made.errors == mfas
    assert outcome(made, task) == (mfas, pytest.approx(made.margin, rel=1e-3))
    assert made.notes["mfas_exact"]


@pytest.mark.parametrize("n", range(3, 21))
def test_complete_digraphs_reach_three_quarters(n):
    task = EspTask(read_graph(f"complete:{n}"))
    for tied in (False, True):
        made = one_head(task, tied=tied)
        assert outcome(made, task) == (comb(n, 2), pytest.approx(made.margin, rel=1e-3))
        assert made.errors / (2 * task.m) == 0.25
        if not tied:
            assert made.margin == pytest.approx(1 / (2 * n * made.notes["Z"]))


def test_the_first_selector_is_always_right():
    task = EspTask(read_graph("complete:6"))
    found = margins(read_logits(one_head(task).model, task), task.examples().targets[:, 0])
    assert (found[::2] > 0).all()
    assert (found[1::2] > 0).sum() == 15


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.permutations(range(7)))
def test_any_order_costs_exactly_the_arcs_that_it_gives_up(number, order):
    task = EspTask(read_graph(f"random:7:0.5:{number}"))
    held = FeedbackArcSet(tuple(order), given_up(task.graph, order), 0)
    assert evaluate(one_head(task, feedback=held).model, task).errors == held.upper


def test_what_does_not_fit_is_refused():
    task = EspTask(read_graph("cycle:4"))
    other = minimum_feedback_arc_set("complete:4")
    with pytest.raises(ValueError, match="is not one of the graph 'cycle:4'"):
        one_head(task, feedback=other)
    for build in (one_head, one_head_dag):
        with pytest.raises(ValueError, match="no induction form"):
            build(EspTask(task.graph, induction=True))
