"""How well measured or estimated edge effects recover a circuit that is known."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.metrics import average_precision_score, roc_auc_score

from headlab.interp.circuits import Circuit, Edge
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.paths import EdgeEffects, Ranking


@dataclass(frozen=True)
class RankingChance:
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
    random_auroc: RankingChance
    random_average_precision: RankingChance
    smallest_true: float
    largest_false: float
    ranking: str
    method: str
    true: int
    edges: int
    seed: int
    draws: int
    precision: float = float("nan")
    recall_at_5: float = float("nan")
    precision_at_5: float = float("nan")
    contested: float | None = None

    @property
    def separation(self) -> float:
        """Smallest true over largest false score: above 1, a threshold tells them apart; inf for no false effect."""
        return self.smallest_true / self.largest_false if self.largest_false > 0 else float("inf")


def recovery(
    effects: EdgeEffects,
    truth: Circuit | Collection[Edge],
    *,
    contested: Collection[Edge] = (),
    ranking: Ranking | str = "absolute",
    seed: int = 0,
    draws: int = 1000,
) -> Recovery:
    """How well `effects` of single edges, ranked by `ranking`, find the edges of `truth` among all that were measured.

    The chance level ranks the same edges in `draws` random orders, drawn with `seed`. A circuit is true under its own
    kind of ablation: to compare across kinds, pass its edges. contested: edges that act singly and that nothing needs
    (a cancelling pair), neither true nor false, and not scored. Raises ValueError for another kind, for a truth that
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
    scores = dict(zip(effects.edges, effects.scores(ranking).tolist(), strict=True))
    return rank(
        scores, edges, contested=contested, ranking=ranking, method=effects.method, seed=seed, draws=draws, what="edges"
    )


def rank(
    scores: Mapping[Any, float],
    truth: Collection[Hashable],
    *,
    contested: Collection[Hashable] = (),
    ranking: str = "as given",
    method: str = "",
    seed: int = 0,
    draws: int = 1000,
    what: str = "items",
) -> Recovery:
    """How well scores of anything (edges, heads, sites) find what is true: `recovery` without effects.

    Args:
        scores: item -> importance, higher = more important; every item that counts.
        truth: the items that are true.
        contested: items that are not scored.
        ranking, method: in words, for the result.
        seed, draws: of the chance levels: the same items in that many random orders.
        what: what the items are, for an error's sentence.

    Raises:
        RequestError: for scores that are not finite, a truth that holds none or all of the items, and for no draw.
    """
    if draws < 1:
        raise RequestError(f"{draws} draws: the chance level needs at least 1")
    true, masked = frozenset(truth), frozenset(contested)
    items = [item for item in scores if item not in masked]
    labels = np.array([item in true for item in items])
    values = np.array([scores[item] for item in items], dtype=float)
    if not np.isfinite(values).all():
        raise RequestError(f"{(~np.isfinite(values)).sum()} of {len(values)} scores are not finite")
    if labels.all() or not labels.any():
        raise RequestError(f"{labels.sum()} of {len(labels)} {what} are true: there is nothing to tell apart")
    random_auroc, random_precision = _random_orders(tuple(labels.tolist()), draws, seed)
    count = int(labels.sum())
    cut = np.sort(values)[::-1][count - 1]
    apart = [scores[item] > cut for item in scores if item in masked]
    above, tied = values > cut, values == cut
    kept = values >= 0.05 * values.max() if values.max() > 0 else np.zeros(len(values), dtype=bool)
    return Recovery(
        auroc=float(roc_auc_score(labels, values)),
        average_precision=float(average_precision_score(labels, values)),
        random_auroc=_chance(random_auroc),
        random_average_precision=_chance(random_precision),
        smallest_true=float(values[labels].min()),
        largest_false=float(values[~labels].max()),
        ranking=ranking,
        method=method,
        true=count,
        edges=len(labels),
        seed=seed,
        draws=draws,
        precision=float((labels[above].sum() + (count - above.sum()) * labels[tied].mean()) / count),
        recall_at_5=float((kept & labels).sum() / count),
        precision_at_5=float((kept & labels).sum() / max(1, kept.sum())),
        contested=float(np.mean(apart)) if apart else None,
    )


@lru_cache(maxsize=256)
def _random_orders(
    truth: tuple[bool, ...], draws: int, seed: int
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
    """AUROC and average precision of the edges in random orders, without ties."""
    labels = np.array(truth)
    true, false = int(labels.sum()), int((~labels).sum())
    ranked = np.random.default_rng(seed).permuted(np.tile(labels, (draws, 1)), axis=1)
    place = np.arange(1, len(labels) + 1)
    outranked = true * len(labels) + true - (ranked * place).sum(1) - true * (true + 1) / 2
    precision = (ranked * ranked.cumsum(1) / place).sum(1) / true
    return outranked / (true * false), precision


def _chance(values: Float[np.ndarray, " draw"]) -> RankingChance:
    low, high = np.quantile(values, [0.05, 0.95])
    return RankingChance(float(values.mean()), float(values.std()), float(low), float(high))
