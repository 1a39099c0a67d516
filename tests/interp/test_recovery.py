from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from headlab.interp.circuits import START, Circuit, Edge, Node
from headlab.interp.gradients import estimate_edges
from headlab.interp.interventions import Intervention
from headlab.interp.paths import EdgeEffects, patch_edges
from headlab.interp.recovery import recovery
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask

EDGES = tuple(Edge(START, Node("head", 0, 0), "v", position) for position in range(6))


def effects_of(values):
    effect = torch.tensor(values, dtype=torch.float64)
    return EdgeEffects(
        sets=tuple((edge,) for edge in EDGES[: len(effect)]),
        effect=effect,
        baseline=torch.zeros(effect.shape[1], dtype=torch.float64),
        kind="zero",
        intervention="zero",
        reference=None,
        metric="made up",
        method="exact",
        engine="expand",
        device="cpu",
    )


def test_worked_by_hand():
    """Scores 5, 4, 3, 2 with the first and third true: of the four pairs three are in order."""
    found = recovery(effects_of([[5.0], [4.0], [-3.0], [2.0]]), [EDGES[0], EDGES[2]])
    assert found.auroc == 0.75
    assert found.average_precision == pytest.approx((1 + 2 / 3) / 2)
    assert (found.smallest_true, found.largest_false) == (3.0, 4.0)
    assert found.separation == 0.75
    assert (found.true, found.edges, found.ranking) == (2, 4, "absolute")
    signed = recovery(effects_of([[5.0], [4.0], [-3.0], [2.0]]), [EDGES[0], EDGES[2]], ranking="signed")
    assert signed.auroc == 0.5
    assert signed.smallest_true == -3.0


def test_opposite_signs_over_examples_count_in_absolute_ranking_alone():
    found = effects_of([[1.0, -1.0], [0.1, 0.1], [0.0, 0.0]])
    assert recovery(found, [EDGES[0]]).auroc == 1.0
    assert recovery(found, [EDGES[0]], ranking="signed").auroc < 1.0


@settings(max_examples=20, deadline=None)
@given(
    true=st.integers(1, 5),
    values=st.lists(st.floats(-10, 10, allow_nan=False), min_size=6, max_size=6),
    factor=st.floats(0.1, 10),
)
def test_only_the_order_of_scores_counts(true, values, factor):
    found = recovery(effects_of([[value] for value in values]), EDGES[:true], draws=20)
    scaled = recovery(effects_of([[value * factor] for value in values]), EDGES[:true], draws=20)
    assert found.auroc == pytest.approx(scaled.auroc)
    assert 0.0 <= found.auroc <= 1.0
    assert true / 6 - 1e-9 <= found.average_precision * 6 <= 6 + 1e-9


def test_chance_is_one_half_and_drawn_with_the_seed():
    found = effects_of([[float(value)] for value in range(6)])
    first, again, other = (recovery(found, EDGES[:3], seed=seed, draws=2000) for seed in (1, 1, 2))
    assert first == again
    assert first.random_auroc != other.random_auroc
    assert abs(first.random_auroc.mean - 0.5) < 0.03
    assert first.random_auroc.low < 0.2 < 0.8 < first.random_auroc.high


def test_chance_agrees_with_the_library_on_every_order():
    """All 24 orders of four edges, two of them true: the mean over orders is the mean of the library's values."""
    labels = np.array([True, True, False, False])
    orders = [np.array(order, dtype=float) for order in permutations(range(4))]
    auroc = np.mean([roc_auc_score(labels, order) for order in orders])
    precision = np.mean([average_precision_score(labels, order) for order in orders])
    found = recovery(effects_of([[1.0], [2.0], [3.0], [4.0]]), EDGES[:2], draws=20_000)
    assert found.random_auroc.mean == pytest.approx(auroc, abs=0.01)
    assert found.random_average_precision.mean == pytest.approx(precision, abs=0.01)
    assert (found.random_auroc.low, found.random_auroc.high) == (0.0, 1.0)


@pytest.mark.parametrize("variant", ["two-head", "two-head-narrow"])
def test_exact_patching_recovers_the_constructed_circuits(variant):
    task = EspTask(read_graph("complete:5"))
    examples = task.examples()
    metric = task.metrics(examples)["logit_difference"]
    built = construct(task, variant, sink=8.0, dtype="float64")
    for kind, put in (
        ("zero", Intervention("zero")),
        ("positional_mean", Intervention("positional_mean", examples.inputs)),
        ("resample", Intervention("resample", examples.inputs, seed=1)),
    ):
        exact = recovery(patch_edges(built.model, examples.inputs, metric, put), built.circuit(kind))
        assert exact.auroc == 1.0
        assert exact.average_precision == pytest.approx(1.0)
        assert exact.separation > 10
        assert exact.edges == 36
        estimated = recovery(estimate_edges(built.model, examples.inputs, metric, put), built.circuit(kind))
        assert estimated.auroc == 1.0
        assert estimated.smallest_true < 0.05 * exact.smallest_true
    other = built.circuit("zero").edges
    across = recovery(
        patch_edges(built.model, examples.inputs, metric, Intervention("positional_mean", examples.inputs)), other
    )
    assert across.auroc < 1.0


def test_bad_requests_are_one_sentence():
    found = effects_of([[1.0], [2.0]])
    with pytest.raises(KeyError, match="was not measured"):
        recovery(found, [EDGES[5]])
    with pytest.raises(ValueError, match="nothing to tell apart"):
        recovery(found, [])
    with pytest.raises(ValueError, match="nothing to tell apart"):
        recovery(found, EDGES[:2])
    with pytest.raises(ValueError, match="at least 1"):
        recovery(found, EDGES[:1], draws=0)
    with pytest.raises(ValueError, match="true under positional_mean, the effects are of zero"):
        recovery(found, Circuit(frozenset(EDGES[:1]), "positional_mean"))
    with pytest.raises(KeyError, match="absolute or signed"):
        recovery(found, EDGES[:1], ranking="largest")
