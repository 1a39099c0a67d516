"""The usual instruments as methods of the calibration: each takes a View and gives a score per item.

Edges: exact patching, the same ranked by the signed mean, in context, greedy discovery, gradient estimates, direct
logit attribution, attention weight, weight norms. Heads and sites: what silencing does, pairs, attribution patching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headlab.analyses.calibrate.view import Method, View, item_of
from headlab.interp.circuits import END, Edge, Node
from headlab.interp.discovery import greedy_circuit
from headlab.interp.gradients import estimate_edges
from headlab.interp.interactions import edges_in_context
from headlab.interp.model import activations, head_weights, run, untouched
from headlab.interp.paths import EdgeEffects, patch_edge_sets, patch_edges
from headlab.interp.wiring import wire

Scored = dict[Any, float]
TOLERANCE = 0.01  # of the metric, that greedy discovery lets the distance grow by


def _options(view: View) -> dict[str, Any]:
    return {"edges": view.edges, "read": view.read}


def _arguments(view: View) -> tuple[Any, Any, Any, Any]:
    return view.model, view.inputs, view.metric, view.put


def exact(view: View) -> Scored:
    """Patch every edge; mean |effect|."""
    return patch_edges(*_arguments(view), **_options(view)).weights()


def exact_signed(view: View) -> Scored:
    """The same, ranked by the mean effect with its sign: what helps the answer."""
    return patch_edges(*_arguments(view), **_options(view)).weights("signed")


def in_context(view: View) -> Scored:
    """Patch every edge in the model and in those in which one node is silent; the largest mean |effect|."""
    return edges_in_context(*_arguments(view), **_options(view)).strongest().weights()


def greedy(view: View) -> Scored:
    """Greedy discovery (ACDC); a kept edge's score is how much the distance grew, others have 0."""
    with torch.no_grad():
        size = float(view.value(view.model(view.inputs)).abs().mean())
    found = greedy_circuit(*_arguments(view), tolerance=TOLERANCE * max(size, 1e-9), **_options(view)).circuit
    return {edge: found.weights.get(edge, 0.0) if edge in found.edges else 0.0 for edge in view.edges}


def estimate(method: str) -> Method:
    """A gradient estimate of `headlab.interp.gradients`; mean |estimate|."""

    def estimated(view: View) -> Scored:
        return estimate_edges(*_arguments(view), method=method, **_options(view)).weights()

    return estimated


def _final_gradient(view: View) -> Tensor:
    """The metric's gradient in the residual stream after the last block."""
    kept: list[Tensor] = []

    def leaf(value: Tensor, hook: Any) -> Tensor:
        kept.append(torch.zeros_like(value).requires_grad_(True))
        return value + kept[0]

    with untouched(view.model, gradients=True):
        for parameter in view.model.parameters():
            parameter.requires_grad_(False)
        name = f"blocks.{view.model.cfg.n_layers - 1}.hook_resid_post"
        logits = run(view.model, view.inputs, [(name, leaf)])
        return torch.autograd.grad(view.value(logits).sum(), kept)[0]


def direct_attribution(view: View) -> Scored:
    """Direct logit attribution: what a node writes times the metric's gradient at the end; mean |product|."""
    gradient = _final_gradient(view)
    with untouched(view.model):
        outputs = wire(view.model, view.inputs).outputs
    return {
        edge: float((outputs[edge.source] * gradient)[:, edge.position].sum(-1).abs().mean())
        if edge.destination == END
        else 0.0
        for edge in view.edges
    }


def _patterns(view: View) -> list[Tensor]:
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(view.model.cfg.n_layers)]
    with untouched(view.model):
        kept = activations(view.model, view.inputs, names)[1]
    return [kept[name].mean(0) for name in names]


def attention(view: View) -> Scored:
    """How much the reader attends where it reads (keys and values), or how sharply at all (queries, ends)."""
    patterns, read = _patterns(view), list(view.read)

    def score(edge: Edge) -> float:
        if edge.destination.kind == "head":
            own = patterns[edge.destination.layer][edge.destination.head]
            if edge.port in "kv":
                return float(own[read, edge.position].mean())
            return float(own[edge.position].max()) / len(read) if edge.position in read else 0.0
        if edge.source.kind == "head":
            return float(patterns[edge.source.layer][edge.source.head][edge.position].max()) / len(read)
        return 0.0

    return {edge: score(edge) for edge in view.edges}


def _norms(view: View) -> Callable[[Node], tuple[float, float]]:
    weights = [head_weights(view.model, layer) for layer in range(view.model.cfg.n_layers)]

    def of(node: Node) -> tuple[float, float]:
        own, h = weights[node.layer], node.head
        return float((own.W_V[h] @ own.W_O[h]).norm()), float((own.W_Q[h] @ own.W_K[h].T).norm())

    return of


def norms(view: View) -> Scored:
    """The norm of the reader's OV or QK circuit, or the writer's OV circuit for the end."""
    of = _norms(view)

    def score(edge: Edge) -> float:
        if edge.destination.kind == "head":
            ov, qk = of(edge.destination)
            return ov if edge.port == "v" else qk
        return of(edge.source)[0] if edge.source.kind == "head" else 0.0

    return {edge: score(edge) for edge in view.edges}


def random(view: View) -> Scored:
    """Random scores: what chance reaches."""
    draw = np.random.default_rng(view.seed).random(len(view.items))
    return {item: float(value) for item, value in zip(view.items, draw, strict=True)}


def _silenced(view: View) -> tuple[dict[Any, tuple[Edge, ...]], EdgeEffects]:
    groups: dict[Any, tuple[Edge, ...]] = dict.fromkeys(view.items, ())
    for edge in view.edges:
        if (item := item_of(view.level, edge)) in groups:
            groups[item] += (edge,)
    return groups, patch_edge_sets(*_arguments(view), list(groups.values()), read=view.read)


def silenced(view: View) -> Scored:
    """Replace all that a head writes (at a site: at its position); mean |effect|."""
    groups, found = _silenced(view)
    return dict(zip(groups, found.effect.abs().mean(1).tolist(), strict=True))


def in_pairs(view: View) -> Scored:
    """The same, alone or with one other silent already, whichever is larger."""
    groups, single = _silenced(view)
    items = list(groups)
    pairs = [(i, j) for i in range(len(items)) for j in range(len(items)) if i != j]
    sets = [tuple({*groups[items[i]], *groups[items[j]]}) for i, j in pairs]
    best = single.effect.abs().mean(1)
    if sets:
        together = patch_edge_sets(*_arguments(view), sets, read=view.read).effect
        for (i, j), effect in zip(pairs, together, strict=True):
            best[i] = torch.maximum(best[i], (effect - single.effect[j]).abs().mean())
    return dict(zip(items, best.tolist(), strict=True))


def attribution_patching(view: View) -> Scored:
    """EAP summed over what a head writes: the first-order estimate of silencing it."""
    found = estimate_edges(*_arguments(view), **_options(view))
    total = {item: torch.zeros(len(view.inputs), dtype=found.effect.dtype) for item in view.items}
    for edge, effect in zip(found.edges, found.effect, strict=True):
        if (item := item_of(view.level, edge)) in total:
            total[item] += effect
    return {item: float(effect.abs().mean()) for item, effect in total.items()}


def summed(method: Method) -> Method:
    """The level of heads or sites for a method that scores edges: the sum over what the item writes into the end."""

    def by_item(view: View) -> Scored:
        scores: Any = method(view)
        total = dict.fromkeys(view.items, 0.0)
        for edge in view.edges:
            item = item_of(view.level, edge)
            if item in total and edge.destination == END:
                total[item] += float(scores[edge])
        return total

    return by_item


EDGES: dict[str, Method] = {
    "exact": exact,
    "exact signed": exact_signed,
    "greedy": greedy,
    "EAP": estimate("eap"),
    "EAP-IG inputs": estimate("eap-ig-inputs"),
    "EAP-IG activations": estimate("eap-ig-activations"),
    "direct attribution": direct_attribution,
    "attention": attention,
    "weight norms": norms,
    "random": random,
}
HEADS: dict[str, Method] = {
    "exact": silenced,
    "pairs": in_pairs,
    "attribution patching": attribution_patching,
    "direct attribution": summed(direct_attribution),
    "attention": summed(attention),
    "weight norms": summed(norms),
    "random": random,
}
BUILT_IN: dict[str, dict[str, Method]] = {"edges": EDGES, "heads": HEADS, "sites": HEADS}
IN_CONTEXT = "exact in context"  # on the rung with a backup only
INTEGRATED = "EAP-IG activations"
DEAR, FEW_SEEDS = ("greedy", INTEGRATED, IN_CONTEXT), 1  # together they cost more than all others: one seed
SLOW_ON_TREE = ("greedy", INTEGRATED)  # there at the rung `shaken` only


def methods_for(level: str, task: str, rung: str, seed: int) -> dict[str, Method]:
    """The built-in methods that are run on one cell: all, but for the dear ones where they tell nothing more."""
    chosen = dict(BUILT_IN[level])
    if level == "edges" and rung == "backup head" and task != "tree":
        chosen[IN_CONTEXT] = in_context
    if level == "edges" and task == "tree" and rung != "shaken":
        chosen = {name: method for name, method in chosen.items() if name not in SLOW_ON_TREE}
    return chosen if seed < FEW_SEEDS else {name: one for name, one in chosen.items() if name not in DEAR}
