"""The pages in a real browser with its network off: no request, no complaint, no overlap, controls that work."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from interp.render import browser
from tests.interp.render.chromium import Chromium
from tests.interp.render.kinds import HOSTILE, figure, page

pytestmark = pytest.mark.skipif(browser.find() is None, reason="chromium is not installed")

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
    for width in (400, 1280):
        chromium.width(width)
        assert chromium.value(LAYOUT)["faults"] == [], width
    assert chromium.requests == []
    assert chromium.complaints == []


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
