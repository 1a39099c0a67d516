"""Is the importance of heads, judged one at a time, less than what they do together? (claim E13)

For each model every head is ablated alone, every pair together, and all heads together. `excess` is what a pair loses
beyond the sum of its two heads: above 0 where single ablation underestimates them (they back each other up), 0 where
they act independently, below 0 where either alone already breaks what both are needed for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import pandas as pd

from headlab.analyses.claims import Measurement, judge_statement
from headlab.interp.ablation import ablate_heads
from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.model import HookedModel
from headlab.interp.statistics import Estimate, median
from headlab.models.esp.task import EspTask

KINDS = ("zero", "mean", "positional_mean", "resample", "matched_resample")
METRICS = ("accuracy", "logit_difference")
ENOUGH = 0.01


@dataclass(frozen=True)
class Row:
    """One model under one kind of ablation and metric. Heads as (layer, head); losses are means over all samples.

    largest_excess: of the pair whose excess is largest; pair: that pair. together: all heads ablated at once.
    """

    model: str
    seed: int
    kind: str
    metric: str
    baseline: float
    singles: tuple[float, ...]
    pair: tuple[tuple[int, int], tuple[int, int]]
    pair_loss: float
    largest_excess: float
    together: float

    @property
    def sum_of_singles(self) -> float:
        """What the heads lose one at a time, added up."""
        return sum(self.singles)


@dataclass(frozen=True)
class HeadImportance:
    """The rows of all models."""

    rows: tuple[Row, ...]

    def excess(self, model: str, kind: str, metric: str) -> Estimate:
        """The largest excess of a pair: its median over the seeds of `model`. KeyError where it was not measured."""
        values = [r.largest_excess for r in self.rows if (r.model, r.kind, r.metric) == (model, kind, metric)]
        if not values:
            known = sorted({(row.model, row.kind, row.metric) for row in self.rows})
            raise UnknownName(f"nothing was measured for {(model, kind, metric)}: there are {known}")
        return median(values)

    def to_frame(self) -> pd.DataFrame:
        """One row per model, seed, kind and metric."""
        frame = pd.DataFrame([vars(row) | {"sum_of_singles": row.sum_of_singles} for row in self.rows])
        return frame.assign(pair=[f"{a[0]}.{a[1]} {b[0]}.{b[1]}" for a, b in frame.pair])


def measure(
    task: EspTask,
    models: Mapping[str, Sequence[HookedModel]],
    *,
    kinds: Sequence[str] = KINDS,
    metrics: Sequence[str] = METRICS,
    seed: int = 0,
) -> HeadImportance:
    """Ablate heads alone, in pairs and all together in every model of `models` (name -> one model per seed).

    matched_resample draws from samples of the same selector; the mean and resample kinds take all samples of the task
    as reference. Raises ValueError for a model with a single head.
    """
    examples = task.examples()
    selector = examples.factors["selector"]
    rows = []
    for name, members in models.items():
        for number, model in enumerate(members):
            heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
            if len(heads) < 2:
                raise RequestError(f"'{name}' has a single head: there is no pair to ablate")
            pairs = list(combinations(range(len(heads)), 2))
            groups = [*([head] for head in heads), *([heads[i], heads[j]] for i, j in pairs), heads]
            for kind in kinds:
                for metric in metrics:
                    found = ablate_heads(
                        model,
                        examples.inputs,
                        task.metrics(examples)[metric],
                        kind=kind,  # type: ignore[arg-type]
                        reference=None if kind == "zero" else examples.inputs,
                        factors=selector if kind == "matched_resample" else None,
                        seed=seed,
                        groups=groups,
                        name=metric,
                    )
                    loss = found.mean.tolist()
                    singles, doubles = loss[: len(heads)], loss[len(heads) : -1]
                    excess = [lost - singles[i] - singles[j] for (i, j), lost in zip(pairs, doubles, strict=True)]
                    best = max(range(len(pairs)), key=excess.__getitem__)
                    i, j = pairs[best]
                    rows.append(
                        Row(
                            name,
                            number,
                            kind,
                            metric,
                            float(found.baseline.mean()),
                            tuple(singles),
                            (heads[i], heads[j]),
                            doubles[best],
                            excess[best],
                            loss[-1],
                        )
                    )
    return HeadImportance(tuple(rows))


def claim(
    found: HeadImportance, command: str, *, model: str, kind: str = "mean", metric: str = "accuracy"
) -> Measurement:
    """E13 on the models called `model`: it holds where the interval of the pair's excess lies above .01 and fails where
    it lies below -.01; between the two, one at a time and together agree."""
    excess = found.excess(model, kind, metric)
    rows = [row for row in found.rows if (row.model, row.kind, row.metric) == (model, kind, metric)]
    alone = sum(row.sum_of_singles for row in rows) / len(rows)
    together = sum(row.pair_loss for row in rows) / len(rows)
    others = {
        f"{name}, {how}, {what}": found.excess(name, how, what).value
        for name, how, what in sorted({(row.model, row.kind, row.metric) for row in found.rows})
    }
    return Measurement(
        "E13",
        judge_statement(excess.low > ENOUGH, contradicted=excess.high < -ENOUGH),
        f"{model}, {kind} ablation: heads lose {alone:.3f} of {metric} in sum one at a time, the pair that differs "
        f"most {together:.3f} together; the excess has median {excess.value:+.3f} over {len(rows)} models.",
        {"sum_of_singles": alone, "pair": together, "excess": excess.value, "excess_elsewhere": others},
        command,
        paper="discussion",
        interval=excess.interval,
        seeds=len(rows),
    )
