"""One small figure of every kind, with every text in it passed through `say`; and a page of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headlab.interp.render import (
    AttentionTile,
    Axis,
    Beside,
    ClaimRow,
    Curve,
    CurvePanel,
    Details,
    Figure,
    Head,
    HeadMatrices,
    Level,
    Limit,
    Node,
    Phase,
    RowGroup,
    ScoreStrip,
    Section,
    StripRow,
    arc_diagram,
    attention_patterns,
    attention_tiles,
    attention_viewer,
    circuit_diagram,
    claims_table,
    curve_chart,
    effect_grid,
    report_page,
    strip_chart,
    token_head_logit,
    usage_chart,
    weight_matrices,
)

Say = Callable[[str], str]

# Labels that somebody has had in a vocabulary, or could have.
HOSTILE = [
    "<bos>",
    "</script><script>alert(1)</script>",
    "\"double\" & 'single'",
    "<img src=x onerror=alert(1)>",
    "😀👩‍👩‍👧",
    "שלום עולם",
    "x" * 200,
    "]]>&lt;&#0;",
    "a\x00b\nc\u202ed",
    "{{ 7 * 7 }}{% raw %}",
]


def causal(heads: int, positions: int, seed: int = 0) -> np.ndarray:
    """Random causal attention [head, query, key]."""
    weights = np.tril(np.random.default_rng(seed).random((heads, positions, positions)) ** 4 + 1e-6)
    return weights / weights.sum(-1, keepdims=True)


def strip(say: Say) -> Figure:
    rows = [
        StripRow(
            say("one head"), [0.86, 0.86, 0.87], note=say("3 seeds"), result=say("87 %"), result_note=say("7 err")
        ),
        StripRow(say("built"), [0.9269], marker="diamond", note=say("no training"), result=say("92.69 %")),
        StripRow(say("two heads"), [1.0] * 3, heads=("A", "B"), result=say("100 %"), bounded=False),
    ]
    limit = Limit(0.9269, say("ceiling"), say("1 - 43/588"), say("out of reach"), say("for one head"))
    axis = Axis(say("accuracy"), domain=(0.84, 1))
    return strip_chart(
        rows,
        title=say("strip"),
        description=say("told"),
        caption=say("caption"),
        axis=axis,
        limit=limit,
        result_heading=say("best"),
    )


def arcs(say: Say) -> Figure:
    names = [say(name) for name in ("core", "types", "utils", "parser", "globals")]
    return arc_diagram(
        names,
        [(0, 1), (1, 3), (2, 4), (4, 0), (3, 3)],
        title=say("arcs"),
        description=say("told"),
        caption=say("caption"),
        forward=say("3 forward"),
        backward=say("1 backward"),
        order=say("first to last"),
        forward_note=say("right"),
        backward_note=say("wrong"),
        hubs=[0],
        listing=say("list"),
    )


def circuit(say: Say) -> Figure:
    tokens = [Node(say("u"), say("first")), Node(say("v"), say("second")), Node(say("#"), say("query"))]
    logits = [Node(say("u"), say("+12"), strong=True), Node(say("v"), say("+2"))]
    panel = token_head_logit(
        tokens,
        ["A", Head("B", say("1.0"))],
        logits,
        [[9, 0.1], [0.2, -3], [0, 0.5]],
        [[11, 2], [-0.4, 0.3]],
        question=say("which?"),
        result=say("head A"),
    )
    return circuit_diagram(
        [panel, panel],
        title=say("circuit"),
        description=say("told"),
        caption=say("caption"),
        headings=(say("token"), say("head"), say("logit")),
        unit=say("logits"),
        positive=say("plus"),
        negative=say("minus"),
        size=say("width"),
        control=say("hide below"),
    )


def tiles(say: Say) -> Figure:
    tokens = [say(name) for name in ("u", "v", "1", "#")]
    return attention_tiles(
        [AttentionTile(key, say("selector 1"), [0.9, 0.1, 0, 0], tokens, note=say("reads u")) for key in "AB"],
        title=say("tiles"),
        description=say("told"),
        caption=say("caption"),
    )


def patterns(say: Say) -> Figure:
    return attention_patterns(
        causal(3, 6),
        [say(f"t{index}") for index in range(6)],
        heads=["A", "B", Head("ink", say("0.2"))],
        title=say("patterns"),
        description=say("told"),
        caption=say("caption"),
        key_axis=say("key"),
        query_axis=say("query"),
    )


def viewer(say: Say) -> Figure:
    return attention_viewer(
        causal(2, 5),
        [say(f"t{index}") for index in range(5)],
        heads=["A", Head("B", say("0.1"))],
        title=say("viewer"),
        description=say("told"),
        caption=say("caption"),
        summary=say("open"),
    )


def usage(say: Say) -> Figure:
    score = ScoreStrip(
        [0.99, 0.98, 1],
        [0.01, 0.05, 0.1],
        say("score"),
        say("0 to 1"),
        ("A", "B"),
        say("chance"),
        say("64"),
        say("trained"),
        say("3 seeds"),
    )
    return usage_chart(
        [[0.5, 0.01], [0, 0.49]],
        heads=["A", Head("B", say("1.1"))],
        roles=[say("first"), say("second")],
        role_notes=[say("u"), say("v")],
        texts=[[say("50 %")] * 2] * 2,
        notes=[[say("5 logits")] * 2] * 2,
        score=score,
        title=say("usage"),
        description=say("told"),
        caption=say("caption"),
    )


def matrices(say: Say) -> Figure:
    rng = np.random.default_rng(0)
    pair = [HeadMatrices("A", say(name), rng.normal(size=7), rng.normal(size=(7, 4))) for name in ("learned", "built")]
    return weight_matrices(
        [pair, pair],
        groups=[RowGroup(4, say("token u"), say("4 names")), RowGroup(3, names=[say(n) for n in "12#"])],
        similarity=[say("QK 0.9"), say("QK 0.8")],
        title=say("matrices"),
        description=say("told"),
        caption=say("caption"),
        negative=say("minus"),
        positive=say("plus"),
        qk_heading=say("QK"),
        ov_heading=say("OV"),
    )


def grid(say: Say) -> Figure:
    values = np.random.default_rng(0).normal(size=(2, 3, 4))
    values[0, 1, 2] = np.nan
    return effect_grid(
        values,
        rows=[say(f"layer {i}") for i in range(3)],
        columns=[say(f"p{i}") for i in range(4)],
        panels=[say("there"), say("back")],
        row_axis=say("layer"),
        column_axis=say("position"),
        unit=say("logits"),
        missing=say("none"),
        title=say("grid"),
        description=say("told"),
        caption=say("caption"),
    )


def curves(say: Say) -> Figure:
    steps = [0, 1, 3, 10, 30, 100]
    two = Curve(
        steps,
        [0, 1, 20, 60, 100, 100],
        say("two"),
        low=[0, 0, 9, 40, 90, 100],
        high=[0, 9, 40, 90, 100, 100],
        heads=("A", "B"),
    )
    one = Curve(steps, [0, 0, 9, 40, 50, 90], say("one"), say("bounded"), heads="one")
    panels = [
        CurvePanel(say("accuracy"), [two, one], Axis(domain=(0, 101)), [Level(92.7, say("ceiling"))]),
        CurvePanel(
            say("score"), [Curve(steps, [0, 0, 0.1, 0.9, 1, 1])], None, [Level(0.04, say("chance"), "chance")], 110
        ),
    ]
    return curve_chart(
        panels,
        axis=Axis(say("step"), scale="log1p"),
        title=say("curves"),
        description=say("told"),
        caption=say("caption"),
        phases=[Phase(0, "I", say("search"), say("anything")), Phase(10, "II", say("copy"))],
    )


def claims(say: Say) -> Figure:
    rows = [
        ClaimRow(say("a claim"), say("0.75"), say("0.76"), verdict, detail=say("E1"), link="#section-1")
        for verdict in ("holds", "exceeds", "fails", "not reached", "outside class", "not in quick")
    ]
    return claims_table(
        rows,
        title=say("claims"),
        description=say("told"),
        caption=say("caption"),
        rules={"holds": say("met")},
        headings=[say(name) for name in ("Claim", "Paper", "Measured", "Verdict")],
    )


KINDS: dict[str, Callable[[Say], Figure]] = {
    one.__name__: one for one in (strip, arcs, circuit, tiles, patterns, viewer, usage, matrices, grid, curves, claims)
}
DRAWN = [name for name in KINDS if name != "claims"]


def figure(kind: str) -> Figure:
    """A figure of a kind with plain texts."""
    return KINDS[kind](str)


def page(say: Say = str, *, interactive: bool = False) -> str:
    """A report with every kind on it."""
    kinds = [name for name in KINDS if interactive or name != "viewer"]
    sections = [
        Section(
            say(name),
            [say("It finds"), say("one thing")],
            say("A few words."),
            [KINDS[name](say)],
            details=[Details(say("more"), [say("a line")])],
        )
        for name in kinds
    ]
    small = arc_diagram([say("a"), say("b")], [(0, 1)], title=say("small"), description=say("told"), width=620)
    sections.append(
        Section(say("beside"), say("Two"), beside=[Beside(small, say("The same"), say("again"))], anchor="last")
    )
    return report_page(
        title=say("report"),
        kicker=say("headlab"),
        headline=[say("One head cannot."), say("Two can.")],
        summary=say("why"),
        sections=sections,
        hero=KINDS["strip"](say),
        verdicts_label=say("claims"),
        verdicts={"holds": 5, "fails": 1},
        verdicts_link="#last",
        links=[(say("other"), "other.html")],
        footer=say("made here"),
    )
