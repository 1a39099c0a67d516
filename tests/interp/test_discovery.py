import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.interp.discovery import fidelity, greedy_circuit, threshold_circuit
from headlab.interp.interventions import Intervention
from headlab.interp.paths import patch_edge_sets, patch_edges
from headlab.interp.wiring import wire
from tests.interp.hand_built import arcs, random_model, tokens, two_heads

ENDPOINT = {
    "start -> 0.0.v@0",
    "start -> 0.1.v@1",
    "start -> 0.0.k@2",
    "start -> 0.1.k@2",
    "0.0 -> end@3",
    "0.1 -> end@3",
}


def first_token(logits):
    return logits[:, -1, 0] - 0.3 * logits[:, 0, 1]


def endpoint():
    inputs, target, other, _ = arcs()
    rows = torch.arange(len(inputs))

    def difference(logits):
        return logits[rows, 0, target] - logits[rows, 0, other]

    return two_heads(), inputs, difference, Intervention("positional_mean", inputs)


def test_the_full_circuit_is_exactly_the_model_and_none_of_it_the_reference():
    for dtype in (torch.float32, torch.float64):
        model, inputs, source = random_model(attn_only=False, dtype=dtype), tokens(3), tokens(3, seed=1)
        found = fidelity(model, inputs, first_token, Intervention("patch", source), wire(model, inputs).edges())
        assert found.distance == 0.0
        assert torch.equal(found.circuit, found.whole)
        assert torch.allclose(found.complement, found.empty, atol=1e-6)
        assert found.faithfulness == 1.0
        assert found.left == pytest.approx(0.0, abs=1e-5)
        empty = fidelity(model, inputs, first_token, Intervention("patch", source), [])
        assert torch.allclose(empty.circuit, first_token(model(source)).detach(), atol=1e-5)
        assert empty.faithfulness == pytest.approx(0.0, abs=1e-5)
        assert empty.left == pytest.approx(1.0, abs=1e-5)


def test_a_circuit_is_what_is_left_when_all_other_edges_are_cut_together():
    model, inputs, put = random_model(), tokens(3), Intervention("patch", tokens(3, seed=1))
    every = wire(model, inputs).edges()
    kept = every[::3]
    found = fidelity(model, inputs, first_token, put, kept)
    cut = patch_edge_sets(model, inputs, first_token, put, [set(every) - set(kept), kept])
    assert torch.allclose(found.whole - found.circuit, cut.effect[0], atol=1e-12)
    assert torch.allclose(found.whole - found.complement, cut.effect[1], atol=1e-12)


def test_where_there_is_nothing_to_recover_no_share_is_given():
    model, inputs = random_model(), tokens(3)
    found = fidelity(model, inputs, first_token, Intervention("patch", inputs), [])
    assert found.distance == 0.0
    assert found.faithfulness is None
    assert found.left is None
    assert len(found.to_frame()) == 3


def test_greedy_and_threshold_find_the_endpoint_circuit():
    model, inputs, metric, put = endpoint()
    greedy = greedy_circuit(model, inputs, metric, put, tolerance=0.05, read=(3,))
    assert {str(edge) for edge in greedy.circuit.edges} == ENDPOINT
    effects = patch_edges(model, inputs, metric, put, read=(3,))
    above = threshold_circuit(effects, above=0.05)
    largest = threshold_circuit(effects, count=6)
    assert above.edges == largest.edges == greedy.circuit.edges
    for circuit in (greedy.circuit, above, largest):
        assert circuit.ablation == "positional_mean"
        assert "positional_mean over 40 examples" in circuit.reference
        assert circuit.ranking
        assert set(circuit.weights) == set(circuit.edges)
    found = fidelity(model, inputs, metric, put, greedy.circuit, read=(3,))
    assert found.distance == pytest.approx(greedy.distance, abs=1e-12)
    assert found.distance < 1e-3
    assert found.left is not None
    assert abs(found.left) < 1e-3


def test_random_edges_of_the_same_number_are_no_circuit():
    model, inputs, metric, put = endpoint()
    every = wire(model, inputs).edges(end=(3,))
    drawn = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))[:6].tolist()
    assert fidelity(model, inputs, metric, put, [every[i] for i in drawn], read=(3,)).distance > 0.2


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1000), tolerance=st.sampled_from([0.01, 0.1, 0.5]))
def test_trying_many_at_once_is_trying_one_after_the_other(seed, tolerance):
    model = random_model(seed=seed, n_layers=1, n_ctx=2)
    inputs, put = tokens(2, seed=seed, positions=2), Intervention("patch", tokens(2, seed=seed + 1, positions=2))
    found = greedy_circuit(model, inputs, first_token, put, tolerance=tolerance)
    removed, current = set(), 0.0
    by_name = {str(edge): edge for edge in wire(model, inputs).edges()}
    for row in found.trace.itertuples():
        edge = by_name[str(row.edge)]
        effect = patch_edge_sets(model, inputs, first_token, put, [removed | {edge}]).effect[0]
        distance = float(effect.abs().mean())
        assert bool(row.kept) == (distance - current >= tolerance)
        if not row.kept:
            removed, current = removed | {edge}, distance
    assert found.circuit.edges == set(by_name.values()) - removed
    assert found.distance == pytest.approx(current, abs=1e-12)
    assert len(found.trace) == len(by_name)


def test_edges_into_a_node_that_nothing_reads_go_with_it():
    model, inputs, put = random_model(), tokens(2), Intervention("patch", tokens(2, seed=1))
    found = greedy_circuit(model, inputs, first_token, put, tolerance=1e9)
    assert not found.circuit.edges
    some = [edge for edge in wire(model, inputs).edges() if edge.destination == END]
    part = greedy_circuit(model, inputs, first_token, put, tolerance=1e9, edges=some)
    assert part.circuit.edges == set(wire(model, inputs).edges()) - set(some)


def test_equal_scores_are_broken_in_a_stated_order_and_signed_ranking_is_not_absolute():
    model, inputs = random_model(), tokens(3)
    effects = patch_edges(model, inputs, first_token, Intervention("zero"))
    signed, absolute = (threshold_circuit(effects, count=5, ranking=ranking) for ranking in ("signed", "absolute"))
    assert signed.edges != absolute.edges
    assert "signed" in signed.ranking
    assert "absolute" in absolute.ranking
    assert threshold_circuit(effects, count=0).edges == frozenset()
    assert len(threshold_circuit(effects, count=len(effects.edges)).edges) == len(effects.edges)


@pytest.mark.parametrize(
    ("options", "words"),
    [({}, "either"), ({"above": 0.1, "count": 2}, "either"), ({"count": -1}, "count is -1"), ({"count": 999}, "edges")],
)
def test_a_threshold_without_a_rule_is_an_error(options, words):
    effects = patch_edges(random_model(n_layers=1), tokens(2), first_token, Intervention("zero"))
    with pytest.raises(ValueError, match=words):
        threshold_circuit(effects, **options)


def test_bad_requests_are_one_sentence():
    model, inputs = random_model(n_layers=1), tokens(2)
    with pytest.raises(ValueError, match="tolerance is 0"):
        greedy_circuit(model, inputs, first_token, Intervention("zero"), tolerance=0.0)
    with pytest.raises(KeyError, match=r"no node '4\.0'"):
        fidelity(model, inputs, first_token, Intervention("zero"), [Edge(Node("head", 4, 0), END, "end", 0)])


def test_a_circuit_says_its_nodes_in_model_order():
    circuit = Circuit(
        frozenset({Edge(Node("head", 0, 1), END, "end", 3), Edge(START, Node("head", 0, 1), "v", 0)}), "zero"
    )
    assert [str(node) for node in circuit.nodes] == ["start", "0.1", "end"]
    assert circuit.to_graph().number_of_edges() == 2
