"""How many heads a task needs, read off a table of errors over head counts and sequence lengths.

Below the number D of heads that the task needs the logarithm of the error falls slowly with every head and rises with
the length; at D it drops and then stays. Which D explains a table best is weighed exactly (interp.changepoint):

    h <  D:  log10 error = a + b (h - 1)     + g t              t = log2 length, minus its mean
    h >= D:  log10 error = a + b (D - 1) + J + f (h - D) + e t

for D from 1 (the plateau from the first head on, or no drop at all) to one more than the table holds, `beyond range`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headlab.interp.changepoint import Hypothesis, Posterior, weigh
from headlab.interp.errors import MissingFile, RequestError

BEYOND = "beyond range"
# a, b, g, J, f, e: an error of the order of 1 with one head; some gain per head; a drop of about two decades.
MEAN = np.array([-0.5, -0.4, 0.05, -2.0, -0.1, 0.0])
SD = np.array([1.0, 0.3, 0.2, 1.5, 0.15, 0.2])
# With D = 1 there is no head count before the drop: a + J is then any level, from a failure to a fit.
FIRST_MEAN = np.array([-0.5, -0.4, 0.05, -1.0, -0.1, 0.0])
FIRST_SD = np.array([1.0, 0.3, 0.2, 1.75, 0.15, 0.2])
NOISE = np.geomspace(0.05, 0.8, 12)  # decades
COLUMNS = {"heads": ("heads", "h"), "length": ("length", "T"), "error": ("error", "nmse")}


@dataclass(frozen=True, eq=False)
class HeadCount:
    """How many heads the errors say are needed.

    table: one row per cell, columns heads, length, error (the smallest where a cell had several). needed: the most
    probable D, None where it lies beyond the range. probability: its posterior probability. credible: the fewest
    answers that together hold `mass`, the most probable first; None among them stands for beyond the range.
    posterior: of every D considered. drop: the factor by which the error falls from D - 1 to D heads, the geometric
    mean over lengths; None where D is 1, beyond the range, or D - 1 is not in the table.
    """

    table: pd.DataFrame
    needed: int | None
    probability: float
    credible: tuple[int | None, ...]
    mass: float
    posterior: Posterior
    drop: float | None

    def to_frame(self) -> pd.DataFrame:
        """One row per D considered: hypothesis, probability, log_evidence, credible."""
        return self.posterior.to_frame()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: heads_needed, probability, set, mass, drop, posterior, cells, lengths."""
        names, probability = self.posterior.names, self.posterior.probability
        return {
            "heads_needed": _shown(self.needed),
            "probability": self.probability,
            "set": [_shown(answer) for answer in self.credible],
            "mass": self.mass,
            "drop": self.drop,
            "posterior": [{"heads": name, "probability": float(p)} for name, p in zip(names, probability, strict=True)],
            "cells": len(self.table),
            "lengths": sorted(self.table["length"].unique().tolist()),
        }


def _shown(answer: int | None) -> int | str:
    return BEYOND if answer is None else answer


def read_errors(path: str | Path) -> pd.DataFrame:
    """A CSV or Parquet table of errors: columns heads (or h), error (or nmse) and, where lengths vary, length (or T).

    Raises MissingFile naming the file, and RequestError where it is not such a table.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingFile(f"there is no file '{path}'")
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise RequestError(f"'{path}' is not a table that can be read: {str(error).splitlines()[0]}") from None
    return frame


def heads_needed(errors: pd.DataFrame, *, mass: float = 0.9, complete: bool = True) -> HeadCount:
    """Read D off a table with columns heads, length and error; of several rows in a cell the smallest error counts.

    Without a column of lengths they are all alike. complete: whether every head count must have been measured at every
    length; False takes a table with gaps as it is. Head counts may skip numbers: D then lies somewhere in the gap.
    Raises RequestError for a column or a cell that is missing (naming it), one head count only, head counts or lengths
    that are not whole numbers from 1, and errors that are not positive and finite.
    """
    table = _cells(errors)
    heads, lengths = np.unique(table["heads"]), np.unique(table["length"])
    if len(heads) < 2:
        raise RequestError(
            f"the table has one head count only, {heads[0]}: where the error falls shows over two or more of them"
        )
    if complete and len(table) < len(heads) * len(lengths):
        have = set(zip(table["heads"], table["length"], strict=True))
        lost = next((h, t) for h in heads for t in lengths if (h, t) not in have)
        raise RequestError(
            f"the table has no error for {lost[0]} heads at length {lost[1]}: measure it, or leave it out"
        )
    h = table["heads"].to_numpy(dtype=np.float64)
    t = np.log2(table["length"].to_numpy(dtype=np.float64))
    hypotheses = [_hypothesis(d, h, t - t.mean()) for d in range(1, int(heads[-1]) + 2)]
    posterior = weigh(np.log10(table["error"].to_numpy()), hypotheses, noise=NOISE, mass=mass)

    def answer(name: object) -> int | None:
        return None if name == heads[-1] + 1 else int(str(name))

    named = Posterior(
        (*posterior.names[:-1], BEYOND),
        posterior.probability,
        posterior.log_evidence,
        tuple(BEYOND if answer(name) is None else name for name in posterior.credible),
        mass,
    )
    needed = answer(posterior.best)
    return HeadCount(
        table=table,
        needed=needed,
        probability=float(posterior.probability.max()),
        credible=tuple(answer(name) for name in posterior.credible),
        mass=mass,
        posterior=named,
        drop=None if needed is None else _drop(table, needed),
    )


def _hypothesis(d: int, h: np.ndarray, t: np.ndarray) -> Hypothesis:
    below, above = (h < d).astype(np.float64), (h >= d).astype(np.float64)
    across = np.where(h < d, h - 1, d - 1)
    design = np.stack([np.ones_like(h), across, below * t, above, above * (h - d), above * t], axis=1)
    mean, sd = (FIRST_MEAN, FIRST_SD) if d == 1 else (MEAN, SD)
    return Hypothesis(d, design, mean, sd)


def _drop(table: pd.DataFrame, needed: int) -> float | None:
    before, after = (table[table["heads"] == count].set_index("length")["error"] for count in (needed - 1, needed))
    ratios = (before / after).dropna()
    return float(np.exp(np.log(ratios).mean())) if len(ratios) else None


def _cells(errors: pd.DataFrame) -> pd.DataFrame:
    found = {}
    for column, names in COLUMNS.items():
        name = next((name for name in names if name in errors.columns), None)
        if name is None and column != "length":
            raise RequestError(
                f"the table has no column '{column}' (or '{names[1]}'); it has {_listed(errors.columns) or 'none'}"
            )
        found[column] = pd.Series(1, index=errors.index) if name is None else errors[name]
    table = pd.DataFrame(found)
    if table.empty:
        raise RequestError("the table of errors is empty")
    table = table.apply(pd.to_numeric, errors="coerce")
    for column in ("heads", "length"):
        values = np.asarray(table[column], dtype=np.float64)
        bad = ~np.isfinite(values) | (values < 1) | (values != values.round())
        if bad.any():
            row = int(bad.argmax())
            raise RequestError(f"row {row} of the table has no whole number from 1 as its {column}")
        table[column] = values.astype(int)
    sizes = np.asarray(table["error"], dtype=np.float64)
    bad = ~np.isfinite(sizes) | (sizes <= 0)
    if bad.any():
        heads, length, error = table.to_numpy()[int(bad.argmax())]
        raise RequestError(
            f"the error for {heads:.0f} heads at length {length:.0f} is {error}: errors must be positive and finite"
        )
    return pd.DataFrame(table.groupby(["heads", "length"], as_index=False)["error"].min())


def _listed(names: Sequence[Any] | pd.Index) -> str:
    return ", ".join(map(str, names))
