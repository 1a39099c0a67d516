"""The figures of the sparse parity report: the study's results in the words of its reader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyses.study.xor.look import ABLATIONS
from analyses.study.xor.maps import MapResult
from analyses.study.xor.measure import Results, Samples, median_seed
from analyses.study.xor.networks import smallest_networks
from analyses.study.xor.parity import STARTS
from analyses.study.xor.samples import SampleCurve
from interp.render import (
    AttentionTile,
    Axis,
    Curve,
    CurvePanel,
    Figure,
    Level,
    ScoreStrip,
    StripRow,
    attention_tiles,
    curve_chart,
    effect_grid,
    number,
    percent,
    strip_chart,
    usage_chart,
)

LETTERS = ("A", "B")
TILE_TOKENS = 6
NAMES = {
    "softmax": "softmax",
    "linear": "linear",
    "erf": "erf",
    "normalised-linear": "linear, normalised",
    "normalised-erf": "erf, normalised",
}


SHOWN_SEEDS = 16  # dots a row of a strip; more of them make it a tower


def _scientific(value: float) -> str:
    """`0.01`, `30`, `3.2 × 10⁵`: a size for a reader."""
    if 0.001 <= value < 1000:
        return f"{value:.3g}"
    exponent = int(np.floor(np.log10(value) + 1e-9))
    digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    mantissa = value / 10.0**exponent
    return f"10{digits}" if abs(mantissa - 1) < 0.05 else f"{mantissa:.1f} × 10{digits}"


def _whole(value: float) -> str:
    return percent(value, 0)


def one_step_curves(results: Results) -> Figure:
    """Success of one step against d, for several widths, with the intervals of m = 6 ln d."""
    bars = results.bars
    curves = []
    factors = sorted(results.widths)
    for rank, factor in enumerate(factors):
        cells = results.widths[factor]
        if factor == 6:
            continue
        curves.append(
            Curve(
                [c.bits for c in cells],
                [c.one_to_one.value for c in cells],
                label=f"m = {factor:g} ln d",
                heads="muted",
                dash=True,
                fade=0.5 * (1 - rank / max(1, len(factors) - 1)),
            )
        )
    curves.append(
        Curve(
            [c.bits for c in bars],
            [c.one_to_one.value for c in bars],
            label="m = 6 ln d",
            low=[c.one_to_one.low for c in bars],
            high=[c.one_to_one.high for c in bars],
            points=True,
        )
    )
    lowest = min(
        [c.one_to_one.value for cells in results.widths.values() for c in cells] + [c.one_to_one.low for c in bars]
    )
    seeds = f"{min(c.seeds for c in bars)} to {max(c.seeds for c in bars)} seeds"
    return curve_chart(
        [
            CurvePanel(
                "seeds with each head on a target of its own",
                curves,
                axis=Axis(domain=(max(0.0, np.floor(10 * lowest) / 10), 1.0), format=_whole),
                height=260,
            )
        ],
        axis=Axis("bits d", scale="log"),
        title="One step",
        description=f"At m = 6 ln d the share of seeds rises from {percent(bars[0].one_to_one.value, 0)} at d = "
        f"{number(bars[0].bits)} to {percent(bars[-1].one_to_one.value, 0)} at d = {number(bars[-1].bits)}.",
        caption=f"One step on the exact population loss from the antisymmetric start, {seeds} a point at m = 6 ln d "
        "(band: exact 95 % interval). The loss needs no samples: it is a polynomial in power sums of the attention.",
    )


def step_sizes(results: Results) -> Figure:
    """Success and sharpness against the size of the step."""
    cells = results.kappas
    unit = np.sqrt(cells[0].width) * np.log(cells[0].bits)
    x = [c.kappa / unit for c in cells]
    return curve_chart(
        [
            CurvePanel(
                "share of seeds",
                [
                    Curve(
                        x,
                        [c.one_to_one.value for c in cells],
                        label="one to one",
                        low=[c.one_to_one.low for c in cells],
                        high=[c.one_to_one.high for c in cells],
                        points=True,
                    ),
                    Curve(
                        x,
                        [float((c.attention > 0.99).sum()) / c.seeds for c in cells],
                        label="and attention over .99",
                        dash=True,
                        points=True,
                    ),
                ],
                axis=Axis(domain=(0.0, 1.0), format=_whole),
            )
        ],
        axis=Axis("step size κ in units of √m ln d (η = κ d² / 2)", scale="log"),
        title="How large a step",
        description="Success does not depend on the step size once it is large; sharpness does.",
        caption=f"d = {cells[0].bits}, m = {cells[0].width}, {cells[0].seeds} seeds a point. There is no upper limit: "
        "a larger step only sharpens what the first gradient chose.",
    )


def attention_before_and_after(results: Results) -> Figure:
    """Where both heads look before and after one step, on the positions that matter most."""
    row = median_seed(results)
    look, task = results.looks[row], results.shown
    before = results.before[row][list(look.order)]
    others = np.argsort(-(before.max(0) + look.attention.max(0)), kind="stable")
    shown = [*task.targets, *[p for p in others.tolist() if p not in task.targets]][:TILE_TOKENS]
    tokens = [f"x{position}" for position in shown]
    tiles = [
        AttentionTile(LETTERS[head], label, table[head][shown].clip(0, 1), tokens)
        for label, table in (("before", before), ("after one step", look.attention))
        for head in range(2)
    ]
    return attention_tiles(
        tiles,
        title="Attention before and after",
        description=f"After one step head A gives x{task.targets[0]} {look.attention[0, task.targets[0]]:.3f}, head B "
        f"gives x{task.targets[1]} {look.attention[1, task.targets[1]]:.3f}.",
        caption=f"d = {task.bits}, the seed of median alignment, attention of the CLS on the two targets and the "
        f"{TILE_TOKENS - 2} other positions with the most. A head has the letter of its target.",
    )


def which_bit(results: Results) -> Figure:
    """Which head carries which bit: what patching its output restores, and what ablating it costs."""
    looks = results.looks
    contrasts = list(looks[0].patched)
    names = {"target-0": "target A flipped", "target-1": "target B flipped", "background": "other bit flipped"}
    patched = np.median([[look.patched[name] for name in contrasts] for look in looks], axis=0).T
    return effect_grid(
        patched,
        rows=["head A", "head B"],
        columns=[names.get(name, name) for name in contrasts],
        limit=1.0,
        unit="share of the gap restored",
        title="Which head carries which bit",
        description="The output of head A restores the flip of target A whole, that of head B the flip of target B, "
        "and neither the other's.",
        caption=f"Median of {len(looks)} seeds after one step, d = {results.shown.bits}. Source and destination "
        "runs differ in one bit; the head's output at the CLS is taken from the source. A background flip changes "
        "nothing, so there is nothing to restore. Ablated by "
        + "; ".join(
            f"{kind}: loss +{np.median([l.lost[kind][0] for l in looks]):.2f} and "
            f"+{np.median([l.lost[kind][1] for l in looks]):.2f}"
            for kind in ABLATIONS
        )
        + " (A and B).",
    )


def usage(results: Results) -> Figure:
    """Role usage of the median seed, and the specialisation of all seeds beside untrained models."""
    look = results.looks[median_seed(results)]
    scores = [0.0 if l.score.specialisation is None else l.score.specialisation for l in results.looks]
    return usage_chart(
        look.score.usage[list(look.order)],
        heads=LETTERS,
        roles=["reads target A", "reads target B"],
        score=ScoreStrip(
            scores,
            results.chance,
            label="specialisation S",
            note="1: each head has a target of its own",
            chance_label="untrained",
            chance_note=f"{len(results.chance)} models",
            value_label="one step",
            value_note=f"{len(scores)} seeds",
        ),
        title="Who reads what",
        description=f"Median specialisation {np.median(scores):.3f} after one step, {np.median(results.chance):.3f} "
        "untrained.",
        caption="Left: the share of a head's own movement that comes from a target, chance taken off, in the seed of "
        "median alignment. Right: every seed.",
    )


def small_steps(results: Results) -> Figure:
    """The alignment of both heads in small steps."""
    traced = results.traced
    order = sorted(range(len(traced.heads)), key=lambda head: str(traced.targets[head]))
    return curve_chart(
        [
            CurvePanel(
                "alignment with its target",
                [
                    Curve(traced.steps, traced.scores[:, head], label=f"head {LETTERS[rank]}", heads=LETTERS[rank])
                    for rank, head in enumerate(order)
                ],
                axis=Axis(domain=(0.0, 1.0)),
            )
        ],
        axis=Axis("step", scale="log1p"),
        title="The same in small steps",
        description=f"Alignment rises from {traced.alignment[0]:.3f} to {traced.alignment[-1]:.3f}.",
        caption=f"d = {results.shown.bits}, one seed, steps of κ = 1/2. Alignment is attention on the head's target, "
        "corrected for chance.",
    )


def _rows(found: Sequence[MapResult], many: bool) -> list[StripRow]:
    rows = []
    for each in found:
        values = each.many if many else each.once
        loss = float(np.median(each.many_loss if many else each.once_loss))
        rows.append(
            StripRow(
                NAMES[each.kind],
                values[:SHOWN_SEEDS],
                note=f"η = {_scientific(each.many_size if many else each.once_size)}",
                heads=LETTERS,
                result=f"{np.median(values):.3f}",
                result_note=f"loss {loss:.2f}" if loss < 10 else f"loss {_scientific(float(round(loss)))}",
            )
        )
    return rows


def attention_maps(results: Results) -> list[Figure]:
    """Alignment with each attention map: after one step, and after many from either start."""
    paired = [each for each in results.maps if each.start == "antisymmetric"]
    independent = [each for each in results.maps if each.start == "independent"]
    best = max(float(np.median(each.once)) for each in paired if each.kind != "softmax")
    axis = Axis("alignment, one dot per seed", domain=(0.0, 1.0), ticks=[0, 0.25, 0.5, 0.75, 1.0])
    once = strip_chart(
        _rows(paired, many=False),
        axis=axis,
        result_heading="median",
        title="One step with each attention map",
        description=f"Softmax aligns to {np.median(paired[0].once):.2f}, every other map to at most {best:.2f}.",
        caption=f"One step, for each map the best of the same step sizes. {len(paired[0].once)} seeds, of which "
        f"{min(SHOWN_SEEDS, len(paired[0].once))} are drawn, antisymmetric start.",
    )
    figures = [once]
    if independent:
        figures.append(
            strip_chart(
                _rows(independent, many=True),
                axis=axis,
                result_heading="median",
                title="Many steps with each attention map",
                description="Only softmax concentrates on its targets, also after many steps from independent starts.",
                caption=f"{max(independent[0].steps)} steps at the size of the smallest loss, independent starts, "
                f"{len(independent[0].many)} seeds. Linear and erf attention have the right largest position and "
                "spread the rest of their weight over all others.",
            )
        )
    return figures


def starts(results: Results) -> Figure:
    """How often both heads take one target, by start."""
    styles = {"antisymmetric": ("ink", False), "independent": ("muted", False), "orthogonal": ("muted", True)}
    curves = []
    for start, (colour, dash) in styles.items():
        cells = results.starts[start]
        curves.append(
            Curve(
                [c.bits for c in cells],
                [c.together.value for c in cells],
                label=start,
                low=[c.together.low for c in cells] if start != "orthogonal" else None,
                high=[c.together.high for c in cells] if start != "orthogonal" else None,
                heads=colour,
                dash=dash,
                points=True,
            )
        )
    equal = results.starts["equal"]
    return curve_chart(
        [CurvePanel("seeds with both heads on one target", curves, axis=Axis(format=_whole))],
        axis=Axis("bits d", scale="log"),
        title="Starts",
        description="Both heads take one target less often the larger d is, from any start with two different queries.",
        caption=f"One step, m = 6 ln d, {equal[0].seeds} seeds a point, the same position vectors for every start; "
        f"bands: exact 95 % intervals. Two equal queries, the control, end on one target in "
        f"{percent(float(np.mean([c.together.value for c in equal])), 1)}.",
    )


def _share_curves(curves: Sequence[SampleCurve]) -> list[Curve]:
    drawn = []
    for rank, curve in enumerate(curves):
        drawn.append(
            Curve(
                np.asarray(curve.counts) / curve.bits**2,
                curve.one_to_one.mean(axis=0),
                label=f"d = {curve.bits}",
                fade=0.6 * (1 - rank / max(1, len(curves) - 1)),
            )
        )
    return drawn


def sample_success(samples: Samples) -> Figure:
    """One step on n samples: success against n / d^2."""
    return curve_chart(
        [
            CurvePanel(
                "seeds with each head on a target of its own",
                _share_curves(samples.once),
                axis=Axis(domain=(0.0, 1.0), format=_whole),
                levels=[Level(0.5, "one half", kind="chance")],
            )
        ],
        axis=Axis("samples n / d²", scale="log"),
        title="One step on samples",
        description="The curves of all d fall on each other once n is counted in d².",
        caption=f"One large step on the first n of a stream of samples, {min(len(c.one_to_one) for c in samples.once)} "
        f"to {max(len(c.one_to_one) for c in samples.once)} seeds a curve.",
    )


def samples_needed(samples: Samples) -> Figure:
    """Samples for one half of the seeds against d, with the fitted exponents."""
    named = (
        (samples.once_exponent, "one step", "ink", False),
        (samples.many_exponent, "many steps", "muted", False),
        (samples.wide_exponent, "many steps, m = d", "muted", True),
    )
    curves = [
        Curve(
            list(each.needed),
            list(each.needed.values()),
            label=label,
            note=f"n ~ d^{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]",
            heads=colour,
            dash=dash,
            points=True,
        )
        for each, label, colour, dash in named
    ]
    once, many = samples.once_exponent, samples.many_exponent
    return curve_chart(
        [CurvePanel("samples for half of the seeds", curves, axis=Axis(scale="log", format=_scientific), height=260)],
        axis=Axis("bits d", scale="log"),
        title="Samples needed",
        description=f"One step needs samples as d to the {once.value:.2f}, many steps as d to the {many.value:.2f}.",
        caption="n at which half of the seeds have each head on a target of its own. Many steps: 150 normalised steps "
        "of length 1/2 on fixed samples. Exponents with 95 % bootstrap intervals over seeds.",
    )


def parameters(results: Results) -> Figure:
    """Trainable parameters against d: the smallest networks and attention models that learn."""
    nets, attention = smallest_networks(results.networks), results.attention
    four = {n.bits: n.parameters for n in results.networks if n.neurons == 4 and n.learned.value >= 0.5}
    sizes = np.geomspace(min(attention), max(attention), 24)
    return curve_chart(
        [
            CurvePanel(
                "trainable parameters",
                [
                    Curve(sorted(four), [four[b] for b in sorted(four)], label="four neurons, 4d + 9", points=True),
                    Curve(
                        sorted(nets),
                        [nets[b].parameters for b in sorted(nets)],
                        label="smallest network",
                        heads="muted",
                        dash=True,
                        points=True,
                    ),
                    Curve(
                        sorted(attention),
                        [2 * attention[b].width for b in sorted(attention)],
                        label="smallest attention, 2m",
                        points=True,
                    ),
                    Curve(sizes, 12 * np.log(sizes), label="m = 6 ln d", heads="muted", dash=True),
                ],
                axis=Axis(scale="log"),
                height=260,
            )
        ],
        axis=Axis("bits d", scale="log"),
        title="Parameters",
        description="Networks that learn have parameters in proportion to d; the queries of attention grow as ln d.",
        caption="Smallest sizes that learn: networks by Adam on fresh samples within 250 steps (90 % of the seeds), "
        "attention by one population step (75 % of the seeds). The position vectors of attention, d m numbers, are "
        "frozen and not counted. No network is claimed to fail.",
    )


def more_bits(results: Results) -> Figure:
    """Share of one-to-one seeds for k > 2, by method, start, k and d."""
    cells = results.parity
    methods = list(dict.fromkeys(c.method for c in cells))
    starting = [start for start in STARTS if any(c.start == start for c in cells)]
    columns = list(dict.fromkeys((c.heads, c.bits) for c in cells))
    table = np.full((len(methods), len(starting), len(columns)), np.nan)
    for c in cells:
        place = methods.index(c.method), starting.index(c.start), columns.index((c.heads, c.bits))
        table[place] = c.one_to_one.value
    return effect_grid(
        table,
        rows=starting,
        columns=[f"k={heads} d={bits}" for heads, bits in columns],
        panels=[
            {"one-step": "one step", "normalised": "normalised steps", "in-turn": "heads in turn"}[m] for m in methods
        ],
        limit=1.0,
        missing="an odd number of heads has no antisymmetric start",
        unit="share of seeds",
        title="More than two bits",
        description="One step is near chance for k > 2; 150 normalised steps are right from every start.",
        caption=f"Share of {cells[0].one_to_one.trials} seeds with each head on a target of its own, m = 6 ln d. "
        "Normalised: 150 steps of length 1/2, all heads at once. In turn: 4k steps of length 100, one head each.",
    )
