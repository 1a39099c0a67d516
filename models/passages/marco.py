"""MS MARCO's passage ranking data, from its public files in a folder or through the `datasets` library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headlab.interp.errors import MissingFile, RequestError
from headlab.models.passages.pairs import SPACES, Pairs

HUB = "datasets:"
QUERIES, PASSAGES, JUDGED = "queries.train.tsv", "collection.tsv", "qrels.train.tsv"
TRIPLES = "triples.train.small.tsv"


def marco(place: str | Path, count: int) -> Pairs:
    """The first `count` questions of MS MARCO that have an answer.

    place: a folder with `triples.train.small.tsv` (question, right passage, wrong passage), or with
    `queries.train.tsv`, `collection.tsv` and `qrels.train.tsv`; or `datasets:NAME` or `datasets:NAME:CONFIG` for a
    data set with the columns query and passages. Passages with equal texts are one. Raises FileNotFoundError naming
    the file that is missing, and ValueError for a line that does not fit or where no question is left.
    """
    if count < 1:
        raise RequestError(f"count = {count}: there must be at least 1 question")
    require_marco(place)
    if str(place).startswith(HUB):
        return _gather(str(place), _hub(str(place)[len(HUB) :]), count)
    folder = Path(place)
    if (folder / TRIPLES).is_file():
        rows = ((q, right, [wrong]) for q, right, wrong in _lines(folder / TRIPLES, 3))
        return _gather("MS MARCO", rows, count)
    return _gather("MS MARCO", _judged(folder, count), count)


def require_marco(place: str | Path) -> None:
    """Raise FileNotFoundError, naming what is missing, for a folder without MS MARCO's files; nothing is read."""
    if str(place).startswith(HUB):
        return
    folder = Path(place)
    if not folder.is_dir():
        raise MissingFile(f"there are no passages at '{folder}': no such folder")
    if (folder / TRIPLES).is_file():
        return
    for name in (QUERIES, PASSAGES, JUDGED):
        if not (folder / name).is_file():
            raise MissingFile(f"'{folder}' lacks {name} (or {TRIPLES} alone)")


def _lines(path: Path, columns: int) -> Iterator[list[str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            parts = line.rstrip("\n").split("\t")
            if len(parts) != columns:
                raise RequestError(f"line {number} of '{path}' has {len(parts)} columns, not {columns}")
            yield parts


def _judged(folder: Path, count: int) -> Iterator[tuple[str, str, list[str]]]:
    """Judgements name a question and a passage by number; one pass over each file, keeping only what is named."""
    right: dict[str, str] = {}
    for question, _, passage, _ in _fields(folder / JUDGED):
        if question not in right and len(right) < count:
            right[question] = passage
    asked = {number: text for number, text in _lines(folder / QUERIES, 2) if number in right}
    wanted = set(right.values())
    texts = {number: text for number, text in _lines(folder / PASSAGES, 2) if number in wanted}
    for question, passage in right.items():
        if question in asked and passage in texts:
            yield asked[question], texts[passage], []


def _fields(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            parts = line.split()
            if len(parts) != 4:
                raise RequestError(f"line {number} of '{path}' has {len(parts)} columns, not 4")
            yield parts


def _hub(name: str) -> Iterator[tuple[str, str, list[str]]]:
    try:
        import datasets
    except ImportError:
        raise RequestError(f"'{HUB}{name}' needs the library datasets: pip install datasets") from None
    path, _, config = name.partition(":")
    try:
        loaded: Any = datasets.load_dataset(path, config or None, split="train")
    except Exception as error:
        raise RequestError(f"datasets cannot load '{name}': {str(error).splitlines()[0]}") from None
    if not {"query", "passages"} <= set(loaded.column_names):
        raise RequestError(f"'{name}' has no columns query and passages: it has {', '.join(loaded.column_names)}")
    for row in loaded:
        found = row["passages"]
        marked = list(zip(found["passage_text"], found["is_selected"], strict=True))
        right = [text for text, chosen in marked if chosen]
        if right:
            yield row["query"], right[0], [text for text, chosen in marked if not chosen]


def _gather(name: str, rows: Iterable[tuple[str, str, list[str]]], count: int) -> Pairs:
    numbers: dict[str, int] = {}  # passage -> number
    asked: dict[str, int] = {}  # question -> number of its answer
    wrong: dict[str, list[int]] = {}

    def number(text: str) -> int:
        return numbers.setdefault(SPACES.sub(" ", text).strip(), len(numbers))

    for question, right, others in rows:
        question = SPACES.sub(" ", question).strip()
        if question not in asked:
            if len(asked) == count:
                break
            asked[question] = number(right)
            wrong[question] = []
        if number(right) == asked[question]:
            wrong[question] += [number(text) for text in others]
    if not asked:
        raise RequestError(f"{name} has no question with an answer")
    return Pairs(
        name,
        tuple(asked),
        tuple(numbers),
        np.array(list(asked.values())),
        tuple(tuple(dict.fromkeys(wrong[question])) for question in asked),
    )
