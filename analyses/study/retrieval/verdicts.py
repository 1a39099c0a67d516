"""The claims on retrieval, each judged by its rule from measured numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from headlab.analyses.claims import Measurement, Verdict, judge_bound, judge_figure, judge_statement, load_claims
from headlab.analyses.head_count import BEYOND
from headlab.analyses.study.retrieval.bars import fall
from headlab.analyses.study.retrieval.findings import Findings
from headlab.analyses.study.retrieval.plans import FIXED, WIDTH
from headlab.analyses.study.retrieval.records import Pair
from headlab.interp.statistics import median
from headlab.models.retrieval.bounds import exponent, shortest_length

FIGURES = {name: claim.figures for name, claim in load_claims().items()}
LEFT_OUT_OF_QUICK = ("R4", "R5", "R6", "R7")
REAL = ("R8", "R9", "B10")

FORCED, TOLD_APART = 0.4, 0.2  # standard deviations: a pair that forces an error, and one that does not
EXACT = 1e-12
DIVIDED, SHARED = 0.8, 0.3  # specialisation of heads with a coordinate each, and of heads that share
FALLS = 10.0  # a fall of the error by less than this factor is none
WORST: tuple[Verdict, ...] = ("fails", "not reached", "holds", "exceeds")


def judge(found: Findings) -> list[Measurement]:
    """R1 to R7, R10 and B12, those that a quick study leaves out excepted."""
    rows = [_per_coordinate(found), _bottleneck(found), _memory(found)]
    if not found.quick:
        rows += [_four(found), _fixed(found), _three(found), _layers(found)]
    return [*rows, _read_off(found), _division(found)]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The least favourable of several; `not reached` of none."""
    return min(verdicts, key=WORST.index) if verdicts else "not reached"


def short(value: float | None, digits: int = 1) -> str:
    """A small number: 4.0e-6."""
    return "no figure" if value is None else f"{value:.{digits}e}".replace("e-0", "e-")


def _per_coordinate(found: Findings) -> Measurement:
    models, violations = sum(row.models for row in found.built), sum(row.violations for row in found.built)
    sharp = {row.length: row.nmse for row in found.four if row.beta == 1000}
    violations += sum(row.max_error > row.bound for row in found.four)
    by_scale = [[r.nmse for r in sorted(found.four, key=lambda r: r.beta) if r.length == t] for t in sharp]
    falling = all(a > b for row in by_scale for a, b in pairwise(row))
    return Measurement(
        "R1",
        judge_bound(violations + (not falling), models + len(found.four)),
        f"{violations} of {models + len(found.four)} constructed models err by more than W₀((|S| − 1) / e) / β "
        "allows (1 to 6 coordinates, sets of 2 to 512 positions); four maxima at β = 1000: NMSE "
        f"{short(max(sharp.values()))} or less, and smaller with every larger β.",
        {
            "models": models,
            "violations": violations,
            "largest_share_of_bound": max(row.used for row in found.built),
            "nmse_beta_1000": {f"T{t}": value for t, value in sharp.items()},
        },
        found.command,
        paper="theorem",
    )


def _bottleneck(found: Findings) -> Measurement:
    trained = [pair for pair in found.pairs if pair.kind != "constructed"]
    few = [pair for pair in trained if pair.heads < pair.coordinates]
    enough = [pair for pair in trained if pair.heads >= pair.coordinates]
    low, high = min(p.forced for p in few), max(p.forced for p in enough)
    cells = _cells_of_the_bound(few)
    speaks = [f"T = {t}, {h} of {d} heads" for (t, h, d), k in cells.items() if k > 0]
    said = (
        f"The exponent is positive in {len(speaks)} of these {len(cells)} cells only ({'; '.join(speaks)})"
        if speaks
        else f"The exponent is positive in none of these {len(cells)} cells"
    )
    return Measurement(
        "R2",
        judge_statement(low >= FORCED and high <= TOLD_APART, contradicted=max(p.forced for p in few) <= TOLD_APART),
        f"With too few heads each of {len(few)} trained models has a pair of sequences that forces an error of "
        f"{low:.2f} standard deviations or more; with enough heads the search forces at most {high:.2f} on any of "
        f"{len(enough)}. {said}, and uniqueness of D = 4 asks for T ≥ {shortest_length(4, 4)}: a consequence is "
        "shown, not the bound.",
        {
            "lowest_with_too_few": low,
            "highest_with_enough": high,
            "distance_with_too_few": max(p.distance for p in few),
            "distance_with_enough": min(p.distance for p in enough),
            "exponent": {f"T{t}_h{h}_D{d}": k for (t, h, d), k in cells.items()},
            "constructed": {f"h{p.heads}": p.forced for p in found.pairs if p.kind == "constructed"},
        },
        found.command,
        paper="theorem, a lower bound",
    )


def _cells_of_the_bound(few: Sequence[Pair]) -> dict[tuple[int, int, int], float]:
    """(length, heads, coordinates) -> the theorem's exponent there, vacuous where it is not positive."""
    keys = sorted({(pair.length, pair.heads, pair.coordinates) for pair in few})
    return {(t, h, d): exponent(t, h, d, WIDTH).k for t, h, d in keys}


def _memory(found: Findings) -> Measurement:
    largest = max(row.max_error for row in found.memory)
    said = ", ".join(f"{row.parameters} at T = {row.length}" for row in found.memory)
    return Measurement(
        "R3",
        judge_bound(sum(row.max_error > EXACT for row in found.memory), len(found.memory)),
        f"Largest error {short(largest, 0)} in float64 at a width of T d; weights of the network that are not 0: "
        f"{said}.",
        {
            "max_error": {f"T{r.length}": r.max_error for r in found.memory},
            "parameters": {f"T{r.length}": r.parameters for r in found.memory},
            "depth": {f"T{r.length}": r.depth for r in found.memory},
        },
        found.command,
        paper="theorem",
    )


def _level(value: float | None, paper: float, fell: float) -> Verdict:
    """The level that enough heads reach, against the paper's, where there is a fall at all."""
    if value is None:
        return "not reached"
    return "fails" if fell < FALLS else judge_figure(value, paper, higher_is_better=False)


def _four(found: Findings) -> Measurement:
    figures = FIGURES["R4"]
    cells = {f"h{h}_T{t}": found.error("mlp", 4, t, h) for t in (8, 128) for h in (1, 2, 3, 4)}
    long = {t: found.error("long", 4, t, 4) for t in (8, 128)}
    falls = {t: fall(cells[f"h3_T{t}"], cells[f"h4_T{t}"]) for t in long}
    verdict = worst([_level(long[t], figures[f"h4_T{t}"], falls[t]) for t in long])
    other = [made for name, made in found.trained.items() if name.startswith("gaussian")]
    drawn = [float(made.errors.min()) for made in other]
    return Measurement(
        "R4",
        verdict,
        f"From three heads to four the error falls {min(falls.values()):.0f} times or more in as many steps, and to "
        f"{short(long[8])} (T = 8) and {short(long[128])} (T = 128) in long runs. One head {short(cells['h1_T8'])} "
        f"and {short(cells['h1_T128'])}. Not reproduced: three heads at T = 128, {short(cells['h3_T128'])} for "
        f"{short(figures['h3_T128'])}; the paper gives neither its aᵢ nor its encoder, and with aᵢ drawn from a "
        f"Gaussian three heads give {_between(drawn)}.",
        {**cells, "long_h4_T8": long[8], "long_h4_T128": long[128], "gaussian_h3_T128": drawn},
        found.command,
        paper="NMSE at T = 8 and 128: one head 7.01e-2 and 1.45e-1, four 6.10e-5 and 5.23e-6",
        interval=_spread(found, "long", 4, 128, 4),
        seeds=len(found.cells("long", 4)[4, 128].runs),
    )


def _between(values: Sequence[float]) -> str:
    return f"{short(min(values))} to {short(max(values))}" if values else "no figure"


def _spread(found: Findings, kind: str, coordinates: int, length: int, heads: int) -> tuple[float, float] | None:
    """The smallest and the largest error over seeds."""
    made = found.cells(kind, coordinates).get((heads, length))
    return None if made is None else (float(made.errors.min()), float(made.errors.max()))


def _fixed(found: Findings) -> Measurement:
    figures = FIGURES["R5"]
    errors = {t: {h: found.error("fixed", 4, t, h) for h in (1, 2, 3)} for t in (8, 128)}
    best = {t: min(v for v in (found.error("mlp", 4, t, 4), found.error("long", 4, t, 4)) if v) for t in (8, 128)}
    falls = {t: fall(errors[t][3], found.error("mlp", 4, t, 4)) for t in errors}
    said = "; ".join(
        f"T = {t}: " + ", ".join(f"{short(v)}" for v in (*rows.values(), best[t])) for t, rows in errors.items()
    )
    return Measurement(
        "R5",
        worst([_level(best[128], figures["h4_T128"], falls[128])]),
        f"One to four heads, four in long runs, {said}. In as many steps the error falls {min(falls.values()):.0f} "
        f"times or more from three to four, so it is no matter of width. Three heads have {FIXED[3]} numbers, since "
        f"three do not divide 32; the paper has {short(figures['h3_T128'])} for three at T = 128.",
        {f"h{h}_T{t}": v for t, rows in errors.items() for h, v in {**rows, 4: best[t]}.items()},
        found.command,
        paper="NMSE at T = 128: three heads 4.77e-4, four 5.70e-7",
        interval=_spread(found, "mlp", 4, 128, 4),
        seeds=len(found.cells("mlp", 4)[4, 128].runs),
    )


def _three(found: Findings) -> Measurement:
    figures = FIGURES["R6"]
    cells = {(h, t): found.error("mlp", 3, t, h) for t in (8, 128) for h in (2, 3)}
    falls = {t: fall(cells[2, t], cells[3, t]) for t in (8, 128)}
    linear = {t: fall(found.error("linear", 3, t, 2), found.error("linear", 3, t, 3)) for t in (8, 32, 128)}
    return Measurement(
        "R6",
        _level(cells[3, 128], figures["h3_T128"], falls[128]),
        f"Three heads {short(cells[3, 8])} (T = 8) and {short(cells[3, 128])} (T = 128), two heads "
        f"{short(cells[2, 8])} and {short(cells[2, 128])}: the fall is at three heads, {min(falls.values()):.0f} "
        f"times or more (linear encoder {min(linear.values()):.0f} times). Our runs stop above the paper's level.",
        {f"h{h}_T{t}": value for (h, t), value in cells.items()},
        found.command,
        paper="NMSE at T = 128: two heads 1.11e-3, three 2.11e-7",
        interval=_spread(found, "mlp", 3, 128, 3),
        seeds=len(found.cells("mlp", 3)[3, 128].runs),
    )


def _layers(found: Findings) -> Measurement:
    figures = FIGURES["R7"]
    two, one = found.cells("layers2", 4), found.cells("layers1", 4)
    (length,) = {t for _, t in two}
    errors = {h: float(made.errors.min()) for (h, _), made in two.items()}
    flat = {h: float(made.errors.min()) for (h, _), made in one.items()}
    fell = fall(errors[1], errors[2])
    return Measurement(
        "R7",
        _level(errors[2], figures["h2_T128"], fell),
        f"At T = {length} two layers of one head give {short(errors[1])}, of two {short(errors[2])} ({fell:.0f} times "
        f"less); one layer of two heads {short(flat[2])}, of four {short(flat[4])}. The fall is where layers times "
        "heads is four. Shorter sequences than the paper's, where each of its tokens attends as well: no like for "
        "its T = 128.",
        {f"L2_h{h}": v for h, v in errors.items()} | {f"L1_h{h}": v for h, v in flat.items()} | {"T": length},
        found.command,
        paper="NMSE at T = 128: one head a layer 4.28e-4, two 3.83e-6",
        interval=_spread(found, "layers2", 4, length, 2),
        seeds=len(two[2, length].runs),
    )


def _read_off(found: Findings) -> Measurement:
    answers = {f"{kind} D={d}": answer for (kind, d), answer in found.readings.items()}
    right = [answer.needed == d for (_, d), answer in found.readings.items()]
    excluded = [d not in answer.credible for (_, d), answer in found.readings.items()]
    known = [answer.needed == expected for expected, answer in found.controls.values()]
    lowest = min(answer.probability for answer in answers.values())
    controls = ", ".join(
        f"{name} {BEYOND if answer.needed is None else answer.needed}" for name, (_, answer) in found.controls.items()
    )
    return Measurement(
        "R10",
        judge_statement(all(right) and all(known), contradicted=all(excluded)),
        f"Right on {sum(right)} of {len(right)} trained tables ({', '.join(answers)}), the least certain answer with a "
        f"probability of {lowest:.2f}. Controls: {controls}.",
        {
            name: {"needed": BEYOND if a.needed is None else a.needed, "probability": a.probability, "drop": a.drop}
            for name, a in answers.items()
        },
        found.command,
        paper="proposed as a use of the theorem",
        seeds=found.seeds,
    )


def _division(found: Findings) -> Measurement:
    kind = "linear" if found.quick else "mlp"
    lengths = sorted({look.job.length for name in found.looks if name.startswith(kind) for look in found.looks[name]})
    scores = {h: {t: found.scores(f"{kind}-D4-T{t}-h{h}") for t in lengths} for h in (3, 4)}
    errors = {h: {t: found.error(kind, 4, t, h) for t in lengths} for h in (3, 4)}
    at, below = ({t: float(np.median(v)) for t, v in scores[h].items()} for h in (4, 3))
    falls = [fall(errors[3][t], errors[4][t]) for t in lengths]
    chance = max(level.median for level in found.untrained.values())
    middle = median(np.concatenate(list(scores[4].values())))
    aligned = found.alignment(f"{kind}-D4", 4)
    return Measurement(
        "B12",
        judge_statement(
            min(at.values()) >= DIVIDED and max(below.values()) <= SHARED and min(falls) >= FALLS,
            contradicted=all(below[t] >= at[t] for t in lengths),
        ),
        f"Four coordinates, T = {', '.join(map(str, lengths))}: median specialisation {_listed(below)} with three "
        f"heads, {_listed(at)} with four (untrained {chance:.3f} or less), where the error falls {min(falls):.0f} "
        "times or more.",
        {
            "at_D": {f"T{t}": v for t, v in at.items()},
            "one_fewer": {f"T{t}": v for t, v in below.items()},
            "untrained": {f"T{t}": level.to_dict() for t, level in found.untrained.items()},
            "error_falls": dict(zip((f"T{t}" for t in lengths), falls, strict=True)),
            "alignment": {"median": aligned.value, "interval": aligned.interval, "chance_p95": found.shuffled()},
        },
        found.command,
        interval=middle.interval,
        seeds=middle.count,
    )


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values.values())
