"""What holds for every kind of figure: well-formed, unique ids, no requests, colours through variables, files."""

from __future__ import annotations

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from headlab.interp.render import Axis, Figure, StripRow, browser, effect_grid, strip_chart, theme
from tests.interp.render.kinds import DRAWN, KINDS, figure, page

SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Ids, tags and addresses of a page; scripts and styles apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id" and value:
                self.ids[value] += 1
            if name in ("src", "href", "xlink:href", "action", "data", "poster"):
                self.addresses.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)


def bare(text: str) -> str:
    """The page without its scripts' texts."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("kind", DRAWN)
def test_both_drawings_are_xml_with_an_alternative_text(kind: str) -> None:
    shown = figure(kind)
    for markup in (shown.svg, shown.svg_narrow):
        assert markup is not None
        root = ElementTree.fromstring(markup)
        assert root.tag == f"{SVG}svg"
        assert root.attrib["role"] == "img"
        title, told = root.findall(f"{SVG}title"), root.findall(f"{SVG}desc")
        assert [one.text for one in title] == [kind if kind != "viewer" else "viewer"]
        assert [one.text for one in told] == ["told"]
        assert root.attrib["aria-labelledby"].split() == [title[0].attrib["id"], told[0].attrib["id"]]
    widths = [float(ElementTree.fromstring(one or "").attrib["width"]) for one in (shown.svg, shown.svg_narrow)]
    assert widths == [1080, 372]


@pytest.mark.parametrize("kind", DRAWN)
def test_nothing_stands_outside_its_drawing(kind: str) -> None:
    for markup in (figure(kind).svg, figure(kind).svg_narrow):
        root = ElementTree.fromstring(markup or "")
        wide, high = float(root.attrib["width"]), float(root.attrib["height"])
        for node in root.iter(f"{SVG}text"):
            if "x" in node.attrib:
                assert -1 <= float(node.attrib["x"]) <= wide + 1
        for node in root.iter(f"{SVG}circle"):
            assert 0 <= float(node.attrib["cx"]) <= wide + 1
            assert 0 <= float(node.attrib["cy"]) <= high + 1


@pytest.mark.parametrize("kind", KINDS)
def test_colours_are_variables(kind: str) -> None:
    shown = figure(kind)
    markup = re.sub(r"var\(--hl-[a-z0-9-]+,#[0-9A-F]{6}\)", "", bare(shown.to_html()))
    assert not re.search(r"#[0-9A-Fa-f]{3}\b|#[0-9A-Fa-f]{6}\b|rgba?\(|hsla?\(", markup)
    assert not re.search(
        r'(?:fill|stroke)="(?!none|url\(#|"|\d)', markup.replace('stroke=""', "").replace('fill=""', "")
    )


def test_thirty_figures_on_a_page_share_no_id() -> None:
    shown = [figure(kind) for kind in KINDS]
    parts = [one.to_html() for one in shown] + [one._repr_html_() for one in shown] + [one.to_html() for one in shown]
    assert len(parts) >= 30
    ids = Page(bare("".join(parts))).ids
    assert len(ids) > 60
    assert {name for name, count in ids.items() if count > 1} == set()


@pytest.mark.parametrize("kind", KINDS)
def test_every_reference_finds_its_id(kind: str) -> None:
    text = bare(figure(kind).to_html())
    ids = Page(text).ids
    for name in re.findall(r"url\(#([^)]*)\)", text) + " ".join(re.findall(r'labelledby="([^"]*)"', text)).split():
        assert ids[name] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_asks_for_anything(kind: str, tmp_path: Path) -> None:
    shown = figure(kind)
    texts = [shown.standalone_html(), shown._repr_html_()]
    if kind in DRAWN:
        texts.append(shown.standalone_svg())
    for text in texts:
        seen = Page(bare(text))
        assert [one for one in seen.addresses if not one.startswith(("#", "data:,"))] == []
        assert seen.handlers == []
        rest = bare(text).replace("http://www.w3.org/2000/svg", "")
        assert "http" not in rest
        assert "@import" not in rest
        assert re.findall(r"url\((?!#)", rest) == []


@pytest.mark.parametrize("kind", DRAWN)
def test_the_picture_is_there_without_scripts_and_style_sheets(kind: str) -> None:
    text = bare(figure(kind)._repr_html_())
    assert text.count("<svg") == 2
    assert text.count('display="none"') == 1
    assert f"var(--hl-bg,{theme.LIGHT['bg']})" in re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("kind", DRAWN)
def test_saved_svg_stands_alone(kind: str, tmp_path: Path) -> None:
    shown = figure(kind)
    assert shown.save(tmp_path / "x.svg") == tmp_path / "x.svg"
    auto = (tmp_path / "x.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(auto)
    for name in theme.used(re.sub(r"<style>.*?</style>", "", auto)):
        assert f"--hl-{name}:{theme.LIGHT[name]}" in auto
        assert f"--hl-{name}:{theme.DARK[name]}" in auto
    for appearance, palette in (("light", theme.LIGHT), ("dark", theme.DARK)):
        shown.save(tmp_path / "x.svg", appearance=appearance)
        plain = (tmp_path / "x.svg").read_text(encoding="utf-8")
        ElementTree.fromstring(plain)
        assert "var(" not in plain
        assert palette["bg"] in plain


def test_files_are_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = figure("strip")
    shown.save(tmp_path / "x.html")
    before = (tmp_path / "x.html").read_bytes()

    def broken(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        shown.save(tmp_path / "x.html")
    assert [one.name for one in tmp_path.iterdir()] == ["x.html"]
    assert (tmp_path / "x.html").read_bytes() == before


def test_saving_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = figure("strip")
    with pytest.raises(ValueError, match=r"\.svg, \.html or \.png"):
        shown.save(tmp_path / "x.pdf")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        shown.save(tmp_path / "no" / "x.svg")
    with pytest.raises(ValueError, match="no theme 'blue'"):
        shown.save(tmp_path / "x.svg", appearance="blue")
    with pytest.raises(ValueError, match="is a table"):
        figure("claims").save(tmp_path / "x.svg")
    monkeypatch.setattr(browser, "find", lambda: None)
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(FileNotFoundError, match="needs Chromium"):
        shown.save(tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_numbers_may_be_numpy_or_torch() -> None:
    def drawn(values: object, end: object) -> str:
        rows = [StripRow("a", values)]
        one = strip_chart(rows, title="t", description="d", axis=Axis(domain=(0, end)))  # type: ignore[arg-type]
        other = effect_grid([values], rows=["r"], columns=["a", "b"], limit=end, title="t", description="d")  # type: ignore[arg-type]
        return re.sub(r"hl\d+-", "", one.svg + other.svg)

    plain = drawn([0.25, 0.5], 1.0)
    assert drawn(np.array([0.25, 0.5], dtype=np.float32), np.float32(1)) == plain
    assert drawn(torch.tensor([0.25, 0.5], requires_grad=True), torch.tensor(1.0)) == plain
    assert drawn([torch.tensor(0.25), np.float64(0.5)], np.int64(1)) == plain


def test_a_page_is_one_small_file_with_every_part() -> None:
    text = page()
    assert len(text.encode()) < 400_000
    seen = Page(bare(text))
    assert max(seen.ids.values()) == 1
    assert seen.tags["h1"] == 1
    assert seen.tags["h2"] == len(KINDS)
    assert [one for one in seen.addresses if not one.startswith(("#", "data:,"))] == ["other.html"]
    assert {one[1:] for one in seen.addresses if one.startswith("#")} <= set(seen.ids)
    assert "http" not in bare(text).replace("http://www.w3.org/2000/svg", "")
    assert len(re.findall(r"<script>", text)) == 1
    assert re.search(r'name="viewport"', text)


def test_what_a_figure_shows_does_not_change_when_it_is_shown_again() -> None:
    shown = figure("circuit")
    first, second = (re.sub(r"hl\d+-", "", shown.to_html()) for _ in range(2))
    assert first == second
    assert isinstance(shown, Figure)
