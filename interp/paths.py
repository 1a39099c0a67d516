"""Edge and path patching: what is lost when a node's output is replaced on its way to one reader, or along one path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, Edge, Node
from headlab.interp.cuts import run_edge_sets
from headlab.interp.edge_cone import EdgeCone
from headlab.interp.edges import EdgeTable, SingleEdges
from headlab.interp.engines import Unsupported
from headlab.interp.engines.support import reader_hooks
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import BatchedMetric, Metric, metric_name, performance
from headlab.interp.model import HookedModel, Inputs, Mask
from headlab.interp.wiring import Outputs, Wiring, reference_outputs, untouched_and_ungrouped, wire

Ranking = Literal["absolute", "signed"]
Engine = Literal["auto", "cone", "expand"]

CHUNK = 2_000_000  # numbers in the largest activation of one pass: 8 to 16 MB


@dataclass(frozen=True, eq=False)
class EdgeEffects:
    """Performance lost per set of edges and example; higher = more important.

    effect = baseline - ablated, in the metric's own units. sets: the edges whose carried value was replaced together;
    single edges are sets of one. intervention: what was put there, in words; reference: the data it was taken over
    (None for `zero`). method: `exact`, or the name of an estimate, which then may hold the exact effects beside it.
    engine: `cone`, `expand` (which runs the model) or `gradient`. notes: what was decided on the way.
    warning: what a reader must know of these figures.
    """

    sets: Sequence[tuple[Edge, ...]]
    effect: Float[Tensor, "set example"]
    baseline: Float[Tensor, " example"]
    kind: str
    intervention: str
    reference: Tensor | None
    metric: str
    method: str
    engine: str
    device: str
    warning: str | None = None
    exact: Float[Tensor, "set example"] | None = None
    notes: tuple[str, ...] = ()

    @property
    def edges(self) -> Sequence[Edge]:
        """The edges, where every set is a single one: a table, or a tuple. Raises RequestError where one is not."""
        if isinstance(self.sets, SingleEdges):
            return self.sets.table
        if any(len(each) != 1 for each in self.sets):
            raise RequestError("these effects are of sets of edges, not of single ones: read `sets`")
        return tuple(edge for (edge,) in self.sets)

    def scores(self, ranking: Ranking | str = "absolute") -> Float[Tensor, " set"]:
        """One importance per set: the mean over examples of |effect| (`absolute`), or of the effect (`signed`)."""
        if ranking not in ("absolute", "signed"):
            raise UnknownName(f"unknown ranking '{ranking}': choose absolute or signed")
        return (self.effect.abs() if ranking == "absolute" else self.effect).mean(1)

    def weights(self, ranking: Ranking | str = "absolute") -> dict[Edge, float]:
        """edge -> importance, in the order of `edges`."""
        return dict(zip(self.edges, self.scores(ranking).tolist(), strict=True))

    def to_frame(self) -> pd.DataFrame:
        """One row per set and example: edges, source, destination, port and position (None for a set of several),
        example, baseline, effect, kind, method, metric; `exact` beside an estimate that was checked."""
        sets, examples = self.effect.shape
        row = np.repeat(np.arange(sets), examples)
        single = [each[0] if len(each) == 1 else None for each in self.sets]
        frame = pd.DataFrame(
            {
                "edges": [", ".join(map(str, self.sets[int(i)])) for i in row],
                "source": [str(edge.source) if (edge := single[i]) else None for i in row],
                "destination": [str(edge.destination) if (edge := single[i]) else None for i in row],
                "port": [edge.port if (edge := single[i]) else None for i in row],
                "position": [edge.position if (edge := single[i]) else None for i in row],
                "example": np.tile(np.arange(examples), sets),
                "baseline": np.tile(self.baseline.cpu().numpy(), sets),
                "effect": self.effect.cpu().numpy().reshape(-1),
                "kind": self.kind,
                "method": self.method,
                "metric": self.metric,
            }
        )
        return frame if self.exact is None else frame.assign(exact=self.exact.cpu().numpy().reshape(-1))


def patch_edges(
    model: HookedModel,
    inputs: Inputs,
    metric: Metric,
    intervention: Intervention,
    *,
    edges: Collection[Edge] | None = None,
    cut: Collection[Edge] = (),
    read: Sequence[int] | None = None,
    engine: Engine | str = "auto",
    attention_mask: Mask | None = None,
) -> EdgeEffects:
    """How much of `metric` is lost when one edge carries what `intervention` puts in the place of its source's output.

    Only that edge's reader sees the replacement; whatever the reader then writes flows on to all that read it.

    Args:
        model: The model. Shared keys and values are given to each head for the run.
        inputs: What it reads, first axis `example`.
        metric: Logits [example, read, vocabulary] -> [example], higher is better.
        intervention: What is put in the place of a source's output.
        edges: Default every edge at every position. One without a position is replaced at every position together.
        cut: Edges that are replaced in every run and in the baseline too, so that the effects are those in a model
            without them (what a backup does once the first is silent).
        read: The positions of the logits that the metric is given; default all.
        engine: `cone` computes what can change, and falls back to `expand`, which runs the model, where it does not
            know the architecture or edges are cut; `auto` is cone.
        attention_mask: 1 where a token counts, 0 where it is padding.

    Raises:
        UnknownName: For an edge that does not exist or an unknown engine.
        OutOfRange: For a position that does not exist.
        RequestError: For a model or a metric that does not fit, and for missing reference data.
    """
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs, attention_mask)
        chosen = wiring.edges(end=read) if edges is None else EdgeTable.of(edges)
        return exact_effects(wiring, SingleEdges(chosen), metric, intervention, cut, read, engine)


def patch_edge_sets(
    model: HookedModel,
    inputs: Inputs,
    metric: Metric,
    intervention: Intervention,
    sets: Sequence[Collection[Edge]],
    *,
    cut: Collection[Edge] = (),
    read: Sequence[int] | None = None,
    attention_mask: Mask | None = None,
) -> EdgeEffects:
    """How much of `metric` is lost when all edges of a set are replaced together, for each of `sets`.

    An edge cut above a source changes what that source writes on its other edges, as in the model itself. Arguments and
    errors as for `patch_edges`.
    """
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs, attention_mask)
        return exact_effects(wiring, [tuple(each) for each in sets], metric, intervention, cut, read, "expand")


def exact_effects(
    wiring: Wiring,
    sets: Sequence[tuple[Edge, ...]],
    metric: Metric,
    intervention: Intervention,
    cut: Collection[Edge],
    read: Sequence[int] | None,
    engine: Engine | str = "auto",
) -> EdgeEffects:
    """`patch_edge_sets` on a model that is wired already; call it inside `untouched_and_ungrouped`."""
    if engine not in ("auto", "cone", "expand"):
        raise UnknownName(f"unknown engine '{engine}': choose auto, cone or expand")
    wiring.check([*cut, *(edge for each in sets for edge in each)], whole=True)
    name, notes = metric_name(metric), []
    seen = list(wiring.positions_of(read))
    labels, sets = sets, [wiring.expanded(each, seen) for each in sets]
    cut = wiring.expanded(cut, seen)
    reference = reference_outputs(wiring, intervention)
    batched = BatchedMetric(metric, name)
    logits = run_edge_sets(wiring, [cut], reference)[0][0] if cut else wiring.logits
    baseline = performance(metric, logits[:, seen], name)
    effect = baseline.new_zeros(len(sets), len(baseline))
    acting = [i for i, each in enumerate(sets) if any(wiring.acts(edge, seen) for edge in each)]
    cone: EdgeCone | None = None
    if engine != "expand" and not cut and all(len(each) == 1 for each in sets):
        try:
            cone = EdgeCone(wiring, seen, reference)
        except Unsupported as reason:
            notes.append(f"the cone does not model {reason}: the model itself was run (expand)")
    if cone is not None:
        edges = [each[0] for each in sets]
        changed = {node: (reference[node] != wiring.outputs[node]).any(-1).T for node in wiring.nodes}
        moved = [i for i in acting if bool(changed[edges[i].source][edges[i].position].any())]
        for rows, logits in _gathered(cone.sweep(edges, moved)):
            differs = torch.stack([changed[edges[row].source][edges[row].position] for row in rows])
            effect[rows] = torch.where(differs, baseline - batched(logits), effect[rows])
    else:
        for rows in chunks(wiring, acting):
            logits = run_edge_sets(wiring, [{*sets[i], *cut} for i in rows], reference)[0]
            effect[rows] = baseline - batched(logits[:, :, seen])
    if batched.looped is not None:
        notes.append(f"metric '{name}' was looped over runs ({batched.looped})")
    warning = None
    if len(sets) and not effect.any():
        warning = f"every effect of {intervention.kind} is exactly 0: these edges reach nothing that '{name}' reads"
    return EdgeEffects(
        sets=labels if isinstance(labels, SingleEdges) else tuple(labels),
        effect=effect,
        baseline=baseline,
        kind=intervention.kind,
        intervention=str(intervention),
        reference=intervention.reference,
        metric=name,
        method="exact",
        engine="expand" if cone is None else "cone",
        device=str(effect.device),
        warning=warning,
        notes=tuple(notes),
    )


def _gathered(parts: Iterable[tuple[list[int], Tensor]]) -> Iterator[tuple[list[int], Tensor]]:
    """Small chunks of logits joined, so that the metric runs once for many of them."""
    rows: list[int] = []
    waiting: list[Tensor] = []
    size = 0
    for more, logits in parts:
        rows, waiting, size = rows + more, [*waiting, logits], size + logits.numel()
        if size > CHUNK:
            yield rows, torch.cat(waiting)
            rows, waiting, size = [], [], 0
    if rows:
        yield rows, torch.cat(waiting)


def chunks(wiring: Wiring, rows: Sequence[int]) -> Iterable[list[int]]:
    """`rows` in runs that keep one pass's largest activation to about CHUNK numbers; one by one where the model carries
    a reader's own hooks, which may count on the batch that they know."""
    cfg, (examples, positions, vocabulary) = wiring.model.cfg, wiring.logits.shape
    largest = examples * positions * max(vocabulary, 4 * cfg.d_model, cfg.n_heads * positions)
    size = 1 if reader_hooks(wiring.model) else max(1, CHUNK // largest)
    return (list(rows[start : start + size]) for start in range(0, len(rows), size))


@dataclass(frozen=True, eq=False)
class PathEffect:
    """Performance lost when one path carries replaced values and every other path those of the run itself.

    hops: the edges of each step. Other fields as for `EdgeEffects`.
    """

    hops: tuple[tuple[Edge, ...], ...]
    effect: Float[Tensor, " example"]
    baseline: Float[Tensor, " example"]
    kind: str
    intervention: str
    reference: Tensor | None
    metric: str
    device: str

    def to_frame(self) -> pd.DataFrame:
        """One row per example: path, example, baseline, effect, kind, metric."""
        nodes = [hop[0].source for hop in self.hops] + [END]
        return pd.DataFrame(
            {
                "path": " -> ".join(map(str, nodes)),
                "example": range(len(self.effect)),
                "baseline": self.baseline.cpu().numpy(),
                "effect": self.effect.cpu().numpy(),
                "kind": self.kind,
                "metric": self.metric,
            }
        )


def patch_path(
    model: HookedModel,
    inputs: Inputs,
    metric: Metric,
    intervention: Intervention,
    path: Sequence[Node | Collection[Edge]],
    *,
    read: Sequence[int] | None = None,
    attention_mask: Mask | None = None,
) -> PathEffect:
    """How much of `metric` is lost when the replaced output of the first node travels along `path` to the end only.

    path: nodes from the first to END, every port and position of each being reached; or for each hop the edges that
    carry it. Each node on the way is computed anew from its changed input, everything else it reads being as in the
    run (Goldowsky-Dill et al. 2023). Other arguments as for `patch_edges`.

    Raises ValueError for a path that does not end in END or whose hops do not join, and what `patch_edges` raises.
    """
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs, attention_mask)
        hops = _hops(wiring, path)
        wiring.check(edge for hop in hops for edge in hop)
        name, seen = metric_name(metric), list(wiring.positions_of(read))
        baseline = performance(metric, wiring.logits[:, seen], name)
        carried: Outputs = reference_outputs(wiring, intervention)
        logits = wiring.logits
        for hop in hops:
            node = hop[0].destination
            found, live = run_edge_sets(wiring, [hop], carried, keep=() if node == END else (node,))
            carried = {node: value[0] for node, value in live.items()}
            logits = found[0]
        return PathEffect(
            hops=hops,
            effect=baseline - performance(metric, logits[:, seen], name),
            baseline=baseline,
            kind=intervention.kind,
            intervention=str(intervention),
            reference=intervention.reference,
            metric=name,
            device=str(baseline.device),
        )


def _hops(wiring: Wiring, path: Sequence[Node | Collection[Edge]]) -> tuple[tuple[Edge, ...], ...]:
    if len(path) and all(isinstance(step, Node) for step in path):
        nodes = cast("Sequence[Node]", path)
        every = wiring.edges()
        joined = list(pairwise(nodes))
        hops = [tuple(edge for edge in every if (edge.source, edge.destination) == pair) for pair in joined]
        for (source, destination), hop in zip(joined, hops, strict=True):
            if not hop:
                raise RequestError(
                    f"nothing that {source} writes is read by {destination}: a path goes forward to the end"
                )
    elif any(isinstance(step, Node) for step in path):
        raise RequestError("a path is a list of nodes or a list of edge collections, not of both")
    else:
        hops = [tuple(cast("Collection[Edge]", step)) for step in path]
    if not hops or not all(hops) or hops[-1][0].destination != END:
        raise RequestError("a path needs a hop for every step and ends in END")
    for hop in hops:
        if len({(edge.source, edge.destination) for edge in hop}) != 1:
            raise RequestError("the edges of one hop must join the same two nodes")
    for before, after in pairwise(hops):
        if before[0].destination != after[0].source:
            raise RequestError(f"the path breaks: {before[0].destination} is not {after[0].source}")
    return tuple(hops)
