"""Edges as a table, with and without positions, and on bridges: against loops written here."""

import pytest
import torch

from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.discovery import fidelity
from headlab.interp.edges import EdgeTable, edges
from headlab.interp.errors import RequestError
from headlab.interp.gradients import estimate_edges
from headlab.interp.interventions import Intervention
from headlab.interp.model import activations, head_weights
from headlab.interp.paths import patch_edge_sets, patch_edges, patch_path
from headlab.interp.wiring import wire
from tests.interp.bridges import bridge
from tests.interp.bridges import tokens as bridge_tokens
from tests.interp.hand_built import random_model, tokens


def metric(logits):
    return logits[:, -1, 3] - 0.3 * logits[:, 0, 4]


def every_edge(layers, heads, positions, attn_only):
    """All edges, by the definition."""
    nodes = [START]
    for layer in range(layers):
        nodes += [Node("head", layer, head) for head in range(heads)] + ([] if attn_only else [Node("mlp", layer)])
    found = []
    for source in nodes:
        for node in nodes:
            later = node.layer > source.layer
            if node.kind == "head" and later:
                found += [Edge(source, node, port, at) for port in "qkv" for at in positions]
            if node.kind == "mlp" and (later or (node.layer == source.layer and source.kind == "head")):
                found += [Edge(source, node, "mlp", at) for at in positions]
        found += [Edge(source, END, "end", at) for at in positions]
    return sorted(found)


@pytest.mark.parametrize("attn_only", [True, False])
def test_the_table_holds_every_edge_once_sorted(attn_only):
    model = random_model(attn_only=attn_only)
    table = edges(model, positions=range(3))
    assert list(table) == [table[row] for row in range(len(table))] == every_edge(2, 2, range(3), attn_only)
    assert table == tuple(table)
    assert list(table[4:7]) == list(table)[4:7]
    assert EdgeTable.of(tuple(table)) == table
    assert wire(model, tokens(2)).edges(end=[4]) == tuple(
        edge for edge in every_edge(2, 2, range(5), attn_only) if edge.port != "end" or edge.position == 4
    )
    whole = edges(model)
    assert {(edge.source, edge.destination, edge.port) for edge in whole} == {
        (edge.source, edge.destination, edge.port) for edge in table
    }
    assert {edge.position for edge in whole} == {None}
    assert str(whole[0]) == str(table[0]).split("@")[0]


def test_edges_are_selected_by_pattern():
    model = random_model(attn_only=False)
    names = {str(edge) for edge in edges(model, from_="0.*", to="1.*.k")}
    assert names == {"0.0 -> 1.0.k", "0.0 -> 1.1.k", "0.1 -> 1.0.k", "0.1 -> 1.1.k"}
    assert {str(edge) for edge in edges(model, from_="mlp1", positions=[2])} == {"mlp1 -> end@2"}
    assert not len(edges(model, from_="1.*", to="0.*"))


def test_an_edge_without_a_position_is_all_of_its_positions():
    model, inputs, put = random_model(attn_only=False), tokens(2), Intervention("patch", tokens(2, seed=1))
    for read in (None, (4, 0)):
        score = metric if read is None else (lambda logits: logits[:, 0, 3] - 0.3 * logits[:, 1, 4])
        whole = edges(model)[::7]
        found = patch_edges(model, inputs, score, put, edges=whole, read=read)
        at_end = range(5) if read is None else read
        sets = [
            [Edge(e.source, e.destination, e.port, at) for at in (at_end if e.port == "end" else range(5))]
            for e in whole
        ]
        assert torch.equal(found.effect, patch_edge_sets(model, inputs, score, put, sets, read=read).effect)
        assert found.edges == whole
        for method in ("eap", "eap-ig-inputs", "eap-ig-activations"):
            options = {"method": method, "steps": 2, "read": read}
            sums = estimate_edges(model, inputs, score, put, edges=whole, **options).effect
            flat = [edge for group in sets for edge in group]
            each = estimate_edges(model, inputs, score, put, edges=flat, **options).effect
            count = torch.tensor([len(group) for group in sets])
            parts = torch.stack([part.sum(0) for part in each.split(count.tolist())])
            torch.testing.assert_close(sums, parts)
            assert float(sums.abs().max()) > 1e-3
    frame = patch_edges(model, inputs, metric, put, edges=edges(model, to="end")).to_frame()
    assert frame.position.isna().all()
    with pytest.raises(RequestError, match="give edges of one kind"):
        patch_edges(model, inputs, metric, put, edges=[whole[0], Edge(START, END, "end", 0)])
    with pytest.raises(RequestError, match="has no position"):
        fidelity(model, inputs, metric, put, list(whole))


def test_positions_are_read_in_any_order():
    model, inputs, put = random_model(attn_only=False), tokens(3), Intervention("patch", tokens(3, seed=1))
    plain = patch_edges(model, inputs, metric, put, engine="expand")
    for order in ((4, 0), (0, -1), (4, 3, 2, 1, 0)):
        places = [at % 5 for at in order]

        def score(logits, places=places):
            return logits[:, places.index(4), 3] - 0.3 * logits[:, places.index(0), 4]

        for engine in ("cone", "expand"):
            found = patch_edges(model, inputs, score, put, read=order, engine=engine)
            row_of = {edge: row for row, edge in enumerate(plain.edges)}
            expected = plain.effect[[row_of[edge] for edge in found.edges]]
            torch.testing.assert_close(found.effect, expected, rtol=1e-9, atol=1e-10)
        estimated = estimate_edges(model, inputs, score, put, read=order)
        whole = estimate_edges(model, inputs, metric, put, edges=tuple(estimated.edges))
        torch.testing.assert_close(estimated.effect, whole.effect)


def replaced(model, inputs, source, edge, architecture):
    """The metric when one edge carries what its source writes on `source`: a hook loop that shares no code."""
    stem = {"q": "attn.hook_q", "k": "attn.hook_k", "v": "attn.hook_v", "mlp": "hook_mlp_out"}
    layer, at = edge.destination.layer, edge.position

    def writes(data):
        name = "blocks.0.hook_resid_pre"
        if edge.source.kind != "start":
            name = f"blocks.{edge.source.layer}." + ("hook_mlp_out" if edge.source.kind == "mlp" else "attn.hook_z")
        value = activations(model, data, [name])[1][name]
        if edge.source.kind == "head":
            return value[:, :, edge.source.head] @ head_weights(model, edge.source.layer).W_O[edge.source.head]
        return value

    delta = writes(source) - writes(inputs)
    if edge.port == "end":
        name = "blocks.1.hook_resid_post"
        added = torch.zeros_like(delta)
        added[:, at] = delta[:, at]
        return metric(model.run_with_hooks(inputs, fwd_hooks=[(name, lambda value, hook: value + added)]))
    stream = f"blocks.{layer}.hook_resid_{'mid' if edge.port == 'mlp' else 'pre'}"
    residual = activations(model, inputs, [stream])[1][stream] + delta
    norm = model.blocks[layer].ln2 if edge.port == "mlp" else model.blocks[layer].ln1
    if edge.port == "mlp":
        new = model.blocks[layer].mlp(norm(residual)).detach()
    else:
        weights = head_weights(model, layer)
        W, b = getattr(weights, f"W_{edge.port.upper()}"), getattr(weights, f"b_{edge.port.upper()}")
        new = norm(residual).detach() @ W[edge.destination.head] + b[edge.destination.head]

    def edit(value, hook):
        value = value.clone()
        place = (slice(None), at) if edge.port == "mlp" else (slice(None), at, edge.destination.head)
        value[place] = new[:, at]
        return value

    return metric(model.run_with_hooks(inputs, fwd_hooks=[(f"blocks.{layer}.{stem[edge.port]}", edit)]))


@pytest.mark.parametrize("architecture", ["native", "gpt2"])
def test_edges_and_paths_of_a_bridge_equal_a_hook_loop(architecture):
    model, inputs, source = bridge(architecture), bridge_tokens(2, positions=4), bridge_tokens(2, seed=1, positions=4)
    put = Intervention("patch", source)
    every = edges(model, positions=range(4))
    chosen = every[::23]
    found = patch_edges(model, inputs, metric, put, edges=chosen)
    for row, edge in enumerate(chosen):
        expected = metric(model(inputs)) - replaced(model, inputs, source, edge, architecture)
        torch.testing.assert_close(found.effect[row], expected, rtol=1e-5, atol=1e-5, msg=str(edge))
    assert float(found.effect.abs().max()) > 0.05
    everything = patch_edge_sets(model, inputs, metric, put, [every])
    whole = metric(model(inputs)) - metric(model(source))
    torch.testing.assert_close(everything.effect[0], whole, rtol=1e-5, atol=1e-5)
    path = patch_path(model, inputs, metric, put, [START, END])
    sets = patch_edge_sets(model, inputs, metric, put, [[Edge(START, END, "end", at) for at in range(4)]])
    torch.testing.assert_close(path.effect, sets.effect[0])
    # A reference a hair away: the estimate is the effect.
    near = NearRun("patch", source)
    small = estimate_edges(model, inputs, metric, near, edges=chosen, exact=True)
    size = float(small.exact.abs().max())
    torch.testing.assert_close(small.effect, small.exact, rtol=0, atol=1e-3 * size)
    assert size > 1e-6


class NearRun(Intervention):
    """The run itself, moved by a millionth of the way to the reference."""

    def values(self, model, destination, run):
        there = super().values(model, destination, run)
        return {name: value + 1e-5 * (there[name] - value) for name, value in run.items()}


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma"])
def test_a_bridge_that_shares_keys_and_values_is_refused_in_a_sentence(architecture):
    model, inputs = bridge(architecture), bridge_tokens(2)
    for instrument in (patch_edges, estimate_edges):
        with pytest.raises(RequestError, match="4 heads share 2 keys and values, and a bridge cannot give each"):
            instrument(model, inputs, metric, Intervention("zero"))


def test_padding_reaches_no_real_token():
    model, inputs, source = random_model(), tokens(2), tokens(2, seed=1)
    mask = torch.ones_like(inputs)
    mask[:, :2] = 0
    score, put = (lambda logits: logits[:, -1, 3]), Intervention("patch", source)
    for instrument in (patch_edges, estimate_edges):
        found = instrument(model, inputs, score, put, attention_mask=mask)
        padded = torch.tensor([edge.position < 2 for edge in found.edges])
        assert float(found.effect[padded].abs().max()) < 1e-12
        assert float(found.effect.abs().max()) > 1e-2
        torch.testing.assert_close(found.baseline, score(model(inputs, attention_mask=mask)))
    everything = patch_edge_sets(model, inputs, score, put, [edges(model, positions=range(5))], attention_mask=mask)
    expected = score(model(inputs, attention_mask=mask)) - score(model(source, attention_mask=mask))
    torch.testing.assert_close(everything.effect[0], expected)
    with pytest.raises(RequestError, match="mean over padded examples is not defined"):
        patch_edges(model, inputs, score, Intervention("mean", source), attention_mask=mask)
