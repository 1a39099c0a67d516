"""The figures of the retrieval report: what was found, in the words of its reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headlab.analyses.head_count import HeadCount
from headlab.analyses.study.retrieval.bars import PAPER, fall
from headlab.analyses.study.retrieval.findings import Findings
from headlab.analyses.study.retrieval.plans import FIXED, WIDTH
from headlab.analyses.study.retrieval.records import Look, Pair, Trained
from headlab.interp.render import (
    Axis,
    Curve,
    CurvePanel,
    Figure,
    Head,
    Level,
    ScoreStrip,
    StripRow,
    curve_chart,
    effect_grid,
    strip_chart,
    usage_chart,
)

LETTERS = "ABCDEFGHIJKL"
FADES = {8: 0.5, 16: 0.3, 32: 0.25, 128: 0.0}  # longer sequences are darker


def power(value: float) -> str:
    """10 to a power as text: 0.0001 -> 10⁻⁴."""
    exponent = round(float(np.log10(value)))
    return "1" if exponent == 0 else "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def errors_axis(low: float, high: float = 1.0) -> Axis:
    """A logarithmic axis of NMSE in whole decades, every second one named where there are many."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    ticks = [10.0**k for k in range(first, last + 1)]
    return Axis(domain=(ticks[0], ticks[-1]), ticks=ticks[:: 1 if len(ticks) < 5 else 2], format=power, scale="log")


def heads_axis(most: int) -> Axis:
    """Whole numbers of heads from 1."""
    return Axis("attention heads", domain=(0.8, most + 0.2), ticks=range(1, most + 1), scale="linear")


def fall_by_coordinates(found: Findings) -> Figure:
    """The central figure: error over heads, one panel a number of coordinates, a curve a length."""
    most = max(made.job.heads for made in found.trained.values() if made.job.kind == "linear")
    low = min(float(made.errors.min()) for made in found.trained.values() if made.job.kind == "linear")
    panels = []
    for d in found.tables("linear"):
        curves = _by_length(found, "linear", d)
        panels.append(CurvePanel(f"error with {d} coordinates", curves, errors_axis(low), height=110))
    falls = [
        fall(found.error("linear", d, t, d - 1), found.error("linear", d, t, d))
        for d in found.tables("linear")
        for t in sorted({t for _, t in found.cells("linear", d)})
    ]
    return curve_chart(
        panels,
        title="Error by heads, coordinates and length",
        description=f"The error falls where heads are as many as coordinates, {min(falls):.0f} times or more.",
        caption="Sum of the maxima of D projections of Gaussian tokens in four dimensions (five where D = 5); linear "
        "encoder, 8 numbers a head. Mean squared error over the variance of the target on 2 000 unseen sequences, "
        f"best of {found.seeds} seeds where the error falls, of two elsewhere; T tokens a sequence.",
        axis=heads_axis(most),
    )


def _by_length(found: Findings, kind: str, coordinates: int, *, most: int | None = None) -> list[Curve]:
    cells = found.cells(kind, coordinates)
    curves = []
    for length in sorted({t for _, t in cells}):
        heads = sorted(h for h, t in cells if t == length and (most is None or h <= most))
        errors = [float(cells[h, length].errors.min()) for h in heads]
        curves.append(Curve(heads, errors, label=f"T = {length}", fade=FADES.get(length, 0.0), points=True))
    return curves


def encoders(found: Findings) -> Figure:
    """Four coordinates with a linear and a nonlinear encoder, beside the paper's cells."""
    linear, other = _by_length(found, "linear", 4), _by_length(found, "mlp", 4)
    paper = {t: [(h, PAPER[f"h{h}_T{t}"]) for h in (1, 2, 3, 4) if f"h{h}_T{t}" in PAPER] for t in (8, 128)}
    for length, cells in paper.items():
        x, y = zip(*cells, strict=True)
        other.append(Curve(x, y, label=f"paper, T = {length}", heads="muted", dash=True, points=True))
    for length in (8, 128):
        other.append(Curve([4], [found.error("long", 4, length, 4)], label=f"long run, T = {length}", points=True))
    low = min(min(curve.y) for curve in (*linear, *other))
    axis = errors_axis(low)
    return curve_chart(
        [
            CurvePanel("error, encoder with a hidden layer", other, axis, height=230),
            CurvePanel("error, linear encoder", linear, axis, height=150),
        ],
        title="The encoder decides what one head can do, not where the error falls",
        description="With either encoder the error falls at four heads; with a hidden layer it starts lower.",
        caption="Four coordinates. A linear encoder leaves one head with far more error than the paper reports; an "
        "encoder with one hidden layer of 32 units comes near, so the paper's was not linear. Its aᵢ are not known: "
        "here they are orthonormal.",
        axis=heads_axis(5),
    )


def read_off(found: Findings) -> Figure:
    """How probable each number of coordinates is, by table."""
    rows: list[tuple[str, HeadCount]] = [
        (f"D = {d}, {'linear' if kind == 'linear' else 'hidden layer'}", answer)
        for (kind, d), answer in sorted(found.readings.items(), key=lambda item: (item[0][1], item[0][0]))
    ]
    rows += [(name, answer) for name, (_, answer) in found.controls.items()]
    most = max(int(heads) for _, answer in rows for heads in answer.table["heads"])
    values = np.full((len(rows), most + 1), np.nan)
    for line, (_, answer) in enumerate(rows):
        probability = answer.posterior.probability
        values[line, : len(probability) - 1] = probability[:-1]
        values[line, most] = probability[-1]
    right = sum(answer.needed == d for (_, d), answer in found.readings.items())
    return effect_grid(
        values,
        rows=[name for name, _ in rows],
        columns=[*map(str, range(1, most + 1)), "beyond"],
        row_axis="table of errors",
        column_axis="coordinates",
        title="The number of coordinates, read off the errors",
        description=f"Right on {right} of {len(found.readings)} tables.",
        caption="Probability of each number of coordinates by a change point in the logarithm of the error over "
        "heads and lengths. The last three rows are controls: the level after a fall alone, a made-up slope, and "
        "the paper's own cells. Hatched: not in the table.",
        limit=1.0,
        signs=False,
        missing="not in the table",
    )


def witness_pairs(found: Findings) -> Figure:
    """What the search for two sequences finds, by heads less coordinates."""
    tables: dict[str, list[Pair]] = {}
    for pair in found.pairs:
        label = {
            "linear": f"D = {pair.coordinates}",
            "mlp": f"hidden layer, T = {pair.length}",
            "constructed": "constructed",
        }[pair.kind]
        tables.setdefault(label, []).append(pair)
    forced, near = [], []
    for index, (label, pairs) in enumerate(sorted(tables.items(), key=lambda item: _order(*item[1]))):
        pairs = sorted(pairs, key=lambda pair: pair.heads)
        x = [pair.heads - pair.coordinates for pair in pairs]
        built = pairs[0].kind == "constructed"
        style: dict[str, Any] = {"heads": "muted" if built else "ink", "dash": built, "points": True}
        style["fade"] = 0.0 if built else min(0.6, 0.08 * index)
        forced.append(Curve(x, [pair.forced for pair in pairs], **style))
        near.append(Curve(x, [pair.distance for pair in pairs], label=label, **style))
    few = min(p.forced for p in found.pairs if p.heads < p.coordinates)
    enough = max(p.forced for p in found.pairs if p.heads >= p.coordinates)
    least = min(pair.heads - pair.coordinates for pair in found.pairs)
    low, high = min(0.0, min(p.forced for p in found.pairs)), 1.05 * max(p.forced for p in found.pairs)
    return curve_chart(
        [
            CurvePanel("error that the pair forces, sd", forced, Axis(domain=(low, high)), height=190),
            CurvePanel("distance at the read-out, random pair = 1", near, height=190),
        ],
        title="Two sequences that too few heads cannot tell apart",
        description=f"With too few heads a pair forces {few:.2f} standard deviations or more, else {enough:.2f} or "
        "less.",
        caption="Gradient descent on two sequences: what the read-out gets of them is to be equal, their targets two "
        "standard deviations (sd) apart. A model that cannot tell them apart errs on one of them by half of what the "
        f"targets differ: {few:.2f} sd or more with too few heads, {enough:.2f} or less with enough. Best seed of "
        "each cell; linear encoder and T = 8 where nothing else is said; constructed: D = 4, softmax scale 10, one "
        "head left out.",
        axis=Axis("heads less coordinates", domain=(least - 0.2, 1.2), ticks=range(least, 2), scale="linear"),
    )


def _order(*pairs: Pair) -> tuple[int, int, int]:
    """Linear encoders by coordinates, then the others by length, the construction last."""
    first = pairs[0]
    return ("linear", "mlp", "constructed").index(first.kind), first.coordinates, first.length


def division(found: Findings, kind: str) -> Figure:
    """Error and specialisation over the number of heads."""
    cells = found.cells(kind, 4)
    lengths = sorted({look.job.length for name in found.looks for look in found.looks[name] if look.job.kind == kind})
    most = max(h for h, _ in cells)
    curves = []
    for length in lengths:
        heads = sorted(h for h, t in cells if t == length)
        values = [found.scores(cells[h, length].job.name) for h in heads]
        curves.append(
            Curve(
                heads,
                [float(np.median(v)) for v in values],
                low=[v.min() for v in values],
                high=[v.max() for v in values],
                label=f"T = {length}",
                fade=FADES.get(length, 0.0),
                points=True,
            )
        )
    low = min(float(made.errors.min()) for made in cells.values())
    chance = max(level.median for level in found.untrained.values())
    name = "an encoder with a hidden layer" if kind == "mlp" else "a linear encoder"
    return curve_chart(
        [
            CurvePanel("error, best seed", _by_length(found, kind, 4), errors_axis(low), height=150),
            CurvePanel(
                "specialisation",
                curves,
                Axis(domain=(0, 1), ticks=(0, 0.5, 1)),
                [Level(chance, "untrained", kind="chance")],
                height=150,
            ),
        ],
        title="The score jumps where the error falls",
        description="Specialisation is low with three heads and near 1 with four.",
        caption=f"Four coordinates, {name}. Specialisation: median and full range of the seeds, beside the median of "
        f"{next(iter(found.untrained.values())).count} untrained models with four heads.",
        axis=heads_axis(most),
    )


def usage(found: Findings, kind: str, length: int, heads: int) -> Figure:
    """Which head retrieves which coordinate in the model of median specialisation."""
    name = f"{kind}-D4-T{length}-h{heads}"
    chosen = middle(found.looks[name])
    order = _by_coordinate(chosen)
    scores, chance = found.scores(name), found.untrained[length]
    alignment = [look.alignment.alignment for look in found.looks[name]]
    shuffled = max(look.alignment.chance.p95 for look in found.looks[name] if look.alignment.chance)
    least, most = min(alignment), max(alignment)
    return usage_chart(
        chosen.score.usage[order],
        heads=[_letter(chosen, head) for head in order],
        roles=[f"max {k + 1}" for k in range(len(chosen.score.roles))],
        title=f"Who retrieves what: {heads} heads",
        description=f"Median specialisation {np.median(scores):.3f} with {heads} heads for four coordinates.",
        caption=f"{heads} heads, T = {length}, seed {chosen.seed}: the share of what a head moves to the read-out "
        "that comes from the token with the largest projection, beyond chance. Alignment of heads with coordinates "
        f"by attention: {least:.3f} to {most:.3f} over {len(scores)} seeds; shuffled targets 95 % below "
        f"{shuffled:.3f}.",
        score=ScoreStrip(
            scores,
            chance.values,
            "specialisation S",
            f"all {len(scores)} seeds",
            heads="ink",
            chance_label=f"untrained, {chance.count} models",
            chance_note=f"95 % below {chance.p95:.3f}",
            value_label=f"trained, median {np.median(scores):.3f}",
        ),
    )


def middle(looks: Sequence[Look]) -> Look:
    """The look with the median specialisation, the lower one of two."""
    ordered = sorted(looks, key=lambda look: (look.specialisation, look.seed))
    return ordered[(len(ordered) - 1) // 2]


def _by_coordinate(look: Look) -> list[int]:
    """Heads in the order of the coordinate that each uses most."""
    used = look.score.usage
    return sorted(range(len(used)), key=lambda head: (int(used[head].argmax()), -float(used[head].max())))


def _letter(look: Look, head: int) -> Head:
    best = int(look.score.usage[head].argmax())
    known = look.score.usage[head, best] >= 0.5 and best < len(LETTERS)
    return Head(LETTERS[best] if known else "ink", f"0.{head}")


def bound(found: Findings) -> Figure:
    """The construction's largest error and its bound over the softmax scale."""
    lengths = sorted({row.length for row in found.four})
    curves = []
    for length in lengths:
        rows = sorted((row for row in found.four if row.length == length), key=lambda row: row.beta)
        scales = [row.beta for row in rows]
        last = length == lengths[-1]
        curves.append(Curve(scales, [r.bound for r in rows], label=f"bound, T = {length}", fade=FADES.get(length, 0.0)))
        curves.append(
            Curve(
                scales,
                [row.max_error for row in rows],
                label=f"measured, T = {length}" if last or len(lengths) < 4 else "",
                heads="muted",
                fade=FADES.get(length, 0.0),
                dash=True,
                points=True,
            )
        )
    scales = sorted({row.beta for row in found.four})
    low = min(row.max_error for row in found.four)
    high = max(row.bound for row in found.four)
    used = max(row.max_error / row.bound for row in found.four)
    models = sum(row.models for row in found.built)
    return curve_chart(
        [CurvePanel("largest error, in the target's units", curves, errors_axis(low, high), height=260)],
        title="The construction keeps its bound",
        description=f"The largest error is {used:.2f} of the bound or less at every scale and length.",
        caption="One head per coordinate for the sum of four maxima, float64. Bound: W₀((T − 1) / e) / β per "
        f"coordinate, attained where all gaps are equal. {models} more models on random targets (1 to 6 coordinates, "
        "sets of 2 to 512 positions, linear, product and polynomial outer functions): "
        f"{sum(row.violations for row in found.built)} above their bound.",
        axis=Axis("softmax scale β", scale="log", ticks=scales, domain=(scales[0], scales[-1])),
    )


def fixed_width(found: Findings) -> Figure:
    """The same total width for every number of heads, beside eight numbers a head."""
    panels = []
    low = 1.0
    for length in (8, 128):
        heads = sorted(FIXED)
        own = [found.error("mlp", 4, length, h) for h in heads]
        fixed = [found.error("fixed", 4, length, h) or found.error("mlp", 4, length, h) for h in heads]
        low = min(low, *(v for v in (*own, *fixed) if v))
        panels.append(
            (
                f"error, T = {length}",
                [
                    Curve(heads, own, label=f"{WIDTH} numbers a head", heads="muted", dash=True, points=True),
                    Curve(heads, fixed, label="32 in all", points=True),
                ],
            )
        )
    falls = [fall(found.error("fixed", 4, t, 3), found.error("mlp", 4, t, 4)) for t in (8, 128)]
    harder = (found.error("fixed", 4, 128, 3) or 0.0) > (found.error("mlp", 4, 128, 3) or 1.0)
    return curve_chart(
        [CurvePanel(label, curves, errors_axis(low), height=150) for label, curves in panels],
        title="Width is not what is missing",
        description=f"With the same total width the error still falls at four heads, {min(falls):.0f} times or more.",
        caption="Four coordinates, encoder with a hidden layer. Three heads have 33 numbers in all, since three do "
        "not divide 32. With four heads the two are the same model."
        + (" At T = 128 few wide heads are harder to train than few narrow ones." if harder else ""),
        axis=heads_axis(4),
    )


def two_layers(found: Findings) -> Figure:
    """Error over layers times heads, one layer and two."""
    curves = []
    for layers, label in ((1, "one layer"), (2, "two layers")):
        cells = found.cells(f"layers{layers}", 4)
        heads = sorted(h for h, _ in cells)
        values = [next(made.errors for (h, _), made in cells.items() if h == count) for count in heads]
        curves.append(
            Curve(
                [layers * h for h in heads],
                [v.min() for v in values],
                label=label,
                low=[v.min() for v in values],
                high=[v.max() for v in values],
                heads="muted" if layers == 1 else "ink",
                dash=layers == 1,
                points=True,
            )
        )
    ((_, length),) = {(0, t) for _, t in found.cells("layers2", 4)}
    low = min(min(curve.y) for curve in curves)
    runs = len(next(iter(found.cells("layers2", 4).values())).runs)
    return curve_chart(
        [CurvePanel("error", curves, errors_axis(low), height=200)],
        title="Two layers share the work",
        description="Two layers of two heads are about as good as one layer of four.",
        caption=f"Four coordinates, T = {length}, encoder with a hidden layer, {runs} seeds: best and range.",
        axis=Axis("layers × heads", domain=(1.8, 4.2), ticks=range(2, 5), scale="linear"),
    )


def stuck(found: Findings) -> Figure:
    """Every seed with as many heads as coordinates: those that stayed at the error of fewer heads."""
    (made,) = found.cells("stuck", 4).values()
    share = made.stuck
    rows = [
        _strip(made, f"{made.job.ways[0].plan().steps} steps, {len(made.runs)} seeds"),
        *(
            _strip(cell, f"{cell.job.ways[0].plan().steps} steps, {len(cell.runs)} seeds")
            for d in found.tables("linear")
            for (h, t), cell in sorted(found.cells("linear", d).items())
            if h == d and t == max(length for _, length in found.cells("linear", d))
        ),
    ]
    values = [value for row in rows for value in row.values]
    return strip_chart(
        rows,
        title="Seeds that got stuck",
        description=f"{share.successes} of {share.trials} seeds are stuck.",
        caption="As many heads as coordinates, linear encoder, T = 128. A seed is stuck where its error stays at "
        f"10⁻³ or above: {share.successes} of {share.trials}, 95 % interval {share.low:.3f} to {share.high:.3f}.",
        axis=Axis(
            "error on unseen sequences, one dot a seed",
            domain=errors_axis(min(values)).domain,
            ticks=errors_axis(min(values)).ticks,
            format=power,
            scale="log",
        ),
        result_heading="stuck",
    )


def _strip(made: Trained, label: str) -> StripRow:
    share = made.stuck
    return StripRow(
        f"{made.job.heads} heads",
        made.errors,
        note=label,
        heads="ink",
        result=f"{share.successes} of {share.trials}",
    )
