"""Gradient estimates of what edges carry: EAP and EAP-IG, one backward pass where patching needs a run per edge.

They are first-order: where softmax is saturated its gradient is next to nothing, and so is the estimate of an edge into
q or k, however large the true effect is. Results say so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from headlab.interp.circuits import END, START, Edge, Node, Port
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric, metric_name, performance
from headlab.interp.model import HookedModel, activations, run, untouched
from headlab.interp.movement import visible_keys
from headlab.interp.paths import EdgeEffects, exact_effects
from headlab.interp.wiring import QKV, Outputs, Wiring, reference_outputs, wire

Method = Literal["eap", "eap-ig-inputs", "eap-ig-activations"]
Gradients = Mapping[tuple[Node, Port], Float[Tensor, "example position model"]]
SATURATED = 0.02


def estimate_edges(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    metric: Metric,
    intervention: Intervention,
    *,
    method: Method | str = "eap",
    steps: int = 5,
    edges: Collection[Edge] | None = None,
    read: Sequence[int] | None = None,
    exact: bool = False,
) -> EdgeEffects:
    """What `patch_edges` measures, estimated from gradients of the metric at the readers' inputs.

    An edge's estimate is (reference - own output of its source) times minus the gradient of the metric there. method:
    `eap`, the gradient of the run itself (Syed et al. 2023); `eap-ig-inputs`, its mean over runs whose embeddings lie
    between the reference's and their own (Hanna et al. 2024); `eap-ig-activations`, over runs in which the edge's
    source alone is so interpolated. steps: how many such runs, at the midpoints of equal parts. exact: also patch each
    edge, into the result's `exact`.

    The result's warning names the heads whose softmax is saturated. Other arguments and errors as for `patch_edges`;
    ValueError too for fewer than one step or a metric without a gradient, KeyError for an unknown method.
    """
    if method not in get_args(Method):
        raise UnknownName(f"unknown method '{method}': choose one of {', '.join(get_args(Method))}")
    if steps < 1:
        raise RequestError(f"{steps} steps: integrated gradients need at least 1")
    name = metric_name(metric)
    with untouched(model):
        wiring = wire(model, inputs)
        chosen = wiring.edges(end=read) if edges is None else tuple(dict.fromkeys(edges))
        wiring.check(chosen)
        seen = list(wiring.positions_of(read))
        baseline = performance(metric, wiring.logits[:, seen], name)
        reference = reference_outputs(wiring, intervention)
        gradients = _gradients_by_source(wiring, metric, name, seen, reference, method, steps)
        effect = baseline.new_zeros(len(chosen), len(baseline))
        for row, edge in enumerate(chosen):
            delta = (reference[edge.source] - wiring.outputs[edge.source])[:, edge.position]
            there = gradients(edge.source)[(edge.destination, edge.port)][:, edge.position]
            effect[row] = -(delta * there).sum(-1)
        found = EdgeEffects(
            sets=tuple((edge,) for edge in chosen),
            effect=effect,
            baseline=baseline,
            kind=intervention.kind,
            intervention=str(intervention),
            reference=intervention.reference,
            metric=name,
            method=method if method == "eap" else f"{method}, {steps} steps",
            engine="gradient",
            device=str(effect.device),
            warning=saturation_warning(saturation(model, inputs)),
        )
        if not exact:
            return found
        sets = [(edge,) for edge in chosen]
        return replace(found, exact=exact_effects(wiring, sets, metric, intervention, (), read).effect)


def saturation(model: HookedModel, inputs: Shaped[Tensor, "example ..."]) -> Float[Tensor, "layer head"]:
    """In which share of the examples each head's softmax has next to no gradient, at the query where it is largest.

    A row of attention A counts as saturated where 1 - sum A^2, the trace of the softmax's Jacobian, is below .02; rows
    with a single visible key do not count.
    """
    layers = range(model.cfg.n_layers)
    names = [f"blocks.{layer}.attn.hook_{part}" for layer in layers for part in ("pattern", "attn_scores")]
    with untouched(model):
        kept = activations(model, inputs, names)[1]
    shares = []
    for layer in layers:
        pattern = kept[f"blocks.{layer}.attn.hook_pattern"]
        choice = visible_keys(kept[f"blocks.{layer}.attn.hook_attn_scores"]).sum(-1) > 1
        still = (1 - pattern.square().sum(-1) < SATURATED) & choice
        shares.append(still.to(torch.get_default_dtype()).mean(0).amax(-1))
    return torch.stack(shares)


def saturation_warning(shares: Float[Tensor, "layer head"], *, above: float = 0.1) -> str | None:
    """One sentence that names the heads saturated in more than that share of the examples; None where there is none."""
    heads = [
        f"{layer}.{head} ({float(shares[layer, head]):.0%})" for layer, head in (shares > above).nonzero().tolist()
    ]
    if not heads:
        return None
    return (
        f"softmax is saturated in heads {', '.join(heads)} of examples: estimates of what enters their q and k can be "
        "too small by orders of magnitude, so read the order and not the size, or patch exactly"
    )


def gradients_of(metric: Metric, name: str, logits: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the metric's sum over examples at each of `leaves`; 0 at a leaf that it does not depend on.

    Raises ValueError for a metric without a gradient, or with one that is not finite.
    """
    value = metric(logits)
    if not (isinstance(value, Tensor) and value.requires_grad):
        raise RequestError(f"metric '{name}' has no gradient (a count or a comparison): estimate with a smooth one")
    found = torch.autograd.grad(value.sum(), list(leaves), allow_unused=True)
    if any(gradient is not None and not torch.isfinite(gradient).all() for gradient in found):
        raise RequestError(f"the gradient of metric '{name}' is not finite: estimate with a smooth metric")
    return [torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in zip(leaves, found)]


def _gradients_by_source(
    wiring: Wiring,
    metric: Metric,
    name: str,
    seen: list[int],
    reference: Outputs,
    method: str,
    steps: int,
) -> Callable[[Node], Gradients]:
    points = [(step + 0.5) / steps for step in range(steps)]

    @cache
    def averaged(source: Node) -> Gradients:
        delta = reference[source] - wiring.outputs[source]
        runs = [_gradients(wiring, metric, name, seen, (source, (1 - point) * delta)) for point in points]
        return {port: torch.stack([each[port] for each in runs]).mean(0) for port in runs[0]}

    if method == "eap":
        plain = _gradients(wiring, metric, name, seen, None)
        return lambda source: plain
    return averaged if method == "eap-ig-activations" else lambda source: averaged(START)


def _gradients(
    wiring: Wiring, metric: Metric, name: str, seen: list[int], added: tuple[Node, Tensor] | None
) -> Gradients:
    """The metric's gradient at what every port reads, with `added` to what one node writes."""
    heads = range(wiring.model.cfg.n_heads)
    leaves: dict[tuple[int, Port], Tensor] = {}
    stream: dict[str, Tensor] = {}
    last = f"blocks.{len(wiring.weights) - 1}.hook_resid_post"

    def leaf(key: tuple[int, Port], like: Tensor) -> Tensor:
        leaves[key] = torch.zeros_like(like).requires_grad_(True)
        return leaves[key]

    def add(value: Tensor, hook: Any) -> Tensor:
        assert added is not None
        return value + added[1]

    def keep(value: Tensor, hook: Any) -> None:
        stream[hook.name] = value

    def at_port(value: Tensor, hook: Any, *, layer: int, port: Port) -> Tensor:
        before = stream[f"blocks.{layer}.hook_resid_pre"].unsqueeze(2).expand(-1, -1, len(heads), -1)
        read = before + leaf((layer, port), before)
        return torch.stack([wiring.project(layer, port, head, read[:, :, head]) for head in heads], 2)

    def at_mlp(value: Tensor, hook: Any, *, layer: int) -> Tensor:
        before = stream[f"blocks.{layer}.hook_resid_mid"]
        return wiring.mlp(layer, before + leaf((layer, "mlp"), before))

    def at_end(value: Tensor, hook: Any) -> Tensor:
        return value + leaf((END.layer, "end"), value)

    hooks: list[tuple[str, Any]] = []
    if added is not None and added[0].kind == "start":
        hooks.append(("blocks.0.hook_resid_pre", add))
    for layer in range(len(wiring.weights)):
        hooks.append((f"blocks.{layer}.hook_resid_pre", keep))
        hooks += [(f"blocks.{layer}.attn.hook_{port}", partial(at_port, layer=layer, port=port)) for port in QKV]
        if added is not None and added[0].kind == "head" and added[0].layer == layer:
            hooks.append((f"blocks.{layer}.hook_attn_out", add))
        if Node("mlp", layer) in wiring.nodes:
            hooks.append((f"blocks.{layer}.hook_resid_mid", keep))
            hooks.append((f"blocks.{layer}.hook_mlp_out", partial(at_mlp, layer=layer)))
            if added is not None and added[0] == Node("mlp", layer):
                hooks.append((f"blocks.{layer}.hook_mlp_out", add))
    hooks.append((last, at_end))
    with torch.enable_grad():
        logits = run(wiring.model, wiring.inputs, hooks)[:, seen]
        keys = list(leaves)
        found = gradients_of(metric, name, logits, [leaves[key] for key in keys])
    gradients: dict[tuple[Node, Port], Tensor] = {}
    for (layer, port), gradient in zip(keys, found, strict=True):
        if port in QKV:
            gradients |= {(Node("head", layer, head), port): gradient[:, :, head] for head in heads}
        else:
            gradients[(END if port == "end" else Node("mlp", layer), port)] = gradient
    return gradients
