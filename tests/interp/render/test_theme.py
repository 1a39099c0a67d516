"""The palette: the colours of the style rules, text that can be read, heads that can be told apart without red or
green."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from headlab.interp.render import Head, theme
from headlab.interp.render.contrast import mix, readable, readable_opacity
from headlab.interp.render.diverging import diverging_step, symmetric_limit
from headlab.interp.render.theme import DARK, LETTERS, LIGHT

# Machado, Oliveira and Fernandes (2009), severity 1, in linear RGB.
VISION = {
    "normal": np.eye(3),
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colour: str, vision: str) -> np.ndarray:
    """CIELAB of a colour as it is seen with a kind of vision."""
    channels = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(VISION[vision]) @ linear, 0, 1)
    ratio = (XYZ @ seen) / (XYZ @ np.ones(3))
    f = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(palette: dict[str, str], one: str, other: str, vision: str) -> float:
    return float(np.linalg.norm(lab(palette[one], vision) - lab(palette[other], vision)))


PALETTES = [pytest.param(dict(LIGHT), id="light"), pytest.param(dict(DARK), id="dark")]


def test_the_style_s_own_colours() -> None:
    assert (LIGHT["head-a"], LIGHT["head-b"], LIGHT["head-one"]) == ("#0A5FB0", "#B44A00", "#4B5361")
    assert (DARK["head-a"], DARK["head-b"], DARK["head-one"]) == ("#70B7FF", "#FFA24A", "#BAC2CE")
    assert (LIGHT["bg"], DARK["bg"], LIGHT["neg-6"], DARK["pos-6"]) == ("#FFFFFF", "#111418", "#A8157C", "#8CCB6A")
    assert set(LIGHT) == set(DARK)
    assert all(re.fullmatch(r"#[0-9A-F]{6}", colour) for colour in (*LIGHT.values(), *DARK.values()))


@pytest.mark.parametrize("palette", PALETTES)
def test_text_can_be_read(palette: dict[str, str]) -> None:
    heads = [f"head-{letter.lower()}" for letter in LETTERS] + ["head-one"]
    for name in ["ink", "muted", "neg-6", "pos-6", *heads]:
        for ground in ("bg", "panel"):
            assert contrast_of(palette, name, ground) >= 4.5, (name, ground)
    for name in ("ink", "muted"):
        for ground in ("zero", "tile"):
            assert contrast_of(palette, name, ground) >= 4.5, (name, ground)
    for name in [*heads, "ink", "neg-6", "pos-6"]:
        assert contrast_of(palette, "on", name) >= 4.5, name
    for step in [f"{side}-{step}" for side in ("neg", "pos") for step in range(1, 7)]:
        assert contrast_of(palette, f"on-{step}", step) >= 4.5, step


def contrast_of(palette: dict[str, str], one: str, other: str) -> float:
    return theme.contrast(palette[one], palette[other])


def test_contrast_is_that_of_wcag() -> None:
    assert theme.contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert theme.contrast("#777777", "#FFFFFF") == pytest.approx(4.478, abs=1e-3)
    assert theme.contrast("#B44A00", "#F5F6F8") == pytest.approx(4.95, abs=0.01)


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("palette", PALETTES)
def test_heads_and_signs_are_told_apart_without_red_or_green(palette: dict[str, str], vision: str) -> None:
    assert distance(palette, "head-a", "head-b", vision) >= 87
    assert distance(palette, "neg-6", "pos-6", vision) >= 50
    heads = [f"head-{letter.lower()}" for letter in LETTERS] + ["head-one"]
    least = min(distance(palette, one, other, vision) for one, other in itertools.combinations(heads, 2))
    assert least >= (17 if vision == "normal" else 11)


@pytest.mark.parametrize("share", np.linspace(0, 1, 11))
@pytest.mark.parametrize("letter", LETTERS)
def test_text_on_a_tinted_cell_can_be_read(letter: str, share: float) -> None:
    colour = Head(letter).colour
    opacity, text = readable_opacity(colour, float(share))
    assert abs(opacity - share) <= 0.25
    assert readable(colour, opacity) == text
    for palette in (LIGHT, DARK):
        assert theme.contrast(palette[text], mix(palette[colour], palette["tile"], opacity)) >= 4.5


def test_variables_resolve_and_carry_their_light_value() -> None:
    assert theme.var("ink") == "var(--hl-ink,#16191D)"
    assert theme.var("negative") == theme.var("neg-6")
    assert theme.used(theme.var("muted") + theme.var("ink")) == ("ink", "muted")
    assert theme.resolve(theme.var("ink"), "dark") == DARK["ink"]
    assert theme.without_fallbacks(theme.var("head-a")) == "var(--hl-head-a)"
    with pytest.raises(ValueError, match="no palette colour 'red'"):
        theme.var("red")


def test_a_head_has_a_key_of_the_palette() -> None:
    assert Head("A").shown == "A"
    assert Head("ink", "3.1").shown == "3.1"
    assert Head("one").colour == "head-one"
    with pytest.raises(ValueError, match="A to L"):
        Head("M")
    with pytest.raises(ValueError, match="A to L"):
        Head("AB")


def test_the_diverging_scale_has_a_zero_band_and_six_equal_steps() -> None:
    assert [diverging_step(share, 1) for share in (0, 0.099, 0.1, 0.249, 0.251, 0.86, 1, 7)] == [0, 0, 1, 1, 2, 6, 6, 6]
    assert diverging_step(-0.5, 1) == -diverging_step(0.5, 1)
    assert diverging_step(float("nan"), 1) == 0
    values = np.concatenate([np.linspace(-1, 1, 999), [1000.0]])
    assert symmetric_limit(values) == pytest.approx(np.percentile(np.abs(values), 99))
    assert symmetric_limit(np.eye(400)) == 1
    assert symmetric_limit([0.0, 0.0]) == 1
    assert symmetric_limit([np.nan, -3.0]) == pytest.approx(3)
