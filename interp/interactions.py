"""What groups of edges do together that none does alone: backups, which take over where the first is silent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pandas as pd
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from headlab.interp.circuits import Edge, Node
from headlab.interp.errors import RequestError
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric
from headlab.interp.model import HookedModel
from headlab.interp.paths import EdgeEffects, exact_effects
from headlab.interp.wiring import Wiring, untouched_and_ungrouped, wire


@dataclass(frozen=True, eq=False)
class Interactions:
    """Performance lost per group of edges alone, and per pair of groups together; higher = more important.

    names: of the groups. single: each alone; pair[i, j]: both together (symmetric; the diagonal is `single`).
    Other fields as for `headlab.interp.paths.EdgeEffects`.
    """

    names: tuple[str, ...]
    groups: tuple[tuple[Edge, ...], ...]
    single: Float[Tensor, "group example"]
    pair: Float[Tensor, "group other example"]
    baseline: Float[Tensor, " example"]
    kind: str
    intervention: str
    reference: Tensor | None
    metric: str
    device: str

    @property
    def beyond(self) -> Float[Tensor, "group other"]:
        """How much more a pair loses than the sum of the two alone, mean over examples; positive where they back each
        other up, 0 where they act independently. The diagonal is 0."""
        more = (self.pair - self.single[:, None] - self.single[None]).mean(-1)
        return more * (1 - torch.eye(len(self.names), dtype=more.dtype, device=more.device))

    @property
    def given(self) -> Float[Tensor, "group other"]:
        """What group i loses in the model where group j is silent already, mean over examples; the diagonal is 0."""
        return (self.pair - self.single[None]).mean(-1)

    def missed(self, *, above: float) -> dict[str, tuple[str, float, float]]:
        """The groups whose own mean effect is at most `above`, yet larger when another group is silent.

        name -> (the other group, the effect alone, the effect with the other silent), where that effect is largest.
        """
        alone, given = self.single.mean(1), self.given
        found = {}
        for row, name in enumerate(self.names):
            other = int(given[row].argmax())
            if abs(float(alone[row])) <= above < float(given[row, other]):
                found[name] = (self.names[other], float(alone[row]), float(given[row, other]))
        return found

    def statement(self, *, above: float) -> str:
        """In one sentence, what single ablation misses and pairs find."""
        found = self.missed(above=above)
        if not found:
            return f"No group hides behind another: none loses more than {above:g} only when another one is silent."
        parts = [
            f"{name} loses {alone:.3g} alone and {given:.3g} once {other} is silent"
            for name, (other, alone, given) in found.items()
        ]
        return f"Single ablation misses what pairs find: {'; '.join(parts)} ({self.metric}, {self.intervention})."

    def to_frame(self) -> pd.DataFrame:
        """One row per pair of groups: first, second, the mean effects first_alone, second_alone, together, and
        beyond = together - their sum."""
        alone, beyond = self.single.mean(1), self.beyond
        return pd.DataFrame(
            [
                {
                    "first": self.names[i],
                    "second": self.names[j],
                    "first_alone": float(alone[i]),
                    "second_alone": float(alone[j]),
                    "together": float(self.pair[i, j].mean()),
                    "beyond": float(beyond[i, j]),
                    "kind": self.kind,
                    "metric": self.metric,
                }
                for i, j in combinations(range(len(self.names)), 2)
            ]
        )


@dataclass(frozen=True, eq=False)
class InContext:
    """Effects of single edges in the whole model and in the models in which some node is silent already.

    contexts: what is silent, the first being `nothing`; effects: one per context, of the same edges.
    """

    contexts: tuple[str, ...]
    effects: tuple[EdgeEffects, ...]

    @property
    def edges(self) -> Sequence[Edge]:
        """The edges."""
        return self.effects[0].edges

    def strongest(self) -> EdgeEffects:
        """Each edge's effect in the context where its mean |effect| is largest."""
        stacked = torch.stack([each.effect for each in self.effects])
        best = stacked.abs().mean(-1).argmax(0)
        chosen = stacked[best, torch.arange(len(best), device=best.device)]
        method = f"exact, the strongest of {len(self.contexts)} contexts"
        return replace(self.effects[0], effect=chosen, method=method, warning=None)

    def missed(self, *, above: float) -> dict[Edge, tuple[str, float, float]]:
        """The edges whose mean |effect| is at most `above` in the whole model, and larger where something is silent.

        edge -> (what is silent, the effect in the whole model, the effect then).
        """
        table = torch.stack([each.scores() for each in self.effects])
        found = {}
        for row, edge in enumerate(self.edges):
            context = int(table[:, row].argmax())
            if float(table[0, row]) <= above < float(table[context, row]):
                found[edge] = (self.contexts[context], float(table[0, row]), float(table[context, row]))
        return found

    def statement(self, *, above: float) -> str:
        """In one sentence, what single ablation misses and sets find."""
        found = self.missed(above=above)
        if not found:
            return f"No edge hides behind a node: none acts by more than {above:g} only once another node is silent."
        parts = [f"{edge} ({alone:.3g}; {then:.3g} without {what})" for edge, (what, alone, then) in found.items()]
        return f"Single ablation misses {len(found)} edges that act once another node is silent: {', '.join(parts)}."


def edges_in_context(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    metric: Metric,
    intervention: Intervention,
    *,
    contexts: Mapping[str, Collection[Edge]] | None = None,
    edges: Collection[Edge] | None = None,
    read: Sequence[int] | None = None,
) -> InContext:
    """What `patch_edges` measures, in the whole model and in each model in which one of `contexts` is cut already.

    contexts: name -> edges cut; default every head and MLP, silenced as a whole. Arguments and errors as for
    `headlab.interp.paths.patch_edges`.
    """
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs)
        chosen = wiring.edges(end=read) if edges is None else tuple(dict.fromkeys(edges))
        cuts = {"nothing": (), **(writers(wiring) if contexts is None else contexts)}
        singles = [(edge,) for edge in chosen]
        found = [exact_effects(wiring, singles, metric, intervention, cut, read) for cut in cuts.values()]
    return InContext(tuple(cuts), tuple(found))


def interactions(
    model: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    metric: Metric,
    intervention: Intervention,
    *,
    groups: Mapping[str, Collection[Edge]] | None = None,
    read: Sequence[int] | None = None,
) -> Interactions:
    """Replace what each group of edges carries, alone and with each other group.

    groups: name -> edges; default one group per head and MLP, all that it writes, which silences it. Pass single edges
    as groups to test pairs of edges. Other arguments and errors as for `interp.paths.patch_edges`; ValueError too for
    fewer than two groups.
    """
    with untouched_and_ungrouped(model):
        wiring = wire(model, inputs)
        chosen = writers(wiring) if groups is None else {name: tuple(edges) for name, edges in groups.items()}
        if len(chosen) < 2:
            raise RequestError(f"{len(chosen)} groups were given: an interaction needs at least two")
        members, names = list(chosen.values()), tuple(chosen)
        count = len(members)
        pairs = list(combinations(range(count), 2))
        sets = [*members, *(tuple({*members[i], *members[j]}) for i, j in pairs)]
        found = exact_effects(wiring, sets, metric, intervention, (), read)
    single = found.effect[:count]
    pair = torch.diag_embed(single.T).permute(1, 2, 0).contiguous()
    for (i, j), effect in zip(pairs, found.effect[count:], strict=True):
        pair[i, j] = pair[j, i] = effect
    return Interactions(
        names=names,
        groups=tuple(members),
        single=single,
        pair=pair,
        baseline=found.baseline,
        kind=found.kind,
        intervention=found.intervention,
        reference=found.reference,
        metric=found.metric,
        device=found.device,
    )


def writers(wiring: Wiring, nodes: Collection[Node] | None = None) -> dict[str, tuple[Edge, ...]]:
    """One group of edges per head and MLP (or per node of `nodes`): all that leave it. Cutting them silences it."""
    chosen = wiring.nodes[1:] if nodes is None else tuple(nodes)
    every = wiring.edges()
    return {str(node): tuple(edge for edge in every if edge.source == node) for node in chosen}
