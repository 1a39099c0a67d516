"""The figures of the endpoint selection report: the study's results in the words of its reader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.analyses.study.esp.names import short_names
from headlab.analyses.study.esp.records import Method
from headlab.analyses.study.esp.two_heads import TwoHeads
from headlab.interp.errors import RequestError
from headlab.interp.render import (
    AttentionTile,
    Axis,
    Curve,
    CurvePanel,
    Figure,
    Level,
    Limit,
    Node,
    Phase,
    RowGroup,
    ScoreStrip,
    StripRow,
    arc_diagram,
    attention_tiles,
    bold,
    circuit_diagram,
    coloured,
    curve_chart,
    italic,
    mono,
    number,
    percent,
    signed,
    strip_chart,
    token_head_logit,
    usage_chart,
    weight_matrices,
)
from headlab.interp.render.matrices import HeadMatrices
from headlab.models.esp.certificate import Certificate
from headlab.models.esp.feedback import FeedbackArcSet
from headlab.models.esp.graphs import Digraph
from headlab.models.esp.task import EspTask

LETTERS = ("A", "B")


def plural(count: int, noun: str) -> str:
    """`1 error`, `2 errors`, `no error`."""
    return f"no {noun}" if count == 0 else f"{number(count)} {noun}{'' if count == 1 else 's'}"


def accuracy_strip(graph: Digraph, mfas: FeedbackArcSet, methods: Sequence[Method]) -> Figure:
    """Every seed of every method against the one-head ceiling."""
    samples = 2 * graph.m
    ceiling = 1 - mfas.lower / samples
    lowest = min(run.accuracy for method in methods for run in method.runs)
    left = max(0.0, np.floor((lowest - 0.02) * 25) / 25)
    ticks = [round(t, 2) for t in np.arange(left, 1.0001, 0.02 if left >= 0.8 else 0.1)]
    rows = [
        StripRow(
            method.label,
            [run.accuracy for run in method.runs],
            note=method.note,
            heads=LETTERS if method.heads == 2 else "one",
            result=percent(method.best.accuracy),
            result_note=plural(method.best.errors, "error"),
            marker="diamond" if method.constructed else "dot",
            bounded=method.heads == 1,
        )
        for method in methods
    ]
    best_one = max(run.accuracy for method in methods if method.heads == 1 for run in method.runs)
    worst_two = min(run.accuracy for method in methods if method.heads == 2 for run in method.runs)
    exact = "solved exactly" if mfas.exact else f"at least {mfas.lower}, the solver's bound within its time"
    return strip_chart(
        rows,
        title="Accuracy of every seed",
        description=f"No one-head model passes {percent(ceiling)}: the best has {percent(best_one)}. "
        f"The worst two-head model has {percent(worst_two)}.",
        caption=[
            f"{graph.name}: {graph.n} vertices, {graph.m} arcs, {samples} questions (u, v, i, #). Each dot is one "
            "seed; a ",
            bold("split dot"),
            " is a two-head model. The ceiling comes from the smallest set of arcs whose removal leaves no cycle "
            f"({mfas.lower}, {exact}), not from training.",
        ],
        axis=Axis(
            f"accuracy on all {samples} questions, one dot per seed (best checkpoint)",
            domain=(left, 1.0),
            ticks=ticks,
            format=lambda v: percent(v, 0) if v in (ticks[0], ticks[-1]) else number(round(v * 100)),
        ),
        limit=None
        if mfas.lower == 0
        else Limit(
            ceiling,
            label=[bold(percent(ceiling)), " exact ceiling for one head"],
            formula=f"1 − {mfas.lower} / {samples}: any order of the vertices breaks ≥ {mfas.lower} arcs",
            beyond="out of reach",
            beyond_note="for every one-head model",
            short=[bold(percent(ceiling)), " exact ceiling,"],
            short_formula=f"one head: 1 − {mfas.lower}/{samples}",
            short_beyond=("hatched:", "out of reach"),
        ),
        result_heading="best seed",
    )


def learned_order(
    graph: Digraph, certificate: Certificate, mfas: FeedbackArcSet, *, caption: str, width: int = 1080
) -> Figure:
    """The order that a one-head model has learned, its given-up arcs below the names."""
    if certificate.order is None:
        raise RequestError(f"a model outside the theorem's class holds no order ({certificate.reason})")
    place = {vertex: k for k, vertex in enumerate(certificate.order)}
    names = short_names(graph.labels)
    arcs = [(place[u], place[v]) for u, v in graph.arcs if u != v]
    backward = sum(i > j for i, j in arcs)
    forward = len(arcs) - backward
    degree = np.bincount(np.array([end for i, j in arcs if i > j for end in (i, j)], dtype=int), minlength=graph.n)
    return arc_diagram(
        [names[vertex] for vertex in certificate.order],
        arcs,
        title=f"The order that one head has learned on {graph.name}",
        description=f"{forward} of {len(arcs)} arcs point forward, {backward} backward; no order has fewer than "
        f"{mfas.lower} backward.",
        caption=caption,
        forward=[bold(f"{forward} arcs point forward"), ": both ends can be answered right"],
        forward_short=bold(f"{forward} forward"),
        forward_note="both can be right",
        backward=[
            coloured(f"{backward} arcs point backward", "negative"),
            f": at least one end is wrong (no order has fewer than {mfas.lower})",
        ],
        backward_short=coloured(f"{backward} backward", "negative"),
        backward_note=f"≥ {mfas.lower} unavoidable",
        order="learned order, first → last",
        hubs=[int(degree.argmax())] if backward else [],
        listing=f"List the {backward} backward arcs" if backward and width > 700 else "",
        width=width,
    )


def shown_arc(task: EspTask) -> tuple[int, int]:
    """The arc that the circuit is shown on: between the two vertices of the highest degree that share an arc."""
    degree = np.bincount(np.array(task.graph.arcs).ravel(), minlength=task.n)
    return max((arc for arc in task.graph.arcs if arc[0] != arc[1]), key=lambda a: (degree[a[0]] + degree[a[1]], a))


def two_head_circuit(
    task: EspTask,
    looks: TwoHeads,
    logit_parts: np.ndarray,
    pair_parts: np.ndarray,
    *,
    whose: str = "the seed of median specialisation",
) -> Figure:
    """Both questions about one arc: token -> head -> logit.

    logit_parts: [selector, head, vertex], what a head adds to each vertex's logit, vertex mean removed. pair_parts:
    [selector, position, head], what it adds from each position to the right endpoint's logit minus the other's.
    whose: which model it is, for the caption.
    """
    arc = shown_arc(task)
    names = short_names(task.graph.labels)
    said = ("first", "second")
    panels = []
    for level in (0, 1):
        totals = logit_parts[level].sum(0)
        rest = [vertex for vertex in np.argsort(-totals).tolist() if vertex not in arc]
        shown = [*arc, *rest[:1]]
        right = totals[arc[level]] > max(totals[vertex] for vertex in range(task.n) if vertex != arc[level])
        logits = [
            Node(
                names[vertex],
                f"{signed(totals[vertex])}{' ✓' if vertex == arc[level] and right else ''}"
                f"{' next best' if k == 2 else ''}",
                strong=vertex == arc[level],
            )
            for k, vertex in enumerate(shown)
        ]
        tokens = [
            Node(names[arc[0]], "first", strong=level == 0),
            Node(names[arc[1]], "second", strong=level == 1),
            Node(mono(str(level + 1)), "selector"),
            Node(mono("#"), "query"),
        ]
        by_head = pair_parts[level].sum(0)
        acting = int(np.abs(by_head).argmax())
        panels.append(
            token_head_logit(
                tokens,
                list(LETTERS),
                logits,
                pair_parts[level],
                logit_parts[level][:, shown],
                question=italic(f"“{said[level]} endpoint of {names[arc[0]]} → {names[arc[1]]}?”"),
                result=[
                    "head ",
                    coloured(LETTERS[acting], LETTERS[acting]),
                    f" alone separates the endpoints by {signed(by_head[acting])} logits",
                ],
            )
        )
    return circuit_diagram(
        panels,
        title="The circuit of both questions about one arc",
        description=f"Under selector 1 head A, under selector 2 head B carries the answer, for the arc "
        f"{names[arc[0]]} to {names[arc[1]]}.",
        caption=f"One arc, both questions, {whose}. Token to head: contribution to the logit "
        "of the right endpoint minus the other. Head to logit: contribution to that logit, vertex mean removed. Final "
        "norm frozen at its value.",
    )


def attention(looks: TwoHeads, agreement: float, seeds: int) -> Figure:
    """Where each head looks at '#', per selector. agreement: the smallest share on the tallest bar over all seeds."""
    positions = ("u", "v", "selector", "#")
    tiles = []
    for head, letter in enumerate(LETTERS):
        for level in (0, 1):
            values = looks.attention[head, level]
            top = int(values.argmax())
            note = ("reads u", "reads v", "rests on the selector", "rests on the query")[top]
            tokens = ["u", "v", str(level + 1), "#"]
            tiles.append(AttentionTile(letter, f"selector {level + 1}", values, tokens, note=note))
    return attention_tiles(
        tiles,
        title="Attention at the query",
        description="; ".join(
            f"head {letter} under selector {level + 1}: {positions[int(looks.attention[head, level].argmax())]}"
            for head, letter in enumerate(LETTERS)
            for level in (0, 1)
        ),
        caption=f"Mean over {looks.samples} questions. Bars and numbers: the seed of median specialisation. Over "
        f"all {seeds} seeds the role's own bar is never below {agreement:.2f}. Heads are named by role: A carries the "
        "first endpoint, B the second.",
    )


def usage(looks: TwoHeads, trained: Sequence[float], untrained: Sequence[float], others: Sequence[str]) -> Figure:
    """Who does what, and the specialisation score of all seeds beside chance. others: sentences on odd seeds."""
    order = list(looks.order)
    p, used = looks.score.p[order], looks.score.usage[order]
    median, chance = float(np.median(trained)), float(np.median(untrained))
    p95 = float(np.quantile(untrained, 0.95))
    return usage_chart(
        p,
        heads=list(LETTERS),
        roles=["first endpoint", "second endpoint"],
        role_notes=["role u", "role v"],
        texts=[[percent(value, 1) for value in row] for row in p],
        notes=[[f"usage {value:.2f}" for value in row] for row in used],
        score=ScoreStrip(
            list(trained),
            list(untrained),
            "Specialisation score S",
            note="0: both heads do the same · 1: one role each",
            heads=LETTERS,
            chance_label=f"chance: median {chance:.2f}, 95 % below {p95:.2f}",
            chance_note=f"{len(untrained)} untrained models",
            value_label=bold(f"trained: median {median:.3f}"),
            value_note=f"{len(trained)} seeds, lowest {min(trained):.2f}",
        ),
        title="Who does what",
        description=f"Specialisation median {median:.3f} over {len(trained)} trained seeds against {chance:.3f} "
        "untrained.",
        caption="Left: the share of all that is moved from the role's endpoint (attention times the size of the value "
        "that is written), the seed of median specialisation. Right: coverage times separation, rescaled so that an "
        "even split scores 0 and a clean split 1. " + " ".join(others),
    )


def matrices(
    graph: Digraph,
    learned: Sequence[tuple[np.ndarray, np.ndarray]],
    built: Sequence[tuple[np.ndarray, np.ndarray]],
    similarity: Sequence[str],
    caption: str,
) -> Figure:
    """QK strip, OV matrix of each head, learned beside constructed; rows u, v, then 1 2 #; columns the vertices."""
    pairs = [
        [HeadMatrices(letter, "learned", *learned[k]), HeadMatrices(letter, "constructed", *built[k])]
        for k, letter in enumerate(LETTERS)
    ]
    groups = [
        RowGroup(graph.n, "token u", plural(graph.n, "vertex").replace("vertexs", "vertices")),
        RowGroup(graph.n, "token v", plural(graph.n, "vertex").replace("vertexs", "vertices")),
        RowGroup(3, names=["1", "2", "#"]),
    ]
    return weight_matrices(
        pairs,
        groups=groups,
        title="Learned beside constructed",
        description="Similarity to the construction: " + "; ".join(similarity),
        caption=caption,
        similarity=list(similarity),
    )


def training_curves(
    graph: Digraph, mfas: FeedbackArcSet, two: Method, one: Method, chance: float, phases: Sequence[Phase], rule: str
) -> Figure:
    """Accuracy of the two-head and the best one-head method over training, and the two-head specialisation."""
    if two.curves is None or one.curves is None:
        raise RequestError("training curves need the curves of both methods")
    ceiling = 100 * (1 - mfas.lower / (2 * graph.m))

    def curve(method: Method, values: np.ndarray, scale: float, **more: object) -> Curve:
        assert method.curves is not None
        middle, low, high = np.median(values, 0), values.min(0), values.max(0)
        heads = LETTERS if method.heads == 2 else "one"
        return Curve(method.curves.steps, scale * middle, low=scale * low, high=scale * high, heads=heads, **more)  # type: ignore[arg-type]

    two_label = (coloured("two", "A"), " ", coloured("heads", "B"))
    panels = [
        CurvePanel(
            "accuracy",
            [
                curve(two, two.curves.accuracy, 100.0, label=two_label),
                curve(one, one.curves.accuracy, 100.0, label=coloured("one head", "one"), note=one.note.split(",")[0]),
            ],
            axis=Axis(domain=(0, 102), ticks=(0, 50, 100), format=("0", "50", percent(1.0, 0))),
            levels=[Level(ceiling, f"ceiling {percent(ceiling / 100)}")] if mfas.lower else [],
        )
    ]
    if two.curves.specialisation is not None:
        panels.append(
            CurvePanel(
                "specialisation S",
                [curve(two, two.curves.specialisation, 1.0)],
                axis=Axis(domain=(0, 1.02), ticks=(0, 0.5, 1)),
                levels=[Level(chance, f"chance {chance:.2f}", kind="chance")],
                height=110,
            )
        )
    last = max(*two.curves.steps, *one.curves.steps)
    ticks = [step for step in (0, 3, 10, 30, 100, 300, 1000, 3000, 10000) if step <= last]
    return curve_chart(
        panels,
        title="Training curves",
        description=f"Median accuracy ends at {percent(float(np.median(two.curves.accuracy[:, -1])))} with two heads "
        f"and at {percent(float(np.median(one.curves.accuracy[:, -1])))} with one.",
        caption=f"Median and full range of {len(two.runs)} seeds. {rule}",
        axis=Axis("training step (log scale)", scale="log1p", ticks=ticks),
        phases=phases,
    )


def phases_of(two: Method) -> tuple[list[Phase], str]:
    """The phases of two-head training by stated rules, and those rules in a sentence; none where a rule is not met."""
    curves = two.curves
    if curves is None or curves.endpoint_share is None or curves.specialisation is None:
        return [], ""

    def first(values: np.ndarray, level: float) -> int | None:
        reached = np.flatnonzero(values >= level)
        return int(curves.steps[reached[0]]) if len(reached) else None

    copied = first(np.median(curves.endpoint_share, 0), 0.95)
    divided = first(np.median(curves.specialisation, 0), 0.5)
    solved = [run.solved for run in two.runs]
    if copied is None or divided is None or None in solved or not copied < divided:
        return [], ""
    last = max(step for step in solved if step is not None)
    phases = [Phase(0, "I", "search", "answers anything"), Phase(copied, "II", "copy"), Phase(divided, "III", "split")]
    rule = (
        f"Phase II begins when 95 % of the median seed's answers are one of the two endpoints (step {copied}), III "
        f"when its S passes 0.5 (step {divided})"
    )
    if last > divided:
        phases.append(Phase(last, "IV", "solved", "every seed 100 %"))
        rule += f", IV when every two-head seed is at 100 % (step {last})"
    return phases, rule + "."


__all__ = [
    "accuracy_strip",
    "attention",
    "learned_order",
    "matrices",
    "phases_of",
    "plural",
    "shown_arc",
    "training_curves",
    "two_head_circuit",
    "usage",
]
