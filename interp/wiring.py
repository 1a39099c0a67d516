"""A model as nodes that write to the residual stream and ports that read from it, edge by edge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, START, Edge, Node, Port
from headlab.interp.errors import OutOfRange, RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.model import HeadWeights, HookedModel, activations, head_weights

QKV: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")
Outputs = Mapping[Node, Float[Tensor, "example position model"]]


@dataclass(frozen=True)
class Wiring:
    """What of `model` writes to and reads from the residual stream, on `inputs`.

    nodes: every node that writes, in the order of the model: start, then by layer its heads and its MLP.
    outputs: what each of them writes, unpatched. A head writes z W_O; the attention's bias b_O belongs to no node.
    logits: the model's own.
    """

    model: HookedModel
    inputs: Tensor
    nodes: tuple[Node, ...]
    outputs: Outputs
    weights: tuple[HeadWeights, ...]
    logits: Float[Tensor, "example position vocabulary"]

    @property
    def positions(self) -> int:
        """How many positions the model itself has; a task's embedding may append some to the inputs'."""
        return self.logits.shape[1]

    def edges(self, *, positions: Iterable[int] | None = None, end: Iterable[int] | None = None) -> tuple[Edge, ...]:
        """Every edge, sorted; at `positions` only, into the end at the positions `end` only, where these are given.

        Raises IndexError for a position that does not exist.
        """
        everywhere = self.positions_of(positions)
        return tuple(
            sorted(
                Edge(source, destination, port, position)
                for source in self.nodes
                for destination, port in ports_after(source, self.nodes)
                for position in (everywhere if port != "end" or end is None else self.positions_of(end))
            )
        )

    def positions_of(self, positions: Iterable[int] | None) -> tuple[int, ...]:
        """`positions` counted from 0 (-1 is the last), or every one. IndexError for one that does not exist."""
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
        return any(edge.position == to or (later and (not causal or edge.position < to)) for to in read)

    def check(self, edges: Iterable[Edge]) -> None:
        """Raise KeyError for an edge that this model does not have, saying what it lacks; IndexError for a position."""
        readers_of = {node: frozenset(ports_after(node, self.nodes)) for node in self.nodes}
        for edge in edges:
            if edge.source not in readers_of:
                raise UnknownName(f"no node '{edge.source}' writes here: there are {', '.join(map(str, self.nodes))}")
            known = readers_of[edge.source]
            if (edge.destination, edge.port) not in known:
                readers = sorted({f"{node}.{port}" if port in QKV else str(node) for node, port in known})
                raise UnknownName(f"there is no edge '{edge}': {edge.source} is read by {', '.join(readers)}")
            if not 0 <= edge.position < self.positions:
                raise OutOfRange(f"the edge '{edge}' has no such position: the model has 0 to {self.positions - 1}")

    def project(
        self, layer: int, port: Port, head: int, residual: Float[Tensor, "... model"]
    ) -> Float[Tensor, "... d_head"]:
        """q, k or v of one head, from what that port reads of the residual stream."""
        matrix, bias = into(self.weights[layer], port)
        return self.block(layer).ln1(residual) @ matrix[head] + bias[head]

    def project_heads(
        self, layer: int, port: Port, residual: Float[Tensor, "example position model"]
    ) -> Float[Tensor, "example position head d_head"]:
        """q, k or v of every head, from what that port reads of the residual stream."""
        read = self.block(layer).ln1(residual)
        matrix, bias = into(self.weights[layer], port)
        return einsum(read, matrix, "e p m, h m d -> e p h d") + bias

    def mlp(self, layer: int, residual: Float[Tensor, "... model"]) -> Float[Tensor, "... model"]:
        """What the MLP of `layer` writes when it reads `residual`."""
        block = self.block(layer)
        return block.mlp(block.ln2(residual))

    def block(self, layer: int) -> Any:
        """The model's block."""
        return cast("Any", self.model).blocks[layer]


def into(weights: HeadWeights, port: Port) -> tuple[Float[Tensor, "head model d_head"], Float[Tensor, "head d_head"]]:
    """The matrix and the bias behind a port q, k or v."""
    return {
        "q": (weights.W_Q, weights.b_Q),
        "k": (weights.W_K, weights.b_K),
        "v": (weights.W_V, weights.b_V),
    }[port]


def ports_after(source: Node, nodes: Sequence[Node]) -> tuple[tuple[Node, Port], ...]:
    """Where what `source` writes is read: (head, q|k|v), (mlp, mlp) and (end, end), in the order of the model."""
    readers: list[tuple[Node, Port]] = []
    for node in nodes:
        if node.kind == "head" and node.layer > source.layer:
            readers.extend((node, port) for port in QKV)
        if node.kind == "mlp" and (node.layer > source.layer or (node.layer == source.layer and source.kind == "head")):
            readers.append((node, "mlp"))
    return (*readers, (END, "end"))


def wire(model: HookedModel, inputs: Tensor) -> Wiring:
    """The nodes of `model` and what they write on `inputs`, checked against the model's own activations.

    Call it inside `headlab.interp.model.untouched`. Raises ValueError for a model whose residual stream holds more than
    embeddings, heads W_O and MLPs, whose ports read it otherwise than through ln1 and ln2, or whose heads share keys
    and values.
    """
    cfg = model.cfg
    shared = getattr(cfg, "n_key_value_heads", None)
    if shared not in (None, cfg.n_heads) and not getattr(cfg, "ungroup_grouped_query_attention", False):
        raise RequestError(
            f"{cfg.n_heads} heads share {shared} keys and values, so an edge into one head's k or v is not defined: "
            "set cfg.ungroup_grouped_query_attention = True"
        )
    layers, attn_only = cfg.n_layers, bool(cfg.attn_only)
    if getattr(cfg, "parallel_attn_mlp", False):
        raise RequestError("attention and MLP run in parallel here, which edge patching does not model: patch sites")
    nodes: list[Node] = [START]
    names = []
    for layer in range(layers):
        nodes += [Node("head", layer, head) for head in range(cfg.n_heads)]
        names += [f"blocks.{layer}.{name}" for name in ("hook_resid_pre", "hook_attn_out", "hook_resid_post")]
        names += [f"blocks.{layer}.attn.hook_{name}" for name in (*QKV, "z")]
        if not attn_only:
            nodes.append(Node("mlp", layer))
            names += [f"blocks.{layer}.hook_resid_mid", f"blocks.{layer}.hook_mlp_out"]
    logits, kept = activations(model, inputs, names)
    weights = tuple(head_weights(model, layer) for layer in range(layers))
    outputs = {node: written(node, kept[_hook_of(node)], weights) for node in nodes}
    wiring = Wiring(model, inputs, tuple(nodes), outputs, weights, logits)
    _check(wiring, kept)
    return wiring


def reference_outputs(wiring: Wiring, intervention: Intervention) -> dict[Node, Tensor]:
    """What every node writes under `intervention`: [example, position, model] for each.

    All nodes share one draw. A head's output is z W_O, so its `zero` removes its own b_V and leaves the layer's b_O; an
    MLP's removes its bias too.
    """
    names = {node: _hook_of(node) for node in wiring.nodes}
    now = activations(wiring.model, wiring.inputs, list(dict.fromkeys(names.values())))[1]
    new = intervention.values(wiring.model, wiring.inputs, now)
    return {node: written(node, new[name], wiring.weights) for node, name in names.items()}


def _hook_of(node: Node) -> str:
    if node.kind == "start":
        return "blocks.0.hook_resid_pre"
    return f"blocks.{node.layer}.{'hook_mlp_out' if node.kind == 'mlp' else 'attn.hook_z'}"


def written(node: Node, value: Tensor, weights: Sequence[HeadWeights]) -> Float[Tensor, "example position model"]:
    """What `node` writes, from its hook's value: a head's z times its W_O, an MLP's output as it is."""
    return value[:, :, node.head] @ weights[node.layer].W_O[node.head] if node.kind == "head" else value


def _check(wiring: Wiring, kept: Mapping[str, Tensor]) -> None:
    heads = range(wiring.model.cfg.n_heads)

    def require(found: Tensor, expected: Tensor, what: str) -> None:
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-4}.get(expected.dtype, 5e-2)
        if found.shape != expected.shape or not torch.allclose(
            found, expected, rtol=tolerance, atol=tolerance * (1.0 + float(expected.abs().max()))
        ):
            raise RequestError(f"{what}, which edge patching does not model: patch sites instead")

    for layer in range(len(wiring.weights)):
        stem = f"blocks.{layer}."
        before = kept[stem + "hook_resid_pre"]
        for port in QKV:
            found = wiring.project_heads(layer, port, before)
            require(found, kept[f"{stem}attn.hook_{port}"], f"{port} of layer {layer} is not the projection of ln1")
        attention = torch.stack([wiring.outputs[Node("head", layer, head)] for head in heads]).sum(0)
        after = before + attention + wiring.weights[layer].b_O
        mlp = Node("mlp", layer)
        require(after - before, kept[stem + "hook_attn_out"], f"the attention output of layer {layer} is not z W_O")
        if mlp in wiring.outputs:
            found = wiring.mlp(layer, kept[stem + "hook_resid_mid"])
            require(found, wiring.outputs[mlp], f"the MLP of layer {layer} does not read ln2 of the residual stream")
            after = after + wiring.outputs[mlp]
        require(after, kept[stem + "hook_resid_post"], f"something else writes to the residual stream in layer {layer}")
