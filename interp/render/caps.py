"""How much of its data a picture shows at most, and the sentence that says so in the picture itself."""

from __future__ import annotations

from dataclasses import replace

from headlab.interp.render.figure import Drawing, Figure
from headlab.interp.render.marks import lines_of
from headlab.interp.render.svg import escape, label
from headlab.interp.render.text import number


def left_out(*kinds: tuple[int, int, str]) -> str:
    """The sentence for (how many there are, how many are shown at most, what they are); empty where all are shown."""
    parts = [f"the first {number(most)} of {number(count)} {name}" for count, most, name in kinds if count > most]
    return f"Shown: {' and '.join(parts)}." if parts else ""


def with_sentence(figure: Figure, sentence: str) -> Figure:
    """The figure with the sentence above both its drawings, or above its table; the same figure where it is empty."""
    if not sentence:
        return figure
    if figure.wide is None:
        return replace(figure, before=f"<p><b>{escape(sentence)}</b></p>{figure.before}")
    narrow = None if figure.narrow is None else _above(figure.narrow, sentence)
    return replace(figure, wide=_above(figure.wide, sentence), narrow=narrow)


def _above(drawn: Drawing, sentence: str) -> Drawing:
    lines = lines_of(sentence, drawn.width, 14, bold=True)
    words = "".join(str(label(0, 16 + 20 * row, one, bold=True)) for row, one in enumerate(lines))
    deep = 20 * len(lines) + 12
    return Drawing(
        drawn.width, float(drawn.height) + deep, f'{words}<g transform="translate(0 {deep})">{drawn.content}</g>'
    )
