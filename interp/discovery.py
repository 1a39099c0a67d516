"""Finding a circuit, greedily or by a threshold on edge effects, and how far what was found is from the whole model."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain

import pandas as pd
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from headlab.interp.circuits import END, Circuit, Edge, Node
from headlab.interp.cuts import run_edge_sets
from headlab.interp.errors import RequestError
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric, metric_name, performance
from headlab.interp.model import HookedModel
from headlab.interp.paths import EdgeEffects, Ranking, chunks
from headlab.interp.wiring import Outputs, Wiring, reference_outputs, untouched_and_ungrouped, wire


@dataclass(frozen=True, eq=False)
class Fidelity:
    """The performance of four models: whole, the circuit alone, the circuit taken out, and every edge replaced.

    distance: the mean over examples of |circuit - whole|, in the metric's units; exactly 0 for the full circuit.
    faithfulness: (circuit - empty) / (whole - empty) of the means: 1 where the circuit does all that the model does.
    left: (complement - empty) / (whole - empty): what survives without the circuit, 0 for a complete one. Both are None
    where replacing everything changes nothing on average.
    """

    whole: Float[Tensor, " example"]
    circuit: Float[Tensor, " example"]
    complement: Float[Tensor, " example"]
    empty: Float[Tensor, " example"]
    metric: str
    ablation: str
    reference: str

    @property
    def distance(self) -> float:
        """Mean |circuit - whole|."""
        return float((self.circuit - self.whole).abs().mean())

    @property
    def distance_faithfulness(self) -> float | None:
        """1 - mean |circuit - whole| / mean |empty - whole|, example by example: 1 for the model itself, 0 for what is
        as far from it as nothing, negative for what is farther. Unlike `faithfulness` it cannot be raised by
        overshooting, and exists where the means of whole and empty agree; None where every example's agree."""
        far = float((self.empty - self.whole).abs().mean())
        return None if far < 1e-9 * max(1.0, float(self.whole.abs().max())) else 1 - self.distance / far

    @property
    def faithfulness(self) -> float | None:
        """The share of the model's performance that the circuit alone has."""
        return self._share(self.circuit)

    @property
    def left(self) -> float | None:
        """The share of the model's performance that is left when the circuit is taken out."""
        return self._share(self.complement)

    def _share(self, part: Tensor) -> float | None:
        gap = float(self.whole.mean() - self.empty.mean())
        tiny = 1e-6 * max(1.0, float(self.whole.abs().max()))
        return None if abs(gap) < tiny else float(part.mean() - self.empty.mean()) / gap

    def to_frame(self) -> pd.DataFrame:
        """One row per example: whole, circuit, complement, empty."""
        parts = {name: getattr(self, name).cpu().numpy() for name in ("whole", "circuit", "complement", "empty")}
        return pd.DataFrame({"example": range(len(self.whole)), **parts, "metric": self.metric})


def fidelity(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    metric: Metric,
    intervention: Intervention,
    circuit: Circuit | Collection[Edge],
    *,
    read: Sequence[int] | None = None,
) -> Fidelity:
    """Run the circuit alone: every edge outside it carries what `intervention` puts there, all of them together.

    Edges into the end at positions that are not read count neither way. Arguments and errors as for
    `headlab.interp.paths.patch_edges`.
    """
    kept = circuit.edges if isinstance(circuit, Circuit) else frozenset(circuit)
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs)
        wiring.check(kept)
        every = frozenset(wiring.edges(end=read))
        measure = _measure(wiring, metric, reference_outputs(wiring, intervention), read)
        whole, alone, without, empty = measure([frozenset(), every - kept, kept & every, every])
    return Fidelity(whole, alone, without, empty, metric_name(metric), intervention.kind, str(intervention))


@dataclass(frozen=True, eq=False)
class Discovery:
    """A circuit and how it was reached.

    trace: one row per edge that was tried, in order: edge, distance of the model without it (and without all that was
    removed before), kept. distance: of the circuit, as in `Fidelity`.
    """

    circuit: Circuit
    trace: pd.DataFrame
    distance: float
    tolerance: float


def greedy_circuit(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    metric: Metric,
    intervention: Intervention,
    *,
    tolerance: float,
    edges: Collection[Edge] | None = None,
    read: Sequence[int] | None = None,
) -> Discovery:
    """Remove edges one after the other, from the end to the start, wherever the model then moves less than `tolerance`.

    An edge goes for good when the distance to the whole model (mean |difference| of the metric) grows by less than
    `tolerance`, in the metric's units (Conmy et al. 2023, whose distance is a divergence). Edges into a node that
    nothing reads any more go without a run. A kept edge's weight is how much the distance grew. edges: which may be
    removed, default all. Other arguments and errors as for `interp.paths.patch_edges`; ValueError too for a tolerance
    that is not positive.

    It keeps one of two edges that back each other up; which one depends on the order. `interp.interactions` finds both.
    """
    if not tolerance > 0:
        raise RequestError(f"the tolerance is {tolerance}: it must be positive, in the metric's units")
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs)
        every = wiring.edges(end=read)
        candidates = every if edges is None else tuple(dict.fromkeys(edges))
        wiring.check(candidates)
        measure = _measure(wiring, metric, reference_outputs(wiring, intervention), read)
        whole = measure([frozenset()])[0]
        kept, removed, weights = dict.fromkeys(every), dict[Edge, None](), dict[Edge, float]()
        current, rows = 0.0, []
        queue = deque(sorted(candidates, key=lambda edge: _depth(wiring, edge), reverse=True))
        into = defaultdict[Node, list[Edge]](list)  # the candidates by reader, which go when nothing reads it any more
        for edge in queue:
            into[edge.destination].append(edge)
        readers = Counter(edge.source for edge in every)
        dead = [edge for node, edges in into.items() if node != END and not readers[node] for edge in edges]
        at_once = 1

        def remove(edge: Edge) -> None:
            del kept[edge]
            removed[edge] = None
            readers[edge.source] -= 1
            if not readers[edge.source]:
                dead.extend(into[edge.source])

        while queue:
            while dead:
                edge = dead.pop()
                if edge in kept and edge not in weights:
                    remove(edge)
                    rows.append({"edge": str(edge), "distance": current, "kept": False})
            tried = []
            while queue and len(tried) < at_once:
                edge = queue.popleft()
                if edge in kept:
                    tried.append(edge)
            # All of these are tried as if those before them had gone: as far as that holds, one pass does many steps.
            ablated = [frozenset(chain(removed, tried[: number + 1])) for number in range(len(tried))]
            distances = [float((part - whole).abs().mean()) for part in (measure(ablated) if ablated else ())]
            at_once = min(2 * at_once, 64)
            for number, (edge, distance) in enumerate(zip(tried, distances, strict=True)):
                stays = distance - current >= tolerance
                rows.append({"edge": str(edge), "distance": distance, "kept": stays})
                if stays:
                    weights[edge] = distance - current
                    at_once = 1
                    queue.extendleft(reversed(tried[number + 1 :]))
                    break
                remove(edge)
                current = distance
    circuit = Circuit(
        frozenset(kept),
        intervention.kind,
        weights=weights,
        reference=str(intervention),
        ranking=f"greedy from the end, kept where the distance grows by {tolerance:g} or more",
    )
    return Discovery(circuit, pd.DataFrame(rows, columns=["edge", "distance", "kept"]), current, tolerance)


def threshold_circuit(
    effects: EdgeEffects, *, above: float | None = None, count: int | None = None, ranking: Ranking | str = "absolute"
) -> Circuit:
    """The edges whose score is larger than `above`, or the `count` with the largest scores; weights are the scores.

    Raises ValueError unless exactly one of the two is given, and for a count outside 0 to the number of edges.
    """
    if (above is None) == (count is None):
        raise RequestError("give either `above`, a smallest score, or `count`, a number of edges")
    weights = effects.weights(ranking)
    order = sorted(weights, key=lambda edge: (-weights[edge], edge))
    if count is not None:
        if not 0 <= count <= len(order):
            raise RequestError(f"count is {count}: there are {len(order)} edges")
        chosen, rule = order[:count], f"the {count} largest {ranking} effects"
    else:
        assert above is not None
        chosen, rule = [edge for edge in order if weights[edge] > above], f"{ranking} effect above {above:g}"
    return Circuit(
        frozenset(chosen),
        effects.kind,
        weights={edge: weights[edge] for edge in chosen},
        reference=effects.intervention,
        ranking=f"{rule} ({effects.method})",
    )


def _measure(
    wiring: Wiring, metric: Metric, reference: Outputs, read: Sequence[int] | None
) -> Callable[[Sequence[frozenset[Edge]]], Float[Tensor, "set example"]]:
    name, seen = metric_name(metric), list(wiring.positions_of(read))

    def measure(sets: Sequence[frozenset[Edge]]) -> Float[Tensor, "set example"]:
        values = []
        for rows in chunks(wiring, range(len(sets))):
            logits = run_edge_sets(wiring, [sets[row] for row in rows], reference)[0]
            values += [performance(metric, each[:, seen], name) for each in logits]
        return torch.stack(values)

    return measure


def _depth(wiring: Wiring, edge: Edge) -> tuple[int, int, Edge]:
    """Later readers first, then later sources; the edge itself breaks ties."""
    order = {node: number for number, node in enumerate((*wiring.nodes, END))}
    return order[edge.destination], order[edge.source], edge
