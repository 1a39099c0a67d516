"""Single edges through the cone engine: what a node would write makes new queries, keys, values and MLP outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import Edge, Node, Port
from headlab.interp.engines import Cells, Cone
from headlab.interp.engines.entry import ConeSweep, hooks_for
from headlab.interp.engines.support import require_supported
from headlab.interp.model import activations
from headlab.interp.sites import Grid, grid, hook_name
from headlab.interp.wiring import Outputs, Wiring

COMPONENT: dict[Port, str] = {"q": "q", "k": "k", "v": "v", "mlp": "mlp_out", "end": "resid_post"}


class EdgeCone:
    """Logits of runs in which one edge carries replaced values, computed on what can change.

    An edge into a port at a position is a site there whose new value is computed from the residual stream with its
    source's output replaced; the cone does the rest.
    """

    def __init__(self, wiring: Wiring, read: Sequence[int], reference: Outputs) -> None:
        """Raises `headlab.interp.engines.Unsupported` where the cone does not model the architecture."""
        require_supported(wiring.model)
        self.wiring = wiring
        self.reference = reference
        self.layers = len(wiring.weights)
        every, last = tuple(range(self.layers)), (self.layers - 1,)
        ports: tuple[Port, ...] = ("q", "k", "v", "end") if wiring.model.cfg.attn_only else tuple(COMPONENT)
        self.grids: dict[Port, Grid] = {}
        names: list[str] = []
        for port in ports:
            layers = last if port == "end" else every
            names += hooks_for(wiring.model, COMPONENT[port], layers)
            self.grids[port] = grid(wiring.model, COMPONENT[port], position_count=wiring.positions, layers=layers)
        hooks = list(dict.fromkeys(names))
        logits, self.old = activations(wiring.model, wiring.inputs, hooks, attention_mask=wiring.attention_mask)
        self.cone = Cone(wiring.model, read, logits[:, list(read)], self.old, first=0)

    def sweep(self, edges: Sequence[Edge], rows: Sequence[int]) -> Iterator[tuple[list[int], Tensor]]:
        """For `rows` of `edges`, in chunks: the rows, and their logits [row, example, read, vocabulary]."""
        groups: dict[tuple[Port, int, Node], list[int]] = defaultdict(list)
        for row in rows:
            edge = edges[row]
            layer = self.layers - 1 if edge.port == "end" else edge.destination.layer
            groups[(edge.port, layer, edge.source)].append(row)
        for (port, layer, source), members in groups.items():
            name = hook_name(COMPONENT[port], layer)
            cells = Cells(self.grids[port], self.old, {name: self._new(port, layer, source)})
            head = [max(edges[row].destination.head, 0) for row in members]
            cell = torch.tensor(head) * self.wiring.positions + torch.tensor([edges[row].position for row in members])
            row_of = dict(zip(cell.tolist(), members, strict=True))
            for chunk, logits in ConeSweep(self.cone, cells).sweep(layer, cell):
                yield [row_of[each] for each in chunk.tolist()], logits

    def _new(self, port: Port, layer: int, source: Node) -> Float[Tensor, "example position ..."]:
        """What the site holds where its port reads the replaced output of `source`, at every position."""
        delta = self.reference[source] - self.wiring.outputs[source]
        if port == "end":
            return self.old[hook_name("resid_post", layer)] + delta
        if port == "mlp":
            return self.wiring.mlp(layer, self.old[hook_name("resid_mid", layer)] + delta)
        return self.wiring.project_heads(layer, port, self.cone.held[layer].resid_pre + delta)
