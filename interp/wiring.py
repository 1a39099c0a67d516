"""A model as nodes that write to the residual stream and ports that read from it, edge by edge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import Edge, Node, Port
from headlab.interp.edges import QKV, EdgeTable, reaches, reader_name, readers_of, writers_of
from headlab.interp.errors import OutOfRange, RequestError, UnknownName
from headlab.interp.interventions import Intervention, replacement
from headlab.interp.model import HeadWeights, HookedModel, Mask, activations, head_weights, model_inputs, untouched
from headlab.interp.norms import Norm, norm_of, tolerance

Outputs = Mapping[Node, Float[Tensor, "example position model"]]


@contextmanager
def untouched_and_ungrouped(model: HookedModel) -> Iterator[None]:
    """`headlab.interp.model.untouched`, with every query head given keys and values of its own, as an edge needs them.

    A HookedTransformer repeats shared keys and values itself under `cfg.ungroup_grouped_query_attention`, which changes
    no number; it is as before afterwards. Raises RequestError for a bridge that shares them.
    """
    cfg = model.cfg
    shared = getattr(cfg, "n_key_value_heads", None)
    grouped = shared not in (None, cfg.n_heads) and not getattr(cfg, "ungroup_grouped_query_attention", False)
    if grouped and hasattr(model, "original_model"):
        raise RequestError(
            f"{cfg.n_heads} heads share {shared} keys and values, and a bridge cannot give each head its own, so no "
            "edge goes into one head's k or v: load the model as a HookedTransformer, or patch sites"
        )
    with untouched(model):
        try:
            if grouped:
                cfg.ungroup_grouped_query_attention = True
            yield
        finally:
            if grouped:
                cfg.ungroup_grouped_query_attention = False


@dataclass(frozen=True)
class Wiring:
    """What of `model` writes to and reads from the residual stream, on `inputs`.

    nodes: every node that writes, in the order of the model: start, then by layer its heads and its MLP.
    outputs: what each of them writes, unpatched. A head writes z W_O; the attention's bias b_O belongs to no node.
    norms: of each layer, before its heads and before its MLP; None where there is none. logits: the model's own.
    cache: the activations that these were read from. parallel: whether the MLP reads what the heads read.
    attention_mask: 1 where a token counts.
    """

    model: HookedModel
    inputs: Tensor
    nodes: tuple[Node, ...]
    outputs: Outputs
    weights: tuple[HeadWeights, ...]
    norms: tuple[tuple[Norm | None, Norm | None], ...]
    logits: Float[Tensor, "example position vocabulary"]
    cache: Mapping[str, Tensor]
    parallel: bool = False
    attention_mask: Mask | None = None

    @property
    def positions(self) -> int:
        """How many positions the model itself has; a task's embedding may append some to the inputs'."""
        return self.logits.shape[1]

    def edges(self, *, positions: Iterable[int] | None = None, end: Iterable[int] | None = None) -> EdgeTable:
        """Every edge, sorted; at `positions` only, into the end at the positions `end` only, where these are given.

        Raises OutOfRange for a position that does not exist.
        """
        inside = self.positions_of(positions)
        at_end = inside if end is None else self.positions_of(end)
        return EdgeTable.every(self.nodes, positions=inside, end=at_end, parallel=self.parallel)

    def expanded(self, edges: Iterable[Edge], end: Iterable[int]) -> tuple[Edge, ...]:
        """The edges, each one without a position as those at every position, into the end at the positions `end`."""
        everywhere, at_end = range(self.positions), sorted(end)
        found: list[Edge] = []
        for edge in edges:
            where = (everywhere if edge.port != "end" else at_end) if edge.position is None else (edge.position,)
            found += [Edge(edge.source, edge.destination, edge.port, at) for at in where]
        return tuple(found)

    def positions_of(self, positions: Iterable[int] | None) -> tuple[int, ...]:
        """`positions` counted from 0 (-1 is the last), or every one. OutOfRange for one that does not exist."""
        chosen = range(self.positions) if positions is None else tuple(positions)
        for position in chosen:
            if not -self.positions <= position < self.positions:
                raise OutOfRange(f"position {position} does not exist: the model has 0 to {self.positions - 1}")
        return tuple(position % self.positions for position in chosen)

    def acts(self, edge: Edge, read: Collection[int]) -> bool:
        """Whether anything can flow from where `edge` is read to a position of `read`."""
        if edge.port == "end":
            return edge.position in read
        causal = self.model.cfg.attention_dir == "causal"
        later = edge.port in ("k", "v") or edge.destination.layer + 1 < len(self.weights)
        return any(edge.position == to or (later and (not causal or cast("int", edge.position) < to)) for to in read)

    def check(self, edges: Iterable[Edge], *, whole: bool = False) -> None:
        """Raise UnknownName for an edge that this model does not have, saying what it lacks; OutOfRange for a position,
        and RequestError for an edge without one unless `whole`."""
        readers = set(readers_of(self.nodes))
        known = set(self.nodes)
        if isinstance(edges, EdgeTable):
            rows = edges if len(edges) < 2 else _representatives(edges)
        else:
            rows = edges
        for edge in rows:
            if edge.source not in known:
                raise UnknownName(f"no node '{edge.source}' writes here: there are {', '.join(map(str, self.nodes))}")
            reader = (edge.destination, edge.port)
            if reader not in readers or not reaches(edge.source, reader, parallel=self.parallel):
                of_source = [each for each in readers if reaches(edge.source, each, parallel=self.parallel)]
                names = ", ".join(sorted(map(reader_name, of_source)))
                raise UnknownName(f"there is no edge '{edge}': {edge.source} is read by {names}")
            if edge.position is None and not whole:
                raise RequestError(f"the edge '{edge}' has no position: give one edge for each position")
            if edge.position is not None and not 0 <= edge.position < self.positions:
                raise OutOfRange(f"the edge '{edge}' has no such position: the model has 0 to {self.positions - 1}")

    def project(
        self, layer: int, port: Port, head: int, residual: Float[Tensor, "... model"]
    ) -> Float[Tensor, "... d_head"]:
        """q, k or v of one head, from what that port reads of the residual stream."""
        matrix, bias = into(self.weights[layer], port)
        return self.normed(layer, port, residual) @ matrix[head] + bias[head]

    def project_heads(
        self, layer: int, port: Port, residual: Float[Tensor, "example position model"]
    ) -> Float[Tensor, "example position head d_head"]:
        """q, k or v of every head, from what that port reads of the residual stream."""
        matrix, bias = into(self.weights[layer], port)
        return einsum(self.normed(layer, port, residual), matrix, "e p m, h m d -> e p h d") + bias

    def mlp(self, layer: int, residual: Float[Tensor, "... model"]) -> Float[Tensor, "... model"]:
        """What the MLP of `layer` writes when it reads `residual`."""
        return cast("Any", self.model).blocks[layer].mlp(self.normed(layer, "mlp", residual))

    def normed(self, layer: int, port: Port, residual: Float[Tensor, "... model"]) -> Float[Tensor, "... model"]:
        """The residual stream behind the norm of a port."""
        norm = self.norms[layer][port == "mlp"]
        return residual if norm is None else norm(residual).to(residual.dtype)

    def stream(self, layer: int, port: Port) -> str:
        """The hook that holds the residual stream which a port of `layer` reads."""
        mid = port == "mlp" and not self.parallel
        return f"blocks.{layer}.hook_resid_{'post' if port == 'end' else 'mid' if mid else 'pre'}"


def _representatives(edges: EdgeTable) -> list[Edge]:
    """An edge of the table for each pair of source and reader, at the largest position, and one at the smallest."""
    key = edges.source * len(edges.readers) + edges.reader
    order = np.lexsort((edges.position, key))
    last = np.append(key[order][1:] != key[order][:-1], True)
    rows = [*order[last].tolist(), int(edges.position.argmin())]
    return [edges[row] for row in rows]


def into(weights: HeadWeights, port: Port) -> tuple[Float[Tensor, "head model d_head"], Float[Tensor, "head d_head"]]:
    """The matrix and the bias behind a port q, k or v."""
    return {
        "q": (weights.W_Q, weights.b_Q),
        "k": (weights.W_K, weights.b_K),
        "v": (weights.W_V, weights.b_V),
    }[port]


def hooks_of(model: HookedModel) -> list[str]:
    """The hooks that `wiring_of` reads."""
    names = []
    for layer in range(int(model.cfg.n_layers)):
        names += [f"blocks.{layer}.{name}" for name in ("hook_resid_pre", "hook_attn_out", "hook_resid_post")]
        names += [f"blocks.{layer}.attn.hook_{name}" for name in (*QKV, "z")]
        if not model.cfg.attn_only:
            names += [] if getattr(model.cfg, "parallel_attn_mlp", False) else [f"blocks.{layer}.hook_resid_mid"]
            names.append(f"blocks.{layer}.hook_mlp_out")
    return names


def wire(model: HookedModel, inputs: Any, attention_mask: Mask | None = None) -> Wiring:
    """The nodes of `model` and what they write on `inputs`, checked against the model's own activations.

    Call it inside `untouched_and_ungrouped`. Raises RequestError for a model whose residual stream holds more than
    embeddings, heads' z W_O and MLPs, or whose ports read it otherwise than through the norms before them.
    """
    inputs = model_inputs(model, inputs)
    logits, cache = activations(model, inputs, hooks_of(model), attention_mask=attention_mask)
    return wiring_of(model, inputs, logits, cache, attention_mask)


def wiring_of(
    model: HookedModel, inputs: Tensor, logits: Tensor, cache: Mapping[str, Tensor], attention_mask: Mask | None = None
) -> Wiring:
    """`wire` from the logits and the activations at `hooks_of(model)` of a run that has been made."""
    nodes = writers_of(model)
    layers = range(int(model.cfg.n_layers))
    weights = tuple(head_weights(model, layer) for layer in layers)
    blocks = cast("Any", model).blocks
    norms = tuple(
        (norm_of(model, getattr(block, "ln1", None)), norm_of(model, getattr(block, "ln2", None))) for block in blocks
    )
    wiring = Wiring(
        model=model,
        inputs=inputs,
        nodes=nodes,
        outputs={node: written(node, cache[hook_of(node)], weights) for node in nodes},
        weights=weights,
        norms=norms,
        logits=logits,
        cache=cache,
        parallel=bool(getattr(model.cfg, "parallel_attn_mlp", False)),
        attention_mask=attention_mask,
    )
    _check(wiring)
    return wiring


def reference_outputs(wiring: Wiring, intervention: Intervention) -> dict[Node, Tensor]:
    """What every node writes under `intervention`: [example, position, model] for each.

    All nodes share one draw. A head's output is z W_O, so its `zero` removes its own b_V and leaves the layer's b_O; an
    MLP's removes its bias too. Under an attention mask a `patch` run has the same mask.
    """
    names = {node: hook_of(node) for node in wiring.nodes}
    now = {name: wiring.cache[name] for name in dict.fromkeys(names.values())}
    mask = wiring.attention_mask
    if mask is None or intervention.kind == "zero":
        new = intervention.values(wiring.model, wiring.inputs, now)
    elif intervention.kind == "patch" and intervention.reference is not None:
        source = activations(wiring.model, intervention.reference, list(now), attention_mask=mask)[1]
        new = {name: replacement("patch", value, source[name]) for name, value in now.items()}
    else:
        raise RequestError(f"{intervention.kind} over padded examples is not defined for edges: use patch or zero")
    return {node: written(node, new[name], wiring.weights) for node, name in names.items()}


def hook_of(node: Node) -> str:
    """The hook that holds what a node writes; a head's z before W_O."""
    if node.kind == "start":
        return "blocks.0.hook_resid_pre"
    return f"blocks.{node.layer}.{'hook_mlp_out' if node.kind == 'mlp' else 'attn.hook_z'}"


def written(node: Node, value: Tensor, weights: Sequence[HeadWeights]) -> Float[Tensor, "example position model"]:
    """What `node` writes, from its hook's value: a head's z times its W_O, an MLP's output as it is."""
    return value[:, :, node.head] @ weights[node.layer].W_O[node.head] if node.kind == "head" else value


def _check(wiring: Wiring) -> None:
    """Compare ports and sums with the model's own activations, on at most two examples and four positions."""
    places = sorted({0, wiring.positions // 3, 2 * wiring.positions // 3, wiring.positions - 1})
    heads = range(wiring.model.cfg.n_heads)

    def some(value: Tensor) -> Tensor:
        return value[:2, places]

    def require(found: Tensor, expected: Tensor, what: str) -> None:
        allowed = tolerance(wiring.model, expected.dtype)
        if found.shape != expected.shape or not torch.allclose(
            found, expected, rtol=allowed, atol=allowed * (1.0 + float(expected.abs().max()))
        ):
            raise RequestError(f"{what}, which edge patching does not model: patch sites instead")

    for layer in range(len(wiring.weights)):
        stem = f"blocks.{layer}."
        before = some(wiring.cache[stem + "hook_resid_pre"])
        for port in QKV:
            found = wiring.project_heads(layer, port, before)
            require(
                found,
                some(wiring.cache[f"{stem}attn.hook_{port}"]),
                f"{port} of layer {layer} is not the projection of ln1",
            )
        attention = torch.stack([some(wiring.outputs[Node("head", layer, head)]) for head in heads]).sum(0)
        after = before + attention + wiring.weights[layer].b_O
        mlp = Node("mlp", layer)
        what = f"the attention output of layer {layer} is not z W_O (a norm or a factor stands behind the heads)"
        require(after - before, some(wiring.cache[stem + "hook_attn_out"]), what)
        if mlp in wiring.outputs:
            output = some(wiring.outputs[mlp])
            found = wiring.mlp(layer, some(wiring.cache[wiring.stream(layer, "mlp")]))
            require(found, output, f"the MLP of layer {layer} does not read the residual stream through ln2 alone")
            after = after + output
        what = f"something else writes to the residual stream in layer {layer}"
        require(after, some(wiring.cache[stem + "hook_resid_post"]), what)
