"""Questions and passages, and which passage answers which question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headlab.interp.errors import RequestError

SPACES = re.compile(r"\s+")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Question i is answered by passage answers[i]; several questions may share a passage.

    negatives: question -> passages that were given as wrong ones; empty where none were given.
    """

    name: str
    questions: tuple[str, ...]
    passages: tuple[str, ...]
    answers: np.ndarray
    negatives: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.questions)


def pair_up(name: str, found: Sequence[tuple[str, str]], *, words: int | None = None) -> Pairs:
    """(question, passage) texts without repetitions: of equal questions or equal passages only the first pair stays.

    White space is one blank; texts are compared without regard to case, by their first `words` words where given (an
    encoder that reads no further cannot tell them apart). Raises ValueError where no pair is left.
    """
    questions, passages = [], []
    seen: tuple[set[str], set[str]] = set(), set()
    for pair in found:
        texts = [SPACES.sub(" ", text).strip() for text in pair]
        keys = [" ".join(text.lower().split()[:words]) for text in texts]
        if not all(keys) or keys[0] in seen[0] or keys[1] in seen[1]:
            continue
        for known, key in zip(seen, keys, strict=True):
            known.add(key)
        questions.append(texts[0])
        passages.append(texts[1])
    if not questions:
        raise RequestError(f"{name} has no pair of a question and a passage")
    return Pairs(name, tuple(questions), tuple(passages), np.arange(len(questions)))
