"""The pages in a real browser with its network off: no request, no complaint, no overlap, controls that work."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from headlab.interp.render import attention_viewer, browser
from headlab.interp.render.text import visible
from tests.interp.render.chromium import Chromium
from tests.interp.render.kinds import DRAWN, HOSTILE, causal, figure, page

pytestmark = pytest.mark.skipif(browser.find() is None, reason="chromium is not installed")

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")
LAYOUT = Path(__file__).with_name("layout.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    running = Chromium()
    yield running
    running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(page(interactive=True), encoding="utf-8")
    return path


def test_a_report_of_every_kind(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    for width in (400, 420, 500, 980, 1280, 1600):
        chromium.width(width)
        seen = chromium.value(LAYOUT)
        assert seen["faults"] == [], width
        assert seen["least"] >= (10 if width >= 420 else 9), width
    assert chromium.requests == []
    assert chromium.complaints == []


def test_labels_of_any_length_overlap_nothing(chromium: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    count = iter(range(10_000))
    path.write_text(page(lambda _: HOSTILE[next(count) % len(HOSTILE)]), encoding="utf-8")
    chromium.open(path)
    for width in (400, 1280, 1600):
        chromium.width(width)
        assert chromium.value(LAYOUT)["faults"] == [], width
    assert chromium.requests == []
    assert chromium.complaints == []
    shown = chromium.value("document.body.textContent")
    assert all(visible(label) in shown for label in HOSTILE)
    assert chromium.value("document.querySelectorAll('img').length") == 0


def test_the_slider_hides_edges(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    edges = "[...document.querySelectorAll('#section-3 .hl-wide path[data-v]')]"
    shown = f"{edges}.filter((e) => e.style.display === '').length"
    control = "document.querySelector('#section-3 .hl-control input')"
    said = "document.querySelector('#section-3 .hl-control output').textContent"
    assert chromium.value(f"getComputedStyle({control}).display") != "none"
    before = chromium.value(shown)
    assert chromium.value(said) == f"0.25 logits, {before} of {chromium.value(shown.replace('.filter', '.map'))} edges"
    chromium.value(f"{control}.value = 5; {control}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    assert 0 < chromium.value(shown) < before
    assert chromium.value(said).startswith("5.00 logits, ")


def test_the_slider_takes_the_keyboard(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    control = "document.querySelector('#section-3 .hl-control input')"
    said = "document.querySelector('#section-3 .hl-control output').textContent"
    chromium.value(f"{control}.focus()")
    before = chromium.value(said)
    chromium.press("End", 35)
    assert chromium.value(said).startswith("11.00 logits, 2 of ")
    chromium.press("Home", 36)
    assert chromium.value(said) != before
    assert chromium.value(said).startswith("0.00 logits, ")


def test_names_of_the_arc_diagram_take_the_pointer(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    arcs = "document.querySelector('#section-2 .hl-wide')"
    chromium.value(f"{arcs}.scrollIntoView({{block: 'center'}})")
    box = chromium.value(
        f"(() => {{ const b = {arcs}.querySelector('[data-n=\"1\"]').getBoundingClientRect();"
        "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    chromium.point(*box)
    assert chromium.value(f"{arcs}.classList.contains('hl-dim')")
    chromium.point(1, 1)
    assert not chromium.value(f"{arcs}.classList.contains('hl-dim')")


def test_names_of_the_arc_diagram_take_the_keyboard(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    arcs = "document.querySelector('#section-2 .hl-wide')"
    chromium.value(f"{arcs}.querySelector('[data-n=\"1\"]').focus()")
    assert chromium.value(f"{arcs}.classList.contains('hl-dim')")
    assert chromium.value(f"[...{arcs}.querySelectorAll('path.hl')].map((e) => e.dataset.e).join()") == "0 1,1 3"
    chromium.value("document.activeElement.blur()")
    assert not chromium.value(f"{arcs}.classList.contains('hl-dim')")


def test_the_viewer_opens_without_the_network(chromium: Chromium, report: Path) -> None:
    chromium.open(report)
    chromium.value("document.querySelector('.hl-viewer').open = true")
    chromium.wait(4)
    assert len(chromium.value("document.querySelector('.hl-viewer iframe').srcdoc")) > 1_000_000
    assert chromium.requests == []
    assert chromium.complaints == []


def test_without_scripts_the_pictures_are_there(chromium: Chromium, report: Path) -> None:
    chromium.open(report, scripts=False)
    tree = chromium.call("DOM.getDocument", depth=0)["root"]["nodeId"]

    def count(selector: str) -> int:
        return len(chromium.call("DOM.querySelectorAll", nodeId=tree, selector=selector)["nodeIds"])

    assert count("svg.hl-wide") == count("svg.hl-narrow") == 12
    assert count(".hl-control[hidden]") == count(".hl-control") == 1
    assert count("[data-v][style]") == 0


def test_scripts_change_no_picture(chromium: Chromium, tmp_path: Path) -> None:
    for kind in DRAWN:
        page = tmp_path / f"{kind}.html"
        page.write_text(figure(kind).standalone_html(), encoding="utf-8")
        chromium.open(page)
        if kind == "circuit":
            control = "document.querySelector('.hl-control input')"
            chromium.value(f"{control}.value = 0; {control}.dispatchEvent(new Event('input', {{bubbles: true}}))")
            chromium.value("document.querySelector('.hl-control').hidden = true")
        (drawn,) = chromium.pictures("svg.hl-wide")
        chromium.open(page, scripts=False)
        assert chromium.pictures("svg.hl-wide") == [drawn], kind
        assert len(drawn) > 2000, kind


def test_long_attention_opens(chromium: Chromium, tmp_path: Path) -> None:
    page = tmp_path / "long.html"
    shown = attention_viewer(
        causal(12, 512), [f"token {k}" for k in range(512)], title="long", description="told", caption=""
    )
    page.write_text(shown.standalone_html(), encoding="utf-8")
    assert page.stat().st_size < 2_000_000
    chromium.open(page)
    chromium.value("document.querySelector('.hl-viewer').open = true")
    chromium.wait(3)
    assert "Shown: the first 64 of 512 positions." in chromium.value("document.querySelector('.hl-wide').textContent")
    assert chromium.value(LAYOUT)["faults"] == []
    assert chromium.requests == []
    assert chromium.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_has_contrast(chromium: Chromium, report: Path, dark: bool) -> None:
    for width in (400, 1600):
        chromium.open(report, width, dark=dark)
        chromium.width(width, chromium.value("document.documentElement.scrollHeight"))
        seen = chromium.value(CONTRAST)
        assert seen["faults"] == [], width
        assert seen["count"] > 300


def test_text_reads_in_light_and_dark(chromium: Chromium, report: Path) -> None:
    ink = "getComputedStyle(document.querySelector('h1')).color"
    ground = "getComputedStyle(document.body).backgroundColor"
    chromium.open(report)
    assert (chromium.value(ink), chromium.value(ground)) == ("rgb(22, 25, 29)", "rgb(255, 255, 255)")
    chromium.open(report, dark=True)
    assert (chromium.value(ink), chromium.value(ground)) == ("rgb(233, 236, 239)", "rgb(17, 20, 24)")
    chromium.value("document.documentElement.dataset.theme = 'light'")
    assert chromium.value(ground) == "rgb(255, 255, 255)"


def test_a_notebook_s_own_theme_is_followed(chromium: Chromium, tmp_path: Path) -> None:
    cell = tmp_path / "cell.html"
    ground = "getComputedStyle(document.querySelector('.hl-figure')).backgroundColor"
    for body, dark, colour in (
        ("data-jp-theme-light=false", False, "rgb(17, 20, 24)"),
        ("data-jp-theme-light=true", True, "rgb(255, 255, 255)"),
        ("", True, "rgb(17, 20, 24)"),
        ("", False, "rgb(255, 255, 255)"),
    ):
        cell.write_text(f"<!doctype html><body {body}>{figure('curves')._repr_html_()}", encoding="utf-8")
        chromium.open(cell, dark=dark)
        assert chromium.value(ground) == colour, body
    assert chromium.complaints == []


def test_a_png_has_twice_the_size(tmp_path: Path) -> None:
    shown = figure("tiles")
    data = shown.save(tmp_path / "x.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert shown.wide is not None
    assert struct.unpack(">II", data[16:24]) == (2 * (1080 + 32), 2 * (round(shown.wide.height) + 32))
    assert [one.name for one in tmp_path.iterdir()] == ["x.png"]
