"""The notebooks' pages in a real browser with its network off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from headlab.analyses import notebooks
from headlab.interp.render import browser
from tests.interp.render.chromium import Chromium

pytestmark = pytest.mark.skipif(browser.find() is None, reason="no Chromium or Chrome is on this machine")

RENDER = Path(__file__).parents[1] / "interp" / "render"
CONTRAST, LAYOUT = (RENDER.joinpath(name).read_text(encoding="utf-8") for name in ("contrast.js", "layout.js"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    running = Chromium()
    yield running
    running.close()


@pytest.mark.parametrize("script", notebooks.sources(), ids=lambda path: path.stem)
def test_a_page_opens_offline_and_reads(chromium: Chromium, script: Path, tmp_path: Path) -> None:
    page = tmp_path / f"{script.stem}.html"
    held = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    page.write_text(notebooks.page(held, script.stem), encoding="utf-8")
    for dark in (False, True):
        chromium.open(page, 1280, dark=dark)
        assert chromium.value(LAYOUT)["faults"] == []
        chromium.width(1280, chromium.value("document.documentElement.scrollHeight"))
        assert chromium.value(CONTRAST)["faults"] == []
        assert chromium.requests == []
        assert chromium.complaints == []
    chromium.width(400)
    assert chromium.value("document.documentElement.scrollWidth") <= 400
