"""Gradient estimates of what edges carry: EAP and EAP-IG, one backward pass where patching needs a run per edge.

They are first-order: where softmax is saturated its gradient is next to nothing, and so is the estimate of an edge into
q or k, however large the true effect is. Results say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headlab.interp.circuits import START, Edge, Node
from headlab.interp.edges import QKV, EdgeTable, Reader, SingleEdges
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric, metric_name, performance
from headlab.interp.model import HookedModel, Inputs, Mask, activations, model_inputs, run, untouched, visible_keys
from headlab.interp.paths import EdgeEffects, exact_effects
from headlab.interp.wiring import (
    Outputs,
    Wiring,
    hook_of,
    hooks_of,
    into,
    reference_outputs,
    untouched_and_ungrouped,
    wiring_of,
)

Method = Literal["eap", "eap-ig-inputs", "eap-ig-activations"]
SATURATED = 0.02


def estimate_edges(
    model: HookedModel,
    inputs: Inputs,
    metric: Metric,
    intervention: Intervention,
    *,
    method: Method | str = "eap",
    steps: int = 5,
    edges: Collection[Edge] | None = None,
    read: Sequence[int] | None = None,
    exact: bool = False,
    attention_mask: Mask | None = None,
) -> EdgeEffects:
    """What `patch_edges` measures, estimated from gradients of the metric at the readers' inputs.

    An edge's estimate is (reference - own output of its source) times minus the gradient of the metric there; the
    estimate of an edge without a position is the sum over positions.

    Args:
        model: The model.
        inputs: What it reads, first axis `example`.
        metric: Logits [example, read, vocabulary] -> [example], with a gradient; higher is better.
        intervention: What is put in the place of a source's output.
        method: `eap`, the gradient of the run itself (Syed et al. 2023); `eap-ig-inputs`, its mean over runs whose
            embeddings lie between the reference's and their own (Hanna et al. 2024); `eap-ig-activations`, over runs in
            which the edge's source alone is so interpolated.
        steps: How many such runs, at the midpoints of equal parts.
        edges: Default every edge at every position; `headlab.interp.edges.edges(model)` has them without positions.
        read: The positions of the logits that the metric is given; default all.
        exact: Whether to patch each edge too, into the result's `exact`.
        attention_mask: 1 where a token counts, 0 where it is padding.

    Returns:
        The effects, one row an edge. Their warning names the heads whose softmax is saturated where the metric reads.

    Raises:
        UnknownName: For an edge that does not exist or an unknown method.
        OutOfRange: For a position that does not exist.
        RequestError: For fewer than one step, a metric without a finite gradient, a model or intervention that does not
            fit.
    """
    if method not in get_args(Method):
        raise UnknownName(f"unknown method '{method}': choose one of {', '.join(get_args(Method))}")
    if steps < 1:
        raise RequestError(f"{steps} steps: integrated gradients need at least 1")
    name = metric_name(metric)
    with untouched_and_ungrouped(model):
        inputs = model_inputs(model, inputs)
        plain = _trace(model, inputs, attention_mask, None)
        cache = {hook: value.detach() for hook, value in plain.cache.items()}
        wiring = wiring_of(model, inputs, plain.logits.detach(), cache, attention_mask)
        chosen = wiring.edges(end=read) if edges is None else EdgeTable.of(dict.fromkeys(edges))
        if edges is not None:
            wiring.check(chosen, whole=True)
        seen = list(wiring.positions_of(read))
        baseline = performance(metric, wiring.logits[:, seen], name)
        reference = reference_outputs(wiring, intervention)
        rows = metric_rows(metric, wiring.logits, seen)
        shares = _saturated(model, plain.cache, rows)
        effect = baseline.new_zeros(len(chosen), len(baseline))
        points = [(step + 0.5) / steps for step in range(steps)]
        parts = _Parts(wiring, chosen, reference, seen)
        if method == "eap":
            parts.add(effect, plain, metric, name, 1.0)
        elif method == "eap-ig-inputs":
            for point in points:
                delta = (1 - point) * (reference[START] - wiring.outputs[START])
                parts.add(effect, _trace(model, inputs, attention_mask, (START, delta)), metric, name, 1 / steps)
        else:
            for source in parts.sources:
                for point in points:
                    delta = (1 - point) * (reference[source] - wiring.outputs[source])
                    shifted = _trace(model, inputs, attention_mask, (source, delta))
                    parts.add(effect, shifted, metric, name, 1 / steps, only=source)
        found = EdgeEffects(
            sets=SingleEdges(chosen),
            effect=effect,
            baseline=baseline,
            kind=intervention.kind,
            intervention=str(intervention),
            reference=intervention.reference,
            metric=name,
            method=method if method == "eap" else f"{method}, {steps} steps",
            engine="gradient",
            device=str(effect.device),
            warning=saturation_warning(shares),
        )
        if not exact:
            return found
        return replace(found, exact=exact_effects(wiring, found.sets, metric, intervention, (), read).effect)


def saturation(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    rows: Bool[Tensor, "example position"] | None = None,
    *,
    attention_mask: Mask | None = None,
) -> Float[Tensor, "layer head"]:
    """In which share of the examples each head's softmax has next to no gradient, at the query where it is largest.

    A row of attention A counts as saturated where 1 - sum A^2, the trace of the softmax's Jacobian, is below .02; rows
    with a single visible key do not count.

    Args:
        model: The model.
        inputs: What it reads.
        rows: The queries that count, e.g. `metric_rows`; default all.
        attention_mask: 1 where a token counts, 0 where it is padding.
    """
    names = _pattern_hooks(model)
    with untouched(model):
        cache = activations(model, inputs, names, attention_mask=attention_mask)[1]
    return _saturated(model, cache, rows)


def _pattern_hooks(model: HookedModel) -> list[str]:
    return [
        f"blocks.{layer}.attn.hook_{part}" for layer in range(model.cfg.n_layers) for part in ("attn_scores", "pattern")
    ]


def _saturated(model: HookedModel, cache: Mapping[str, Tensor], rows: Tensor | None) -> Float[Tensor, "layer head"]:
    shares = []
    for layer in range(model.cfg.n_layers):
        scores, pattern = (cache[f"blocks.{layer}.attn.hook_{part}"].detach() for part in ("attn_scores", "pattern"))
        choice = visible_keys(model, scores, pattern).expand_as(pattern).sum(-1) > 1
        still = (1 - pattern.square().sum(-1) < SATURATED) & choice
        still = still if rows is None else still & rows[:, None]
        shares.append(still.to(torch.get_default_dtype()).mean(0).amax(-1))
    return torch.stack(shares)


def metric_rows(
    metric: Metric, logits: Float[Tensor, "example position vocabulary"], seen: Sequence[int]
) -> Bool[Tensor, "example position"]:
    """The positions whose logits move the metric of an example; all of `seen` for a metric without a gradient."""
    rows = torch.zeros(logits.shape[:2], dtype=torch.bool, device=logits.device)
    with torch.enable_grad():
        leaf = logits[:, list(seen)].detach().requires_grad_(True)
        value = metric(leaf)
        gradient = None
        if isinstance(value, Tensor) and value.requires_grad:
            (gradient,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
    rows[:, list(seen)] = True if gradient is None else (gradient != 0).any(-1)
    return rows


def saturation_warning(shares: Float[Tensor, "layer head"], *, above: float = 0.1) -> str | None:
    """One line on the heads saturated in more than that share of the examples; None where there is none."""
    heads = [
        f"{layer}.{head} ({float(shares[layer, head]):.0%})" for layer, head in (shares > above).nonzero().tolist()
    ]
    if not heads:
        return None
    more = f" and {len(heads) - 5} more" if len(heads) > 5 else ""
    return (
        f"softmax is saturated where the metric reads, in {', '.join(heads[:5])}{more} of examples: estimates into "
        "their q and k can be far too small"
    )


def gradients_of(metric: Metric, name: str, logits: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of the metric's sum over examples at each of `leaves`; 0 at a leaf that it does not depend on.

    Raises RequestError for a metric without a gradient, or with one that is not finite.
    """
    value = metric(logits)
    if not (isinstance(value, Tensor) and value.requires_grad):
        raise RequestError(f"metric '{name}' has no gradient (a count or a comparison): estimate with a smooth one")
    found = torch.autograd.grad(value.sum(), list(leaves), allow_unused=True)
    if any(gradient is not None and not torch.isfinite(gradient).all() for gradient in found):
        raise RequestError(f"the gradient of metric '{name}' is not finite: estimate with a smooth metric")
    return [torch.zeros_like(leaf) if gradient is None else gradient for leaf, gradient in zip(leaves, found)]


@dataclass(frozen=True, eq=False)
class _Trace:
    """One pass with its graph.

    cache: activations by hook name. ports: by hook name, what the metric's gradient is taken at; `mlp{layer}` is what
    that MLP is called with.
    """

    logits: Tensor
    cache: dict[str, Tensor]
    ports: dict[str, Tensor]


def _trace(
    model: HookedModel, inputs: Tensor, attention_mask: Mask | None, added: tuple[Node, Tensor] | None
) -> _Trace:
    """Run the model and keep what edges need, with `added` to what one node writes."""
    cache: dict[str, Tensor] = {}
    ports: dict[str, Tensor] = {}
    layers = int(model.cfg.n_layers)
    last = f"blocks.{layers - 1}.hook_resid_post"

    def keep(value: Tensor, hook: Any) -> None:
        cache[hook.name] = value

    def port(value: Tensor, hook: Any) -> Tensor:
        cache[hook.name] = ports[hook.name] = value
        return value  # what is returned goes on, a bridge's reshaped view too: the gradient passes through it

    def start(value: Tensor, hook: Any) -> Tensor:
        return value + torch.zeros_like(value).requires_grad_(True)  # a graph, also where no weight has a gradient

    def add(value: Tensor, hook: Any) -> Tensor:
        assert added is not None
        return value + added[1]

    def called(module: Any, arguments: tuple[Any, ...], options: dict[str, Any], *, layer: int) -> None:
        ports.setdefault(f"mlp{layer}", arguments[0] if arguments else next(iter(options.values())))

    hooks: list[tuple[str, Any]] = [("blocks.0.hook_resid_pre", start)]
    if added is not None:
        node = added[0]
        hooks.append((f"blocks.{node.layer}.hook_attn_out" if node.kind == "head" else hook_of(node), add))
    reads = {f"blocks.{layer}.attn.hook_{letter}" for layer in range(layers) for letter in QKV} | {last}
    hooks += [(name, port if name in reads else keep) for name in [*hooks_of(model), *_pattern_hooks(model)]]
    with torch.enable_grad(), ExitStack() as stack:
        if not model.cfg.attn_only:
            for layer, block in enumerate(model.blocks):  # type: ignore[attr-defined]
                handle = block.mlp.register_forward_pre_hook(partial(called, layer=layer), with_kwargs=True)
                stack.callback(handle.remove)
        logits = run(model, inputs, hooks, attention_mask=attention_mask)
    return _Trace(logits, cache, ports)


class _Parts:
    """The chosen edges by the layer of their readers, ready to be filled from a trace's gradients."""

    def __init__(self, wiring: Wiring, edges: EdgeTable, reference: Outputs, seen: Sequence[int]) -> None:
        self.wiring = wiring
        self.edges = edges
        self.seen = list(seen)
        used = np.bincount(edges.source, minlength=len(edges.nodes)) > 0
        self.sources = [node for node, there in zip(edges.nodes, used, strict=True) if there]
        self.row_of_source = used.cumsum() - 1
        if self.sources:
            deltas = [reference[node] - wiring.outputs[node] for node in self.sources]
            # One product of matrices for each example and position.
            self.delta: Float[Tensor, "example position source model"] = torch.stack(deltas, 2)
        last = len(wiring.weights)
        layer = np.array([last if port == "end" else node.layer for node, port in edges.readers], dtype=np.int64)
        of_edge = layer[edges.reader] if len(edges) else edges.reader
        self.rows = {at: (of_edge == at).nonzero()[0] for at in sorted(set(layer.tolist()))}
        self.readers = {at: [r for r in range(len(edges.readers)) if layer[r] == at] for at in self.rows}

    def add(
        self, effect: Tensor, trace: _Trace, metric: Metric, name: str, weight: float, only: Node | None = None
    ) -> None:
        """Subtract weight x delta x gradient from the rows of `effect` (of one source's edges alone, with `only`)."""
        if not len(self.edges):
            return
        names = list(trace.ports)
        with torch.enable_grad():
            found = gradients_of(metric, name, trace.logits[:, self.seen], [trace.ports[key] for key in names])
        gradients = dict(zip(names, found, strict=True))
        for layer, rows in self.rows.items():
            if only is not None:
                rows = rows[self.row_of_source[self.edges.source[rows]] == self.sources.index(only)]
            if not len(rows):
                continue
            at = torch.stack(list(self._port_gradients(layer, trace, gradients)), 2)
            inner = self.delta.to(at) @ at.mT  # [example, position, source, reader]
            source = torch.from_numpy(self.row_of_source[self.edges.source[rows]])
            local = {reader: number for number, reader in enumerate(self.readers[layer])}
            reader = torch.from_numpy(
                np.vectorize(local.get, otypes=[np.int64])(np.arange(len(self.edges.readers)), -1)
            )
            reader = reader[torch.from_numpy(self.edges.reader[rows])]
            if self.edges.whole:
                inner = inner[:, self.seen] if layer == len(self.wiring.weights) else inner
                values = inner.sum(1)[:, source, reader]
            else:
                values = inner[:, torch.from_numpy(self.edges.position[rows]), source, reader]
            effect[torch.from_numpy(rows)] -= weight * values.T.to(effect)

    def _port_gradients(
        self, layer: int, trace: _Trace, gradients: Mapping[str, Tensor]
    ) -> Iterator[Float[Tensor, "example position model"]]:
        """The gradient in the residual stream that each reader of the layer reads, in the order of `readers`."""
        if layer == len(self.wiring.weights):
            yield gradients[f"blocks.{layer - 1}.hook_resid_post"]
            return
        readers = [self.edges.readers[row] for row in self.readers[layer]]
        found: dict[Reader, Tensor] = {}
        for letter in QKV:
            heads = [node.head for node, port in readers if port == letter]
            if heads:
                behind = gradients[f"blocks.{layer}.attn.hook_{letter}"][:, :, heads]
                weight = into(self.wiring.weights[layer], letter)[0][heads]
                pulled = self._through_norm(layer, letter, trace, torch.einsum("ephd,hmd->ephm", behind, weight))
                found |= {(Node("head", layer, head), letter): pulled[:, :, row] for row, head in enumerate(heads)}
        if any(port == "mlp" for _, port in readers):
            behind = gradients[f"mlp{layer}"].unsqueeze(2)
            found[Node("mlp", layer), "mlp"] = self._through_norm(layer, "mlp", trace, behind)[:, :, 0]
        yield from (found[reader] for reader in readers)

    def _through_norm(
        self, layer: int, port: Any, trace: _Trace, behind: Float[Tensor, "example position reader model"]
    ) -> Float[Tensor, "example position reader model"]:
        norm = self.wiring.norms[layer][port == "mlp"]
        if norm is None:
            return behind
        rows = trace.cache[self.wiring.stream(layer, port)].detach().unsqueeze(2)
        return norm.pulled_back(behind, rows)
