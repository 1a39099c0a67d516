"""Any label is shown as text, in every kind of figure: nothing is executed, nothing breaks."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.render.svg import LONGEST, escape, fit, measure
from headlab.interp.render.text import plain, visible
from tests.interp.render.kinds import DRAWN, HOSTILE, KINDS, page


class Words(HTMLParser):
    """The text of a page outside scripts and styles, and the tags in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: dict[str, int] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self._inside = tag
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.words.append(data)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_labels_are_text(kind: str) -> None:
    given_labels: list[str] = []

    def say(_: str) -> str:
        given_labels.append(HOSTILE[len(given_labels) % len(HOSTILE)])
        return given_labels[-1]

    calm, hostile = KINDS[kind](str), KINDS[kind](say)
    text, usual = Words(hostile.to_html()), Words(calm.to_html())
    drawn = {"svg", "title", "desc", "text", "tspan", "g", "line", "path", "rect", "circle", "defs", "pattern"}
    assert set(text.tags) <= set(usual.tags) | drawn
    assert {k: v for k, v in text.tags.items() if k not in drawn} == {
        k: v for k, v in usual.tags.items() if k not in drawn
    }
    whole = "".join(text.words)
    for label in set(given_labels):
        assert visible(label) in whole
    if kind in DRAWN:
        for markup in (hostile.svg, hostile.svg_narrow):
            ElementTree.fromstring(markup or "")


def test_a_page_of_hostile_labels_is_the_same_page() -> None:
    usual = Words(page(interactive=True)).tags
    for label in ("</script><script>alert(1)</script>", "{{ 7 * 7 }}"):
        tags = Words(page(lambda _, label=label: label, interactive=True)).tags
        assert tags["script"] == usual["script"]
        assert tags["section"] == usual["section"]


def test_the_viewer_gets_labels_that_cannot_end_its_data() -> None:
    shown = KINDS["viewer"](lambda _: "</script><b>&lt;")
    data = re.search(r'class="hl-props">(.*?)</script>', shown.to_html())
    assert data is not None
    assert "<" not in data.group(1)
    assert "\\u003c\\u2060/script>" in data.group(1)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_every_text_survives_xml_and_html(text: str) -> None:
    root = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>')
    assert root.text == (visible(text) or None)
    assert root.attrib["b"] == visible(text)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.floats(20, 400), st.sampled_from([11.5, 14.0, 20.0]))
def test_a_label_fits_its_room(text: str, room: float, size: float) -> None:
    shown = plain(fit(text, room, size))
    assert len(shown) <= LONGEST
    assert measure(shown, size) <= room + 1e-6 or shown == "…"
    if shown != text:
        assert shown.endswith("…")
        assert text.startswith(shown[:-1].rstrip()) or not shown[:-1]
