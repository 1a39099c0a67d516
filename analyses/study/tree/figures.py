"""The figures of the path-finding report: what was found, in the words of its reader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.analyses.study.tree.findings import Findings
from headlab.analyses.study.tree.measure import CONTRAST_ROLE
from headlab.analyses.study.tree.records import Look, Run
from headlab.analyses.study.tree.verdicts import FIGURES, percent
from headlab.analyses.study.tree.circuits import RIGHT, label_circuits
from headlab.interp.model import activations, untouched
from headlab.interp.render import (
    Axis,
    Curve,
    CurvePanel,
    Figure,
    Head,
    Level,
    Phase,
    ScoreStrip,
    attention_patterns,
    bold,
    curve_chart,
    effect_grid,
    usage_chart,
)
from headlab.models.hooked import HookedTransformer
from headlab.models.tree.constructed import construct
from headlab.models.tree.task import TreeTask

LETTER = {"backward": "A", "reverse": "B"}
SHOWN_LABELS = 12


def accuracy_by_depth(found: Findings) -> Figure:
    """Whole paths right over the depth of the goal: two heads, one head, the digest, no chain of thought."""
    two, one = found.jobs("forward-h2"), found.jobs("forward-h1")
    depths = sorted(two)
    mean = [100 * float(two[d].accuracy.mean()) for d in depths]
    low = [100 * float(two[d].accuracy.min()) for d in depths]
    high = [100 * float(two[d].accuracy.max()) for d in depths]
    digest = [100 * FIGURES["T2"][f"d{d}"] for d in depths]
    alone = [100 * float(one[d].accuracy.mean()) for d in sorted(one)]
    axis = Axis("depth of the goal", domain=(min(depths), max(depths)), ticks=depths, scale="linear")
    whole = [
        Curve(depths, mean, label="two heads", heads=("A", "B"), points=True),
        Curve(sorted(one), alone, label="one head", heads="one", points=True),
    ]
    without = _without_chain(found)
    if without:
        best = [100 * max(rows.values()) for rows in without.values()]
        whole.append(Curve(list(without), best, label="no chain, best", heads="muted", dash=True, points=True))
    near = [
        Curve(depths, mean, label="two heads", low=low, high=high, heads=("A", "B"), points=True),
        Curve(depths, digest, label="digest, 4 to 8 heads", heads="muted", dash=True, points=True),
    ]
    return curve_chart(
        [
            CurvePanel("paths right, %", whole, Axis(domain=(0, 100), ticks=(0, 50, 100)), height=120),
            CurvePanel("the same, near 100", near, Axis(domain=(93, 100.2), ticks=(94, 96, 98, 100))),
        ],
        title="Whole paths right by depth",
        description=f"Two heads stay at {percent(min(low) / 100)} or more to depth {max(depths)}; one head stays at "
        f"{percent(max(alone) / 100)} or less.",
        caption=f"Forward reasoning, one layer. Unseen trees, {two[depths[0]].runs[0].paths} a seed; a path counts "
        f"only if every token of it is right. Line: mean of {len(two[depths[0]].runs)} seeds, band: all of them. The "
        "digest's figures are for 4, 4, 6 and 8 heads.",
        axis=axis,
    )


def _without_chain(found: Findings) -> dict[int, dict[int, float]]:
    """depth -> layers -> path accuracy without a chain of thought."""
    table: dict[int, dict[int, float]] = {}
    for name, job in found.trained.items():
        if name.startswith("without-chain"):
            layers, depth = name.removeprefix("without-chain-l").split("-d")
            table.setdefault(int(depth), {})[int(layers)] = float(job.accuracy.mean())
    return dict(sorted(table.items()))


def layers_without_chain(found: Findings) -> Figure | None:
    """Without a chain of thought: paths right over the number of layers, a curve a depth, and what guessing gives."""
    table = {depth: rows for depth, rows in _without_chain(found).items() if len(rows) > 1}
    if not table:
        return None
    curves = [
        Curve(sorted(rows), [100 * rows[k] for k in sorted(rows)], label=f"depth {depth}", fade=0.2 * i, points=True)
        for i, (depth, rows) in enumerate(table.items())
    ]
    levels = [Level(100 * found.guess[min(table)], f"guessing, depth {min(table)}", kind="chance")]
    best = max((value, layers, depth) for depth, rows in table.items() for layers, value in rows.items())
    steps = next(job.steps for name, job in found.trained.items() if name.startswith("without-chain"))
    top = max(30.0, 10 * np.ceil(10 * best[0]))
    return curve_chart(
        [CurvePanel("paths right, %", curves, Axis(domain=(0, top)), levels)],
        title="Without a chain of thought",
        description=f"At best {percent(best[0], 1)}, with {best[1]} layers at depth {best[2]}.",
        caption=f"Root to goal at once, four heads a layer, {steps} steps, one seed a point: an honest budget, not a "
        "limit. The dotted line guesses one of the tree's deepest nodes.",
        axis=Axis("layers", scale="linear", ticks=range(1, 7)),
    )


def training_phases(look: Look) -> Figure:
    """One seed over training: accuracy by stage, what its heads attend to, and the specialisation, with the phases."""
    curves = look.formation.curves
    names = {role: f"usage {role}" for role in LETTER}
    steps = curves["specialisation"][0]
    first = look.formation.first
    phases = [Phase(0, "I", "search")]
    order = ("reverse", "backward") if first != "backward" else ("backward", "reverse")
    for numeral, role in zip(("II", "III"), order, strict=True):
        phases.append(Phase(look.formation.span(names[role])[0], numeral, f"{role} heads form"))
    end = max(look.formation.span(name)[1] for name in names.values())
    phases.append(Phase(end, "IV", "both"))
    phases = [phase for k, phase in enumerate(phases) if k == 0 or float(phase.start) > float(phases[k - 1].start)]

    def by_role(form: str, scale: float = 1.0) -> list[Curve]:
        return [
            Curve(*(curves[form.format(role)][0], scale * curves[form.format(role)][1]), label=role, heads=LETTER[role])
            for role in LETTER
        ]

    spans = {role: look.formation.span(name) for role, name in names.items()}
    return curve_chart(
        [
            CurvePanel("right answers by stage, %", by_role("{}", 100.0), Axis(domain=(0, 100), ticks=(0, 50, 100))),
            CurvePanel("usage of the best head", by_role("usage {}"), Axis(domain=(0, 1), ticks=(0, 0.5, 1))),
            CurvePanel(
                "specialisation",
                [Curve(steps, curves["specialisation"][1], label="S")],
                Axis(domain=(0, 1), ticks=(0, 0.5, 1)),
            ),
        ],
        title="When the heads form",
        description=f"The {order[0]} heads form at steps {spans[order[0]][0]:.0f} to {spans[order[0]][1]:.0f}, the "
        f"{order[1]} heads at {spans[order[1]][0]:.0f} to {spans[order[1]][1]:.0f}.",
        caption=f"Two heads, seed {look.seed} ({look.job}). Phases are change points of the usage curves over ln(step "
        "+ 1): level, straight passage, level, the most probable one; nothing is set by eye.",
        axis=Axis("training step", scale="log1p"),
        phases=phases,
    )


def heads_usage(found: Findings, look: Look) -> Figure:
    """What the two heads of one model do, beside the score of all seeds, untrained models and the undivided control."""
    score = look.heads.assignment.score
    order = _by_role(look)
    own = [found.scores(name) for name in found.looks if name.startswith("forward-h2")]
    beside = ""
    if "control-one-hot-wide" in found.looks:
        control = found.scores("control-one-hot-wide")
        beside = (
            f" Control: with fixed one-hot labels and wide heads S falls to {control.min():.3f} (median "
            f"{np.median(control):.2f}) at {percent(float(found.trained['control-one-hot-wide'].accuracy.mean()))} of "
            "paths right."
        )
    return usage_chart(
        score.usage[order],
        heads=[Head(LETTER[role], f"0.{head}") for role, head in zip(LETTER, order, strict=True)],
        roles=["backward", "reverse"],
        role_notes=["the node's edge", "the node's BACK token"],
        title="What each head does",
        description=f"Each head serves one role; specialisation {np.concatenate(own).min():.3f} or more in every "
        f"two-head model, {max(found.untrained):.3f} or less untrained.",
        caption=f"Seed {look.seed} of {look.job}. Usage is the share of what a head moves that comes from the role's "
        f"target, beyond chance.{beside}",
        score=ScoreStrip(
            np.concatenate(own),
            found.untrained,
            "specialisation S",
            "all two-head models",
            chance_label=f"untrained, {len(found.untrained)} models",
        ),
    )


def _by_role(look: Look) -> list[int]:
    """Head indices in the order backward, reverse: the head of each role that is used most."""
    score = look.heads.assignment.score
    return [
        max((head for _, head in look.heads.group(role)), key=lambda h: score.usage[h, k], default=k)
        for k, role in enumerate(LETTER)
    ]


def patched(look: Look) -> Figure:
    """What a patch of the right head and of the other recovers at the query, per contrast."""
    names = list(look.recovery)
    values = np.array([look.recovery[name] for name in names]).T
    return effect_grid(
        values,
        rows=["right", "other"],
        columns=names,
        row_axis="head",
        column_axis="what differs between the runs",
        title="Which head recovers the answer",
        description=f"The right head recovers {percent(values[0].min(), 1)} or more, the other "
        f"{percent(values[1].max(), 1)} or less.",
        caption=[
            "Two runs differ in one token and the path's tokens are kept. One head's output is taken from the source "
            "run at the query; the cell is the ",
            bold("share of the logit difference"),
            f" that returns. Right heads: {', '.join(f'{n} {CONTRAST_ROLE[n]}' for n in names)}. At any other "
            f"position a patch changes {look.off_query:.1g} at most. Seed {look.seed} of {look.job}.",
        ],
        unit="share of the gap",
        limit=1.0,
    )


def attention_of(model: HookedTransformer, task: TreeTask, look: Look) -> Figure:
    """The two heads' attention on one unseen tree, from the positions that predict."""
    example = task.examples(seed=7, count=1)
    labels = list(task.token_labels(example.inputs[0]))
    pattern = "blocks.0.attn.hook_pattern"
    with untouched(model):
        _, kept = activations(model, example.inputs, [pattern])
    order, start = _by_role(look), int(example.read[0, 0])
    return attention_patterns(
        kept[pattern][0, order, start:].clamp(0, 1).cpu().numpy(),
        labels[start:],
        keys=labels,
        heads=[Head(LETTER[role], f"{role} 0.{head}") for role, head in zip(LETTER, order, strict=True)],
        title="Attention on one tree",
        description="The backward head reads the edge of the current node on the way up, the reverse head the BACK "
        "token of the current node on the way down.",
        caption=f"Seed {look.seed} of {look.job}, an unseen tree of depth {task.layout.depth}. Rows: the goal and the "
        "emitted tokens, in order; columns: what they read.",
    )


def circuits_between_labels(model: HookedTransformer, task: TreeTask, look: Look) -> Figure:
    """The four right circuits of a learned model and of the construction, for the first labels."""
    learned, built = label_circuits(model, task), label_circuits(construct(task, "forward").model, task)
    panels, values, shown = [], [], min(SHOWN_LABELS, task.trees.labels)
    for (role, names), head, theirs in zip(RIGHT.items(), _by_role(look), (0, 1), strict=True):
        for name in names:
            for label, circuits, index in (("learned", learned, head), ("constructed", built, theirs)):
                matrix = circuits.of(role, index)[name]
                matrix = matrix - matrix.mean(1, keepdims=True)
                values.append(matrix[:shown, :shown] / np.abs(matrix).max())
                panels.append(f"{name}, {label}")
    labels = [str(k) for k in range(shown)]
    share = min(look.diagonal.values())
    return effect_grid(
        np.array(values),
        rows=labels,
        columns=labels,
        panels=panels,
        title="Learned and constructed circuits between labels",
        description=f"In all four circuits the right label is the largest entry of {percent(share, 1)} of the rows "
        "or more.",
        caption=f"The first {shown} of {task.trees.labels} labels; row means removed, each matrix divided by its "
        "largest entry. QK: score from a node (row) to a node's edge or BACK token (column); OV: what attending to a "
        f"label adds to each logit. Seed {look.seed} of {look.job}.",
        limit=1.0,
        digits=1,
    )


def other_depths(found: Findings) -> Figure:
    """Models trained at depth 5 on trees of other depths."""
    depths = [row.x for row in found.length]
    values = 100 * np.array([row.values for row in found.length])
    return curve_chart(
        [
            CurvePanel(
                "paths right, %",
                [
                    Curve(
                        depths,
                        values.mean(1),
                        low=values.min(1),
                        high=values.max(1),
                        label="two heads",
                        heads=("A", "B"),
                        points=True,
                    )
                ],
                Axis(domain=(max(0.0, float(np.floor(values.min() - 1))), 100.2)),
            )
        ],
        title="Trained at depth 5, tested at others",
        description=f"The mean is {values.mean(1).min():.2f} % or more from depth {min(depths):g} to {max(depths):g}.",
        caption=f"Two heads, {values.shape[1]} seeds (line: mean, band: all), random trees with the same 64 labels.",
        axis=Axis("depth of the goal", scale="linear"),
    )


def binary_trees(found: Findings) -> Figure | None:
    """Perfect binary trees: curriculum and direct training by depth."""
    if "binary-curriculum-d9" not in found.trained:
        return None
    direct = {d: found.trained[f"binary-direct-d{d}"].accuracy for d in (5, 7, 9)}
    taught = {depth: np.array(values) for depth, values in sorted(found.taught.items())}
    taught[9] = found.trained["binary-curriculum-d9"].accuracy
    never = {stage: np.array(values) for stage, values in found.never.items()}
    stages = sorted(never)
    return curve_chart(
        [
            CurvePanel(
                "paths right, %",
                [
                    _seeds(list(taught), [100 * taught[d] for d in taught], "curriculum", ("A", "B")),
                    _seeds(list(direct), [100 * direct[d] for d in direct], "direct", "muted"),
                    _seeds(
                        [2 * stage + 1 for stage in stages],
                        [100 * never[stage] for stage in stages],
                        "tested at 9",
                        "ink",
                    ),
                ],
                Axis(domain=(0, 100), ticks=(0, 50, 100)),
            )
        ],
        title="Perfect binary trees",
        description=f"Curriculum: {percent(float(taught[9].min()))} at depth 9; direct training: "
        f"{percent(float(direct[9].max()), 1)}.",
        caption="Two heads, line: mean, band: all seeds. A curriculum trains on depths 3, 5, 7 and 9 in turn, with "
        "1 024 labels; “tested at 9” is the same training, tested at depth 9 (1 023 nodes) once it has been through "
        "the depth on the axis. Direct training sees as many positions, all at its own depth (256 labels to depth 7).",
        axis=Axis("depth", scale="linear", ticks=(3, 5, 7, 9)),
    )


def _seeds(x: Sequence[float], values: Sequence[np.ndarray], label: str, heads: object) -> Curve:
    return Curve(
        x,
        [float(v.mean()) for v in values],
        low=[float(v.min()) for v in values],
        high=[float(v.max()) for v in values],
        label=label,
        heads=heads,  # type: ignore[arg-type]
        points=True,
    )


def median_look(found: Findings, name: str) -> tuple[Look, Run]:
    """The seed of a job whose specialisation is in the middle, the lower one of two."""
    looks = sorted(found.looks[name], key=lambda look: (look.specialisation, look.seed))
    chosen = looks[(len(looks) - 1) // 2]
    return chosen, next(run for run in found.trained[name].runs if run.seed == chosen.seed)
