"""What the project asked of retrieval, and whether it was met."""

from __future__ import annotations

import numpy as np

from headlab.analyses.claims import load_claims
from headlab.analyses.study.bars import Bar, least, most
from headlab.analyses.study.retrieval.findings import Findings

PAPER = load_claims()["R4"].figures
ENOUGH, FALL = 2e-4, 1000.0


def bars(found: Findings) -> list[Bar]:
    """Every requirement that this study has figures for; a quick study has fewer."""
    rows = [
        most(
            "a head per coordinate, error over the Lambert-W bound",
            1.0,
            [row.used for row in found.built],
            f"{sum(row.models for row in found.built)} random targets",
        ),
        most("four maxima at beta 1000, NMSE", 1e-8, [row.nmse for row in found.four if row.beta == 1000]),
        most("memorising, largest error", 1e-12, [row.max_error for row in found.memory]),
        least("usage of the constructed heads at beta 1000", 0.99, [r.usage for r in found.four if r.beta == 1000]),
    ]
    rows += _linear(found) + _witness(found) + _readings(found)
    if not found.quick:
        rows += _nonlinear(found) + _fixed(found) + _layers(found) + _stuck(found) + _division(found)
    return rows


def _linear(found: Findings) -> list[Bar]:
    enough, falls = [], []
    for d in found.tables("linear"):
        for length in sorted({t for _, t in found.cells("linear", d)}):
            level, before = (found.error("linear", d, length, heads) for heads in (d, d - 1))
            if level is not None and before is not None:
                enough.append(level)
                falls.append(before / level)
    covered = f"D = {', '.join(map(str, found.tables('linear')))}; best seed of {found.seeds}"
    return [
        most("linear encoder, NMSE with as many heads as coordinates", ENOUGH, enough, covered),
        least("linear encoder, times the error with one head fewer", FALL, falls, covered),
    ]


def _witness(found: Findings) -> list[Bar]:
    trained = [pair for pair in found.pairs if pair.kind != "constructed"]
    built = {pair.heads - pair.coordinates: pair.forced for pair in found.pairs if pair.kind == "constructed"}
    return [
        least(
            "error forced on models with too few heads, sd", 0.4, [p.forced for p in trained if p.heads < p.coordinates]
        ),
        most(
            "error forced on models with enough heads, sd", 0.2, [p.forced for p in trained if p.heads >= p.coordinates]
        ),
        least("error forced on the construction less one head, sd", 0.4, [built[-1]]),
        most("error forced on the construction, sd", 0.2, [built[0]]),
    ]


def _readings(found: Findings) -> list[Bar]:
    right = [answer.needed == d for (_, d), answer in found.readings.items()]
    known = [answer.needed == expected for expected, answer in found.controls.values()]
    return [
        least("share of trained tables from which D is read rightly", 1.0, [float(np.mean(right))]),
        least("share of the controls that are read rightly", 1.0, [float(np.mean(known))]),
    ]


def _nonlinear(found: Findings) -> list[Bar]:
    rows = []
    for length in (8, 128):
        errors, paper = found.cells("mlp", 4)[1, length].errors, PAPER[f"h1_T{length}"]
        middle = float(np.median(errors))
        note = f"median {middle:.2e} for {paper:.2e}; {min(errors):.2e} the best of {len(errors)} seeds"
        rows.append(most(f"one head, {length} tokens, off the paper's cell by", 0.3, [abs(middle / paper - 1)], note))
    for length, bar in ((8, 6.1e-5), (128, 1e-5)):
        value, paper = found.error("long", 4, length, 4), PAPER[f"h4_T{length}"]
        assert value is not None
        rows.append(most(f"four heads, {length} tokens, long run", bar, [value], f"paper {paper:.2e}"))
    return rows


def fall(before: float | None, after: float | None) -> float:
    """How many times the error falls; 0 where a cell is missing."""
    return before / after if before and after else 0.0


def _fixed(found: Findings) -> list[Bar]:
    falls = [fall(found.error("fixed", 4, t, 3), found.error("mlp", 4, t, 4)) for t in (8, 128)]
    three = [fall(found.error("mlp", 3, t, 2), found.error("mlp", 3, t, 3)) for t in (8, 128)]
    return [
        least("fixed total width, times the error with three heads", 10.0, falls, "33 numbers for three heads"),
        least("three coordinates, times the error with two heads", 10.0, three),
    ]


def _layers(found: Findings) -> list[Bar]:
    (length,) = {t for _, t in found.cells("layers2", 4)}
    one = fall(found.error("layers2", 4, length, 1), found.error("layers2", 4, length, 2))
    note = f"{length} tokens; layers times heads from 2 to 4"
    return [least("two layers, times the error with one head a layer", 10.0, [one], note)]


def _stuck(found: Findings) -> list[Bar]:
    (made,) = found.cells("stuck", 4).values()
    lost = made.stuck
    note = f"{lost.successes} of {lost.trials} seeds, 95 % {lost.low:.3f} to {lost.high:.3f}"
    return [Bar("stuck seeds, upper end of the interval", "under 0.25", lost.high, lost.high < 0.25, note)]


def _division(found: Findings) -> list[Bar]:
    lengths = sorted({look.job.length for name in found.looks for look in found.looks[name]})
    at, below = ([float(np.median(found.scores(f"mlp-D4-T{t}-h{heads}"))) for t in lengths] for heads in (4, 3))
    aligned = found.alignment("mlp-D4", 4)
    note = f"95 % {aligned.low:.3f} to {aligned.high:.3f}; shuffled targets 95 % below {found.shuffled():.3f}"
    untrained = f"95 % below {max(level.p95 for level in found.untrained.values()):.3f}"
    return [
        least("specialisation, as many heads as coordinates, median", 0.93, at),
        most("specialisation, one head fewer, median", 0.3, below),
        most(
            "specialisation, untrained, median", 0.02, [level.median for level in found.untrained.values()], untrained
        ),
        Bar("alignment, as many heads as coordinates, median", "shown beside chance", aligned.value, True, note),
    ]
