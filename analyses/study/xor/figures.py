"""The figures of the sparse XOR report, drawn from the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headlab.analyses.study.record import Record
from headlab.analyses.study.words import Words, scientific, whole
from headlab.analyses.study.xor.evidence import SAMPLED, by_start, pooled
from headlab.analyses.study.xor.plan import width_of
from headlab.analyses.study.xor.told import smallest_networks
from headlab.interp.render import (
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
    strip_chart,
    usage_chart,
)

LETTERS = ("A", "B")
TILE_TOKENS = 6
SHOWN_SEEDS = 16  # dots a row of a strip; more of them make it a tower
HEIGHT = 260
MAP_NAMES = {
    "softmax": "softmax",
    "linear": "linear",
    "erf": "erf",
    "normalised-linear": "linear, normalised",
    "normalised-erf": "erf, normalised",
}
METHOD_NAMES = {"one-step": "one step", "normalised": "normalised steps", "in-turn": "heads in turn"}
CONTRAST_NAMES = {"target-0": "target A flipped", "target-1": "target B flipped", "background": "other bit flipped"}
BITS = Axis("bits d", scale="log")
Rows = Sequence[dict[str, Any]]


def _shares(rows: Rows, count: str, x: str, *, band: bool = True, **look: Any) -> Curve:
    """The share of `count` against the column `x`, with its exact interval."""
    each = [pooled([row], count) for row in rows]
    bounds = {"low": [s.low for s in each], "high": [s.high for s in each]} if band else {}
    return Curve([row[x] for row in rows], [s.value for s in each], points=True, **bounds, **look)


def one_step(record: Record, words: Words) -> Figure:
    """Success of one step against d, for several widths, with the intervals of m = 6 ln d."""
    sizes, others = record.rows("steps", group="size"), record.rows("steps", group="width")
    factors = sorted({row["factor"] for row in others})
    curves = [
        _shares(
            [row for row in others if row["factor"] == factor],
            "one_to_one",
            "bits",
            band=False,
            label=f"m = {factor:g} ln d",
            heads="muted",
            dash=True,
            fade=0.5 * (1 - rank / max(1, len(factors) - 1)),
        )
        for rank, factor in enumerate(factors)
    ]
    curves.append(_shares(sizes, "one_to_one", "bits", label="m = 6 ln d"))
    lowest = min(pooled([row], "one_to_one").low for row in (*sizes, *others))
    axis = Axis(domain=(max(0.0, np.floor(10 * lowest) / 10), 1.0), format=whole)
    seeds = [row["seeds"] for row in sizes]
    text = words("one_step", fewest=min(seeds), most=max(seeds))
    return curve_chart(
        [CurvePanel("seeds with each head on a target of its own", curves, axis=axis, height=HEIGHT)], axis=BITS, **text
    )


def step_sizes(record: Record, words: Words) -> Figure:
    """Success and sharpness against the size of the step."""
    unit = "share of √m ln d"
    cells = record.rows("steps", group="kappa")
    cells = [row | {unit: row["kappa"] / (np.sqrt(row["width"]) * np.log(row["bits"]))} for row in cells]
    curves = [
        _shares(cells, "one_to_one", unit, label="one to one"),
        _shares(cells, "sharp", unit, band=False, label="and attention over .99", dash=True),
    ]
    return curve_chart(
        [CurvePanel("share of seeds", curves, axis=Axis(domain=(0.0, 1.0), format=whole))],
        axis=Axis("step size κ in units of √m ln d (η = κ d² / 2)", scale="log"),
        **words("step_sizes", **cells[0]),
    )


def angles(record: Record, words: Words) -> Figure:
    """How often both heads take one target, by the angle between the queries."""
    rows = record.rows("angles")
    sizes = sorted({row["bits"] for row in rows})
    curves = [
        _shares(
            [row for row in rows if row["bits"] == bits],
            "together",
            "angle",
            label=f"d = {bits}",
            fade=0.6 * (1 - rank / max(1, len(sizes) - 1)),
        )
        for rank, bits in enumerate(sizes)
    ]
    return curve_chart(
        [CurvePanel("seeds with both heads on one target", curves, axis=Axis(format=whole), height=HEIGHT)],
        axis=Axis("angle between the queries, degrees", scale="log"),
        **words("angles", seeds=rows[0]["seeds"]),
    )


def starts(record: Record, words: Words) -> Figure:
    """How often both heads take one target, by start."""
    looks = {"antisymmetric": ("ink", False), "independent": ("muted", False), "orthogonal": ("muted", True)}
    cells = by_start(record)
    curves = [
        _shares(cells[start], "together", "bits", band=not dash, label=start, heads=colour, dash=dash)
        for start, (colour, dash) in looks.items()
    ]
    text = words("starts", seeds=cells["equal"][0]["seeds"])
    return curve_chart(
        [CurvePanel("seeds with both heads on one target", curves, axis=Axis(format=whole))], axis=BITS, **text
    )


def attention(record: Record, words: Words) -> Figure:
    """Where both heads look before and after one step, on the positions that matter most."""
    before, after = record.array("attention")
    shown = record.one("shown")
    targets = [shown["target_A"], shown["target_B"]]
    order = np.argsort(-(before.max(0) + after.max(0)), kind="stable").tolist()
    positions = [*targets, *[each for each in order if each not in targets]][:TILE_TOKENS]
    tiles = [
        AttentionTile(LETTERS[head], label, table[head][positions].clip(0, 1), [f"x{each}" for each in positions])
        for label, table in (("before", before), ("after one step", after))
        for head in range(2)
    ]
    at = {"a": after[0, targets[0]], "b": after[1, targets[1]], "others": TILE_TOKENS - 2}
    return attention_tiles(tiles, **words("attention", **at))


def which_bit(record: Record, words: Words) -> Figure:
    """Which head carries which bit: what patching its output restores, and what ablating it costs."""
    patched = record.table("patched").groupby(["head", "contrast"], sort=False).restored.median().unstack()
    lost = record.table("ablated").groupby(["kind", "head"], sort=False).loss_added.median().unstack()
    text = words("which_bit", seeds=len(record.rows("trained")), ablated=lost.to_dict("index"))
    return effect_grid(
        patched.to_numpy(),
        rows=[f"head {letter}" for letter in patched.index],
        columns=[CONTRAST_NAMES.get(str(name), str(name)) for name in patched.columns],
        limit=1.0,
        unit="share of the gap restored",
        **text,
    )


def usage(record: Record, words: Words) -> Figure:
    """Role usage of the seed that is shown, and the specialisation of all seeds beside untrained models."""
    trained = [row["specialisation"] for row in record.rows("trained")]
    untrained = [row["specialisation"] for row in record.rows("untrained")]
    strip = ScoreStrip(
        trained,
        untrained,
        label="specialisation S",
        note="1: each head has a target of its own",
        chance_label="untrained",
        chance_note=f"{len(untrained)} models",
        value_label="one step",
        value_note=f"{len(trained)} seeds",
    )
    text = words("usage", trained=float(np.median(trained)), untrained=float(np.median(untrained)))
    roles = ["reads target A", "reads target B"]
    return usage_chart(record.array("usage"), heads=LETTERS, roles=roles, score=strip, **text)


def small_steps(record: Record, words: Words) -> Figure:
    """The alignment of both heads in small steps."""
    rows = record.rows("alignment")
    heads = sorted(
        {row["head"] for row in rows}, key=lambda head: str(next(r["target"] for r in rows if r["head"] == head))
    )
    curves = [
        Curve([r["step"] for r in own], [r["score"] for r in own], label=f"head {letter}", heads=letter)
        for letter, head in zip(LETTERS, heads, strict=True)
        if (own := [row for row in rows if row["head"] == head])
    ]
    panel = CurvePanel("alignment with its target", curves, axis=Axis(domain=(0.0, 1.0)))
    text = words("small_steps", first=rows[0]["alignment"], end=rows[-1]["alignment"])
    return curve_chart([panel], axis=Axis("step", scale="log1p"), **text)


def maps_once(record: Record, words: Words) -> Figure:
    """Alignment with each attention map after one step."""
    return _maps(record, words, "one", "antisymmetric")


def maps_many(record: Record, words: Words) -> Figure:
    """The same after many steps from independent starts."""
    return _maps(record, words, "many", "independent")


def _maps(record: Record, words: Words, steps: str, start: str) -> Figure:
    rows, cells = [], record.rows("maps", start=start)
    seeds = [len(record.rows("map_seeds", start=start, steps=steps, map=cell["map"])) for cell in cells]
    for cell in cells:
        own = record.table("map_seeds", start=start, steps=steps, map=cell["map"])
        loss = float(own.loss.median())
        rows.append(
            StripRow(
                MAP_NAMES[cell["map"]],
                own.alignment.to_list()[:SHOWN_SEEDS],
                note=f"η = {scientific(cell['once_size' if steps == 'one' else 'many_size'])}",
                heads=LETTERS,
                result=f"{own.alignment.median():.3f}",
                result_note=f"loss {loss:.2f}" if loss < 10 else f"loss {scientific(float(round(loss)))}",
            )
        )
    axis = Axis("alignment, one dot per seed", domain=(0.0, 1.0), ticks=[0, 0.25, 0.5, 0.75, 1.0])
    about = {"seeds": seeds[0], "drawn": min(SHOWN_SEEDS, seeds[0]), "steps": max(cell["steps"] for cell in cells)}
    name = "maps_once" if steps == "one" else "maps_many"
    return strip_chart(rows, axis=axis, result_heading="median", **words(name, **about))


def sample_success(record: Record, words: Words) -> Figure:
    """One step on n samples at m = 6 ln d: success against n / d²."""
    rows = [row for row in record.rows("samples", method="one step") if row["width"] == width_of(row["bits"])]
    own = {bits: [row for row in rows if row["bits"] == bits] for bits in dict.fromkeys(row["bits"] for row in rows)}
    seeds = [each[0]["seeds"] for each in own.values()]
    curves = [
        Curve(
            [row["samples"] / bits**2 for row in own[bits]],
            [row["one_to_one"] / row["seeds"] for row in own[bits]],
            label=f"d = {bits}",
            fade=0.6 * (1 - rank / max(1, len(own) - 1)),
        )
        for rank, bits in enumerate(sorted(own))
    ]
    panel = CurvePanel(
        "seeds with each head on a target of its own",
        curves,
        axis=Axis(domain=(0.0, 1.0), format=whole),
        levels=[Level(0.5, "one half", kind="chance")],
    )
    text = words("sample_success", fewest=min(seeds), most=max(seeds))
    return curve_chart([panel], axis=Axis("samples n / d²", scale="log"), **text)


def samples_needed(record: Record, words: Words) -> Figure:
    """Samples for one half of the seeds against d, with the fitted exponents."""
    curves = []
    for method, colour, dash in (
        ("one step", "ink", False),
        ("many steps", "muted", False),
        ("many steps, m = d", "muted", True),
    ):
        chosen = {"method": method, "which": "one_to_one", "by": "bits"}
        rows, fit = record.rows("samples_needed", **chosen), record.one("exponents", **chosen)
        note = f"n ~ d^{fit['value']:.2f} [{fit['low']:.2f}, {fit['high']:.2f}]"
        x, y = [row["size"] for row in rows], [row["samples"] for row in rows]
        curves.append(Curve(x, y, label=method, note=note, heads=colour, dash=dash, points=True))
    panel = CurvePanel(
        "samples for half of the seeds", curves, axis=Axis(scale="log", format=scientific), height=HEIGHT
    )
    return curve_chart([panel], axis=BITS, **words("samples_needed"))


def parameters(record: Record, words: Words) -> Figure:
    """Trainable parameters against d: the smallest networks and attention models that learn."""
    nets, small = smallest_networks(record), record.rows("smallest_attention")
    four = [row for row in record.rows("networks", neurons=4) if row["learned"] >= 0.5 * row["seeds"]]
    sizes = np.geomspace(small[0]["bits"], small[-1]["bits"], 24)

    def curve(rows: Rows, y: Sequence[float | int], **look: Any) -> Curve:
        return Curve([row["bits"] for row in rows], y, points=True, **look)

    best = list(nets.values())
    curves = [
        curve(four, [row["parameters"] for row in four], label="four neurons, 4d + 9"),
        curve(best, [row["parameters"] for row in best], label="smallest network", heads="muted", dash=True),
        curve(small, [2 * row["width"] for row in small], label="smallest attention, 2m"),
        Curve(sizes, 12 * np.log(sizes), label="m = 6 ln d", heads="muted", dash=True),
    ]
    panel = CurvePanel("trainable parameters", curves, axis=Axis(scale="log"), height=HEIGHT)
    return curve_chart([panel], axis=BITS, **words("parameters"))


def more_bits(record: Record, words: Words) -> Figure:
    """Share of one-to-one seeds for k > 2, by method, start, k and d."""
    rows = record.rows("parity")
    methods, starting = (list(dict.fromkeys(row[name] for row in rows)) for name in ("method", "start"))
    columns = list(dict.fromkeys((row["heads"], row["bits"]) for row in rows))
    table = np.full((len(methods), len(starting), len(columns)), np.nan)
    for row in rows:
        at = methods.index(row["method"]), starting.index(row["start"]), columns.index((row["heads"], row["bits"]))
        table[at] = row["one_to_one"] / row["seeds"]
    return effect_grid(
        table,
        rows=starting,
        columns=[f"k={heads} d={bits}" for heads, bits in columns],
        panels=[METHOD_NAMES[each] for each in methods],
        limit=1.0,
        missing="an odd number of heads has no antisymmetric start",
        unit="share of seeds",
        **words("more_bits", seeds=rows[0]["seeds"]),
    )


FIGURES = {
    "one_step": (one_step, "one-step", "widths"),
    "step_sizes": (step_sizes, "step-sizes"),
    "attention": (attention, "heads"),
    "which_bit": (which_bit, "heads"),
    "usage": (usage, "heads"),
    "small_steps": (small_steps, "heads"),
    "maps_once": (maps_once, "maps"),
    "maps_many": (maps_many, "maps"),
    "angles": (angles, "angles"),
    "starts": (starts, "starts"),
    "sample_success": (sample_success, *SAMPLED),
    "samples_needed": (samples_needed, *SAMPLED),
    "parameters": (parameters, "networks", "smallest-attention"),
    "more_bits": (more_bits, "parity"),
}


def figures(record: Record, words: Words) -> dict[str, Figure]:
    """Every figure whose parts were measured, by name."""
    return record.given(FIGURES, words)
