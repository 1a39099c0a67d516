"""Every instrument on TransformerBridges: equal to hooks set by hand, or refused in a sentence.

Nothing here needs a HookedTransformer: `make test-tl4` runs this file on transformer-lens 4.
"""

import pytest
import torch

from headlab.interp.ablation import ablate_heads
from headlab.interp.attribution import direct_logit_attribution
from headlab.interp.attribution_patching import estimate_patches
from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.discovery import fidelity, greedy_circuit
from headlab.interp.edges import edges
from headlab.interp.errors import RequestError
from headlab.interp.gradients import estimate_edges
from headlab.interp.interactions import interactions
from headlab.interp.interventions import Intervention
from headlab.interp.model import activations, head_weights
from headlab.interp.norms import norm_of
from headlab.interp.patching import patch_sweep
from headlab.interp.paths import patch_edge_sets, patch_edges, patch_path
from headlab.interp.sites import COMPONENTS, hook_name
from headlab.interp.weights import unembedding, written_rows
from tests.interp.bridges import ARCHITECTURES, bridge
from tests.interp.bridges import tokens as bridge_tokens
from tests.interp.own_scores import require_own_scores

ROWS = torch.randn(3, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64) - 1.0
UNSHARED = ("native", "gpt2")  # every head has keys and values of its own


def metric(logits):
    return logits[:, -1, 3] - 0.3 * logits[:, 0, 4]


def each_instrument(model, inputs, source):
    """name -> what runs it."""
    put = Intervention("patch", source)
    some = [Edge(START, Node("head", 0, 1), "v", 1), Edge(Node("head", 1, 0), END, "end", 3)]
    return {
        "edges": lambda: patch_edges(model, inputs, metric, put, edges=some),
        "edge estimates": lambda: estimate_edges(model, inputs, metric, put, edges=some),
        "paths": lambda: patch_path(model, inputs, metric, put, [START, Node("head", 0, 1), END]),
        "fidelity": lambda: fidelity(model, inputs, metric, put, some),
        "discovery": lambda: greedy_circuit(model, inputs, metric, put, tolerance=0.1, edges=some),
        "interactions": lambda: interactions(
            model, inputs, metric, put, groups={"first": [some[0]], "second": [some[1]]}
        ),
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_instrument_of_edges_runs_or_says_why_not(architecture):
    model, inputs, source = bridge(architecture), bridge_tokens(2, positions=4), bridge_tokens(2, seed=1, positions=4)
    before = model(inputs)
    for name, instrument in each_instrument(model, inputs, source).items():
        if architecture in UNSHARED:
            assert instrument() is not None, name
        else:
            with pytest.raises(RequestError, match="4 heads share 2 keys and values, and a bridge cannot"):
                instrument()
    assert torch.equal(model(inputs), before)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def by_hand(model, inputs, new, component, layer, head, position):
    """The metric when one cell holds the source's value."""
    name = hook_name(component, layer)

    def edit(value, hook):
        value = value.clone()
        place = (slice(None), head) if component == "pattern" else (slice(None), position)
        place += (position,) if component == "pattern" else () if head is None else (head,)
        value[place] = new[name][place]
        return value

    return metric(model.run_with_hooks(inputs, fwd_hooks=[(name, edit)]))


@pytest.mark.parametrize("component", [name for name in COMPONENTS if name != "resid_mid"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_patches_and_their_estimates_equal_a_hook_loop(architecture, component):
    model, inputs, source = bridge(architecture), bridge_tokens(2, positions=4), bridge_tokens(2, seed=1, positions=4)
    names = [hook_name(component, layer) for layer in (0, 1)]
    values, new = (activations(model, data, names)[1] for data in (inputs, source))

    def live():
        """Whether the model heeds an edit at this hook; the native bridge of transformer-lens 3.9 does not."""
        cut = model.run_with_hooks(inputs, fwd_hooks=[(names[0], lambda value, hook: 0 * value)])
        return not torch.equal(cut, model(inputs))

    if not live():
        with pytest.raises(RequestError, match=f"edits of {component} do nothing on this TransformerBridge"):
            patch_sweep(model, source, inputs, metric, component=component)
        with pytest.raises(RequestError, match=f"edits of {component} do nothing on this TransformerBridge"):
            estimate_patches(model, source, inputs, metric, component=component)
        return
    found = patch_sweep(model, source, inputs, metric, component=component, engine="expand")
    effects, baseline = found.values[0], metric(model(inputs)).detach()
    heads = effects.shape[1] if effects.ndim == 4 else 0
    for layer in (0, 1):
        for head in range(heads) if heads else [None]:
            for position in (1, 3):
                expected = by_hand(model, inputs, new, component, layer, head, position)
                cell = effects[(layer, position) if head is None else (layer, head, position)]
                torch.testing.assert_close(cell, expected, rtol=1e-5, atol=1e-5)
    assert float((effects - baseline).abs().max()) > 1e-3
    assert any((values[name] != new[name]).any() for name in names)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_ablated_head_is_its_z_at_zero(architecture):
    model, inputs = bridge(architecture), bridge_tokens(3)
    found = ablate_heads(model, inputs, metric, kind="zero")
    for layer in (0, 1):
        for head in range(4):

            def silent(z, hook, head=head):
                z = z.clone()
                z[:, :, head] = 0
                return z

            cut = metric(model.run_with_hooks(inputs, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", silent)]))
            expected = metric(model(inputs)) - cut
            torch.testing.assert_close(found.effect[4 * layer + head], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bridge_s_norms_by_what_they_do(architecture):
    model = bridge(architecture)
    norm = norm_of(model, model.ln_final)
    assert norm is not None
    assert norm.centres is (architecture in ("native", "gpt2"))
    torch.testing.assert_close(norm(ROWS), model.ln_final(ROWS[None])[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bridge_s_circuits_are_its_own_scores_and_writes(architecture):
    model = bridge(architecture)
    for layer in (0, 1):
        require_own_scores(model, bridge_tokens(2, positions=4), layer, 1e-5)
        names = [f"blocks.{layer}.hook_resid_pre", f"blocks.{layer}.hook_attn_out"]
        before, written = activations(model, bridge_tokens(4, positions=1), names)[1].values()
        found = written_rows(model, layer, before[:, 0]).sum(0) + head_weights(model, layer).b_O
        torch.testing.assert_close(found, written[:, 0], rtol=1e-5, atol=1e-5)
    names = ["blocks.1.hook_resid_post"]
    logits, cache = activations(model, bridge_tokens(4, positions=1), names)
    rows = cache[names[0]][:, 0]
    centred = rows - rows.mean(-1, keepdim=True) if architecture in ("native", "gpt2") else rows
    size = (centred.square().mean(-1, keepdim=True) + model.cfg.eps).sqrt()
    left = logits[:, 0] - rows @ unembedding(model) / size
    torch.testing.assert_close(left, left[:1].expand_as(left), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bridge_s_terms_add_up_and_a_head_s_is_its_own(architecture):
    """A head's term is what it writes at the position, over the final norm's scale, unembedded."""
    model, inputs, wanted = bridge(architecture), bridge_tokens(3), torch.tensor([3, 4, 5])
    found = direct_logit_attribution(model, inputs, wanted)
    logits = model(inputs)[torch.arange(3), -1, wanted]
    torch.testing.assert_close(found.logits, logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.total, logits, rtol=1e-5, atol=1e-5)

    whole = activations(model, inputs, ["blocks.1.hook_resid_post"])[1]["blocks.1.hook_resid_post"]
    z = activations(model, inputs, ["blocks.1.attn.hook_z"])[1]["blocks.1.attn.hook_z"][:, -1, 2]
    write = z @ head_weights(model, 1).W_O[2]
    centred = whole[:, -1] - whole[:, -1].mean(-1, keepdim=True) if architecture in ("native", "gpt2") else whole[:, -1]
    scale = (centred.square().mean(-1, keepdim=True) + model.cfg.eps).sqrt()
    expected = ((write / scale) @ unembedding(model))[torch.arange(3), wanted]
    torch.testing.assert_close(found.by_head[:, 1, 2], expected, rtol=1e-5, atol=1e-5)


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


@pytest.mark.parametrize("architecture", UNSHARED)
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

    def values(self, model, destination, run, **options):
        there = super().values(model, destination, run, **options)
        return {name: value + 1e-5 * (there[name] - value) for name, value in run.items()}


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma"])
def test_a_bridge_that_shares_keys_and_values_is_refused_in_a_sentence(architecture):
    model, inputs = bridge(architecture), bridge_tokens(2)
    for instrument in (patch_edges, estimate_edges):
        with pytest.raises(RequestError, match="4 heads share 2 keys and values, and a bridge cannot give each"):
            instrument(model, inputs, metric, Intervention("zero"))
