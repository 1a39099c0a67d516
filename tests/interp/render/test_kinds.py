"""What each kind of figure draws: numbers in, marks out, and the sentence for what it cannot draw."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest

from headlab.interp.render import (
    AttentionTile,
    Axis,
    ClaimRow,
    Curve,
    CurvePanel,
    Head,
    HeadMatrices,
    Limit,
    Link,
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
from headlab.interp.render.circuit import CircuitPanel
from headlab.interp.render.marks import apart, stacked, thinned
from tests.interp.render.kinds import causal, figure, page

NAMED = {"title": "t", "description": "d"}
SVG = "{http://www.w3.org/2000/svg}"


def nodes(markup: str | None, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(markup or "").iter(SVG + tag))


def words(markup: str | None) -> list[str]:
    return ["".join(node.itertext()) for node in nodes(markup, "text")]


def colours(markup: str | None, tag: str, attribute: str = "fill") -> list[str]:
    found = [re.search(r"--hl-([a-z0-9-]+)", node.attrib.get(attribute, "")) for node in nodes(markup, tag)]
    return [match.group(1) for match in found if match]


def test_strip_stacks_equal_values_at_their_value() -> None:
    shown = strip_chart([StripRow("a", [0.5, 0.5, 0.9])], axis=Axis(domain=(0, 1)), **NAMED)
    places = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in nodes(shown.svg, "circle")]
    assert sorted(x for x, _ in places) == pytest.approx([610, 610, 236 + 0.9 * 748])
    assert len(set(places)) == 3
    assert stacked([1, 1, 1.5, 9], 1) == [[1, 1, 1.5], [9]]


def test_strip_hatches_what_the_limit_forbids_over_bounded_rows_only() -> None:
    rows = [StripRow("free", [0.99], bounded=False), StripRow("bound", [0.2])]
    for side, start, width in (("above", 610, 374), ("below", 236, 374)):
        shown = strip_chart(rows, axis=Axis(domain=(0, 1)), limit=Limit(0.5, "limit", side=side), **NAMED)
        hatched = [one for one in nodes(shown.svg, "rect") if one.attrib.get("fill", "").startswith("url(#")]
        assert [(float(one.attrib["x"]), float(one.attrib["width"])) for one in hatched] == [(start, width)]
        assert words(shown.svg).index("bound") < words(shown.svg).index("free")


def test_strip_of_two_heads_has_split_dots() -> None:
    shown = strip_chart([StripRow("a", [0.5], heads=("A", "B"))], axis=Axis(domain=(0, 1)), **NAMED)
    assert [one for one in colours(shown.svg, "path") if one.startswith("head")] == ["head-a", "head-b"]


def test_arcs_bend_by_direction() -> None:
    shown = arc_diagram(list("abcd"), [(0, 1), (0, 3), (3, 1), (0, 1), (2, 2)], listing="back", **NAMED)
    arcs = {one.attrib["data-e"]: one.attrib["d"] for one in nodes(shown.svg, "path") if "data-e" in one.attrib}
    assert set(arcs) == {"0 1", "0 3", "3 1"}
    assert [one.attrib["data-e"] for one in nodes(shown.svg, "circle") if "data-e" in one.attrib] == ["2 2"]
    tops = {name: float(d[1:].split("A")[0].split()[1]) for name, d in arcs.items()}
    assert tops["0 1"] == tops["0 3"] < tops["3 1"]
    assert re.findall(r"<bdi>(.)</bdi> → <bdi>(.)</bdi>", shown.to_html()) == [("d", "b")]
    assert {one.attrib["data-n"] for one in nodes(shown.svg, "text") if "data-n" in one.attrib} == set("0123")


def test_circuit_draws_every_edge_and_sizes_it() -> None:
    panel = token_head_logit(
        [Node("u"), Node("v")], ["A"], [Node("u")], [[8.0], [-2.0]], np.array([[4.0]]), question="q", result="r"
    )
    shown = circuit_diagram([panel], unit="logits", threshold=3, **NAMED)
    for markup in (shown.svg, shown.svg_narrow):
        edges = {one.attrib["data-v"]: one for one in nodes(markup, "path") if "data-v" in one.attrib}
        assert {name: float(one.attrib["stroke-width"]) for name, one in edges.items()} == {"8": 16, "2": 4, "4": 8}
        assert [name for name, one in edges.items() if "stroke-dasharray" in one.attrib] == ["2"]
        assert {"+8.0", "−2.0", "+4.0"} <= set(words(markup))
    assert 'hidden=""' in shown.to_html()
    assert "3 of 3 edges" in shown.to_html()


def test_circuit_of_any_columns() -> None:
    columns = [[Node("a")], [Node("1.0", head=Head("A"))], [Node("2.0", head=Head("B"))], [Node("mlp")], [Node("out")]]
    links = [Link((0, 0), (2, 0), 1), Link((0, 0), (1, 0), 2), Link((1, 0), (4, 0), -1), Link((3, 0), (4, 0), 1)]
    shown = circuit_diagram([CircuitPanel(columns, links)], headings=list("abcde"), **NAMED)
    assert sum("data-v" in one.attrib for one in nodes(shown.svg, "path")) == 4


def test_tiles_fill_from_below() -> None:
    shown = attention_tiles([AttentionTile("A", "s", [0.25, 0.75], ["u", "v"])], **NAMED)
    bars = [one for one in nodes(shown.svg, "rect") if "head-a" in one.attrib["fill"] and one.attrib["height"] != "22"]
    assert [float(one.attrib["height"]) for one in bars] == [21, 63]
    assert len({float(one.attrib["y"]) + float(one.attrib["height"]) for one in bars}) == 1
    assert {"0.25", "0.75", "u", "v"} <= set(words(shown.svg))


def test_patterns_draw_each_cell_once() -> None:
    weights = np.zeros((1, 3, 3))
    weights[0, 2, 0], weights[0, 1, 1] = 1.0, 0.3
    shown = attention_patterns(weights, list("abc"), **NAMED)
    cells = "".join(one.attrib["d"] for one in nodes(shown.svg, "path"))
    assert sorted(re.findall(r"M(\d+) (\d+)", cells)) == [("0", "2"), ("1", "1")]


def test_long_attention_is_cut_and_says_so() -> None:
    labels = [f"token {index}" for index in range(512)]
    shown = attention_viewer(causal(12, 512), labels, **NAMED)
    assert len(shown.standalone_html().encode()) < 2_000_000
    for markup in (shown.svg, shown.svg_narrow):
        assert "Shown: the first 64 of 512 positions." in words(markup)
    uniform = np.tril(np.ones((30, 512, 512), dtype=np.float32)) / np.arange(1, 513, dtype=np.float32)[:, None]
    shown = attention_patterns(uniform, labels, most_heads=2, most_positions=100, **NAMED)
    for markup in (shown.svg, shown.svg_narrow):
        assert "Shown: the first 2 of 30 heads and the first 100 of 512 positions." in " ".join(words(markup))
    whole = attention_patterns(causal(1, 64), ["x"] * 64, **NAMED)
    assert not [one for one in words(whole.svg) if one.startswith("Shown")]


def test_usage_colours_by_the_head_and_the_share() -> None:
    shown = usage_chart([[0.5, 0.0], [0.25, 0.5]], heads=["A", "B"], roles=["r", "s"], **NAMED)
    cells = [one for one in nodes(shown.svg, "rect") if "fill-opacity" in one.attrib]
    assert [re.findall("head-.", one.attrib["fill"])[0] for one in cells] == ["head-a", "head-b", "head-b"]
    assert float(cells[0].attrib["fill-opacity"]) == float(cells[2].attrib["fill-opacity"]) == 1
    assert float(cells[1].attrib["fill-opacity"]) == pytest.approx(0.5, abs=0.2)
    assert "50.0\u202f%" in words(shown.svg)


def test_usage_shows_chance() -> None:
    score = ScoreStrip([0.9, 0.9], np.linspace(0, 0.2, 64), "S", chance_label="chance", value_label="trained")
    shown = usage_chart(np.eye(2), heads=["A", "B"], roles=["r", "s"], score=score, **NAMED)
    low, high = np.percentile(np.linspace(0, 0.2, 64), (5, 95))
    band = [one for one in nodes(shown.svg, "rect") if "hairline" in one.attrib["fill"]]
    assert float(band[0].attrib["width"]) == pytest.approx((high - low) * (1070 - 476), abs=0.02)
    assert {"chance", "trained", "S"} <= set(words(shown.svg))


def test_matrices_scale_each_on_its_own() -> None:
    small = HeadMatrices("A", "learned", [1e-3, -1e-3], [[1e-3, 0], [0, -1e-3]])
    large = HeadMatrices("A", "built", [10, -10], [[10, 0], [0, -10]])
    shown = weight_matrices([[small, large]], groups=[RowGroup(2, "rows")], **NAMED)
    painted = colours(shown.svg, "path")
    assert painted.count("pos-6") == painted.count("neg-6") == 4
    assert not [one for one in painted if one in ("pos-1", "neg-1")]


def test_grid_prints_numbers_marks_signs_and_holes() -> None:
    values = [[1.0, -1.0], [np.nan, 0.01]]
    shown = effect_grid(values, rows=["a", "b"], columns=["c", "d"], unit="logits", **NAMED)
    assert {"+1.00", "−1.00", "+0.01", "no value"} <= set(words(shown.svg))
    assert sum(one.attrib.get("fill", "").startswith("url(#") for one in nodes(shown.svg, "path")) == 1
    tight = effect_grid(np.tile([1.0, -1.0], (3, 32)), rows=list("abc"), columns=["x"] * 64, **NAMED)
    dashes = [one for one in nodes(tight.svg, "path") if one.attrib.get("fill") is None and "stroke" in one.attrib]
    assert sum(one.attrib["d"].count("M") for one in dashes) == 3 * 32
    cut = effect_grid(np.zeros((70, 3)), rows=["r"] * 70, columns=list("abc"), **NAMED)
    assert "Shown: the first 64 of 70 rows." in words(cut.svg)
    assert "Shown: the first 64 of 70 rows." in words(cut.svg_narrow)


def test_a_grid_of_shares_has_no_signs_and_no_key() -> None:
    shown = effect_grid([[0.25, np.nan]], rows=["a"], columns=["b", "c"], signs=False, limit=1.0, **NAMED)
    assert ">0.25<" in shown.svg
    assert "no value" in shown.svg
    assert "+" not in re.sub(r"<[^>]*>", "", shown.svg)


def test_curves_break_at_nan_and_keep_to_the_domain() -> None:
    curve = Curve([0, 1, 2, 3, 4, 99], [1, 1, np.nan, 2, 2, 9], heads="A", low=[0] * 6, high=[3] * 6)
    shown = curve_chart([CurvePanel("y", [curve])], axis=Axis(domain=(0, 10)), **NAMED)
    lines = [one.attrib["d"] for one in nodes(shown.svg, "path") if one.attrib.get("fill") == "none"]
    assert [d.count("L") for d in lines] == [1, 1]
    assert "z" in "".join(one.attrib["d"] for one in nodes(shown.svg, "path"))


def test_curves_of_two_heads_are_two_coloured() -> None:
    assert {"head-a", "head-b", "head-one"} <= set(colours(figure("curves").svg, "path", "stroke"))


def test_phases_and_levels_are_named() -> None:
    seen = words(figure("curves").svg)
    assert {"I search", "II copy", "anything", "ceiling", "chance", "accuracy", "score", "step"} <= set(seen)
    narrow = words(figure("curves").svg_narrow)
    assert {"I", "II", "I search, anything", "ceiling", "chance"} <= set(narrow)


def test_claims_have_a_chip_and_a_rule() -> None:
    text = figure("claims").to_html()
    for verdict in ("holds", "exceeds", "fails", "not-reached", "outside-class", "not-in-quick"):
        assert f'class="hl-chip hl-{verdict}"' in text
    assert "<b>holds</b>: met." in text


def test_the_page_numbers_its_sections_and_counts_its_verdicts() -> None:
    text = page()
    assert "1. strip" in text
    assert ">5 hold<" in text
    assert ">1 fails<" in text
    assert 'id="section-1"' in text
    assert 'id="last"' in text


def test_boxes_are_pushed_apart_and_ticks_thinned() -> None:
    placed = apart([(10, 20), (12, 20), (90, 10)], 0, 100)
    assert placed == [10, 30, 90]
    assert apart([(95, 20), (96, 20)], 0, 100) == [70, 90]
    from headlab.interp.render.axis import ruler

    shown = [named for _, _, named in thinned(ruler(Axis(domain=(0, 8), ticks=range(9)), [], 0, 100))]
    assert shown == [True, False] * 4 + [True]


TILE = AttentionTile("A", "s", [0.5, 0.5], ["u", "v"])
PAIR = HeadMatrices("A", "x", [1, 2], [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("kind", "draw", "said"),
    [
        (ValueError, lambda: strip_chart([], **NAMED), "at least one row"),
        (ValueError, lambda: strip_chart([StripRow("a", [np.nan])], **NAMED), "'a' holds a value that is not finite"),
        (ValueError, lambda: arc_diagram([], [], **NAMED), "at least one name"),
        (IndexError, lambda: arc_diagram(["a"], [(0, 1)], **NAMED), "leaves the 1 names"),
        (ValueError, lambda: circuit_diagram([], **NAMED), "at least one panel"),
        (ValueError, lambda: token_head_logit([Node("u")], ["A"], [], [[1, 2]], [[]]), r"\(1, 2\)"),
        (
            ValueError,
            lambda: circuit_diagram([token_head_logit([Node("u")], ["A"], [Node("u")], [[np.inf]], [[1]])], **NAMED),
            "has the value inf",
        ),
        (
            IndexError,
            lambda: circuit_diagram(
                [CircuitPanel([[Node("a")], [Node("b")]], [Link((0, 0), (1, 1), 1)])], headings=("a", "b"), **NAMED
            ),
            "no node",
        ),
        (ValueError, lambda: attention_tiles([], **NAMED), "at least one tile"),
        (ValueError, lambda: attention_tiles([AttentionTile("A", "s", [1], [])], **NAMED), "1 values and 0 tokens"),
        (ValueError, lambda: attention_tiles([AttentionTile("A", "s", [2], ["u"])], **NAMED), r"lies in \[0, 1\]"),
        (ValueError, lambda: attention_patterns(causal(1, 3), ["a"], **NAMED), "a label for every position"),
        (ValueError, lambda: attention_patterns(causal(2, 1), ["a"], heads=["A"], **NAMED), "2 patterns and 1 heads"),
        (ValueError, lambda: usage_chart([[1]], heads=["A"], roles=[], **NAMED), r"\(1, 1\)"),
        (ValueError, lambda: usage_chart([[-1]], heads=["A"], roles=["r"], **NAMED), "at least 0"),
        (
            ValueError,
            lambda: weight_matrices([[PAIR]], groups=[RowGroup(3)], **NAMED),
            "3 rows and the matrices have 2",
        ),
        (ValueError, lambda: effect_grid([[1]], rows=["a"], columns=[], **NAMED), "1 rows and 0 columns"),
        (ValueError, lambda: effect_grid([[-1]], rows=["a"], columns=["b"], signs=False, **NAMED), "leave signs on"),
        (ValueError, lambda: effect_grid([[np.inf]], rows=["a"], columns=["b"], **NAMED), "infinite"),
        (ValueError, lambda: curve_chart([], **NAMED), "at least one curve"),
        (ValueError, lambda: curve_chart([CurvePanel("p", [Curve([1, 2], [1], "c")])], **NAMED), "2 x and 1 y"),
        (
            ValueError,
            lambda: curve_chart([CurvePanel("p", [Curve([1], [0.0])], Axis(scale="log"))], **NAMED),
            "logarithmic",
        ),
        (
            ValueError,
            lambda: curve_chart([CurvePanel("p", [Curve([1], [0])])], phases=[Phase(5), Phase(1)], **NAMED),
            "one after the other",
        ),
        (ValueError, lambda: claims_table([ClaimRow("c", "p", "m", "maybe")], **NAMED), "no verdict 'maybe'"),
        (
            ValueError,
            lambda: claims_table([ClaimRow("c", "p", "m", "holds", link="https://x.org")], **NAMED),
            "leaves the report's folder",
        ),
        (
            ValueError,
            lambda: report_page(
                title="t", kicker="", headline=["h"], summary="", sections=[Section("a", "b", anchor="x y")]
            ),
            "anchor 'x y'",
        ),
        (
            ValueError,
            lambda: report_page(
                title="t", kicker="", headline=["h"], summary="", sections=[], links=[("up", "../x.html")]
            ),
            "leaves the report's folder",
        ),
    ],
)
def test_what_cannot_be_drawn_is_said(kind: type[Exception], draw: Callable, said: str) -> None:
    with pytest.raises(kind, match=said):
        draw()
