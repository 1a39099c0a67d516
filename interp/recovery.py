"""How well measured or estimated edge effects recover a circuit that is known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from sklearn.metrics import average_precision_score, roc_auc_score

from headlab.interp.circuits import Circuit, Edge
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.paths import EdgeEffects, Ranking


@dataclass(frozen=True)
class Chance:
    """What scores in random order reach: the mean, the standard deviation, and the 5 % and 95 % points of the draws."""

    mean: float
    deviation: float
    low: float
    high: float


@dataclass(frozen=True)
class Recovery:
    """True edges against all others, ranked by their scores.

    auroc: the chance that a true edge outranks a false one, ties half. average_precision: the mean precision over true
    edges. smallest_true, largest_false: scores, in the metric's units. ranking: the rule that made a score of an
    effect. true, edges: how many true edges there are, and edges in all. seed, draws: of the chance levels.
    """

    auroc: float
    average_precision: float
    random_auroc: Chance
    random_average_precision: Chance
    smallest_true: float
    largest_false: float
    ranking: str
    method: str
    true: int
    edges: int
    seed: int
    draws: int

    @property
    def separation(self) -> float:
        """Smallest true over largest false score: above 1, a threshold tells them apart; inf for no false effect."""
        return self.smallest_true / self.largest_false if self.largest_false > 0 else float("inf")


def recovery(
    effects: EdgeEffects,
    truth: Circuit | Collection[Edge],
    *,
    ranking: Ranking | str = "absolute",
    seed: int = 0,
    draws: int = 1000,
) -> Recovery:
    """How well `effects` of single edges, ranked by `ranking`, find the edges of `truth` among all that were measured.

    The chance level ranks the same edges in `draws` random orders, drawn with `seed`. A circuit is true under its own
    kind of ablation: to compare across kinds, pass its edges. Raises ValueError for another kind, for a truth that
    holds none or all of the edges, and for fewer than one draw; KeyError for a true edge that was not measured.
    """
    if isinstance(truth, Circuit):
        kind = truth.ablation.partition(":")[0]
        if effects.kind != kind and (effects.kind, kind) != ("patch", "resample"):
            raise RequestError(
                f"the circuit is true under {truth.ablation}, the effects are of {effects.kind}: measure under "
                "the same kind, or pass the circuit's edges"
            )
    edges = truth.edges if isinstance(truth, Circuit) else frozenset(truth)
    missing = sorted(edges - set(effects.edges))
    if missing:
        raise UnknownName(f"the true edge '{missing[0]}' was not measured: give effects of every true edge")
    if draws < 1:
        raise RequestError(f"{draws} draws: the chance level needs at least 1")
    labels = np.array([edge in edges for edge in effects.edges])
    if labels.all() or not labels.any():
        raise RequestError(f"{labels.sum()} of {len(labels)} edges are true: there is nothing to tell apart")
    scores = effects.scores(ranking).double().cpu().numpy()
    random_auroc, random_precision = _random_orders(labels, draws, seed)
    return Recovery(
        auroc=float(roc_auc_score(labels, scores)),
        average_precision=float(average_precision_score(labels, scores)),
        random_auroc=_chance(random_auroc),
        random_average_precision=_chance(random_precision),
        smallest_true=float(scores[labels].min()),
        largest_false=float(scores[~labels].max()),
        ranking=ranking,
        method=effects.method,
        true=int(labels.sum()),
        edges=len(labels),
        seed=seed,
        draws=draws,
    )


def _random_orders(
    labels: Bool[np.ndarray, " edge"], draws: int, seed: int
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
    """AUROC and average precision of the edges in random orders, without ties."""
    true, false = int(labels.sum()), int((~labels).sum())
    ranked = np.random.default_rng(seed).permuted(np.tile(labels, (draws, 1)), axis=1)
    place = np.arange(1, len(labels) + 1)
    outranked = true * len(labels) + true - (ranked * place).sum(1) - true * (true + 1) / 2
    precision = (ranked * ranked.cumsum(1) / place).sum(1) / true
    return outranked / (true * false), precision


def _chance(values: Float[np.ndarray, " draw"]) -> Chance:
    low, high = np.quantile(values, [0.05, 0.95])
    return Chance(float(values.mean()), float(values.std()), float(low), float(high))
