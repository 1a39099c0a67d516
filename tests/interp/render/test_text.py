"""Numbers as they are printed, and text with marks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headlab.interp.render import Span, bold, coloured, mono, number, percent, signed, token
from headlab.interp.render.axis import Axis, ruler
from headlab.interp.render.svg import el, html, label, measure, n
from headlab.interp.render.text import plain, visible


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0, None, "0"),
        (-0.04, 1, "0.0"),
        (-2.5, None, "−2.5"),
        (1234, None, "1\u202f234"),
        (10240, None, "10\u202f240"),
        (1234.5, 1, "1234.5"),
        (12345.5, 1, "12\u202f345.5"),
        (1e-5, None, "10⁻⁵"),
        (-2.5e-7, None, "−2.5·10⁻⁷"),
        (3e12, None, "3·10¹²"),
        (float("nan"), 2, "–"),
        (float("-inf"), 2, "−∞"),
        (np.float32(0.5), 2, "0.50"),
        (torch.tensor(7), None, "7"),
    ],
)
def test_number(value: float, digits: int | None, shown: str) -> None:
    assert number(value, digits) == shown


def test_signs_and_shares() -> None:
    assert [signed(value) for value in (9.7, -0.3, 0.04, -0.04, 0)] == ["+9.7", "−0.3", "0.0", "0.0", "0.0"]
    assert percent(1 - 43 / 588) == "92.69\u202f%"
    assert percent(torch.tensor(1.0), 0) == "100\u202f%"


def test_blanks_of_tokens_are_seen() -> None:
    assert [token(text) for text in (" the", "a b", "", "  ", "#")] == ["␣the", "a b", "∅", "␣␣", "#"]


def test_marks() -> None:
    text = [bold("Two"), " ", coloured("heads", "B"), mono("#"), Span("<i>", italic=True)]
    assert plain(text) == "Two heads#<i>"
    assert html(text) == (
        '<b>Two</b> <b style="color:var(--hl-head-b,#B44A00)">heads</b><code>#</code><i>&lt;i&gt;</i>'
    )
    with pytest.raises(ValueError, match="no palette colour"):
        html(Span("x", colour="red"))


def test_direction_stays_inside_a_label() -> None:
    assert visible("abc") == "abc"
    assert visible("שלום") == "\u2068שלום\u2069"
    assert visible("a\u202eb") == "\u2068a\u202eb\u2069"


def test_coordinates_are_finite() -> None:
    assert [n(value) for value in (1, 1.005, -0.001, 2.5)] == ["1", "1", "0", "2.5"]
    with pytest.raises(ValueError, match="finite"):
        n(float("nan"))
    assert str(el("a", "<", b='"')) == '<a b="&quot;">&lt;</a>'


def test_a_shortened_label_keeps_the_whole_as_its_title() -> None:
    whole = str(label(0, 0, "a" * 50, width=60))
    assert f"<title>{'a' * 50}</title>" in whole
    assert "…" in whole
    assert "<title>" not in str(label(0, 0, "short", width=60))
    assert label(0, 0, "") is None
    assert measure("mmm") > measure("iii")


def test_axes() -> None:
    plain_axis = ruler(Axis(), [0.2, 9.7], 0, 100)
    assert (plain_axis.low, plain_axis.high) == (0, 10)
    assert plain_axis(5) == 50
    steps = ruler(Axis(scale="log1p"), [0, 999], 0, 300)
    assert steps(0) == 0
    assert steps(999) == pytest.approx(300)
    assert steps(30) == pytest.approx(300 * np.log(31) / np.log(1000))
    decades = ruler(Axis(scale="log"), [1e-5, 1e-1], 100, 0)
    assert decades(1e-3) == pytest.approx(50)
    assert all(text for _, text in decades.ticks)
    backward = ruler(Axis(domain=(0, 1), ticks=(0, 1), format=("none", "all")), [], 10, 20)
    assert backward.ticks == ((0, "none"), (1, "all"))
    assert ruler(Axis(), [3, 3], 0, 1).low < 3
    for axis, values, said in (
        (Axis(scale="log"), [0, 1], "positive"),
        (Axis(domain=(1, 1)), [], "no length"),
        (Axis(domain=(0, 1), ticks=(0, 1), format=("a",)), [], "2 ticks and 1 texts"),
    ):
        with pytest.raises(ValueError, match=said):
            ruler(axis, values, 0, 1)
