"""The figures of the two heads: where they look, which bit each carries, how small steps bring them there."""

from __future__ import annotations

import numpy as np

from headlab.analyses.study.xor.look import ABLATIONS
from headlab.analyses.study.xor.measure import Results, median_seed
from headlab.interp.render import (
    AttentionTile,
    Axis,
    Curve,
    CurvePanel,
    Figure,
    ScoreStrip,
    attention_tiles,
    curve_chart,
    effect_grid,
    usage_chart,
)

LETTERS = ("A", "B")
TILE_TOKENS = 6


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
