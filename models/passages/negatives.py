"""Hard negatives: wrong passages that share the question's rare words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from headlab.interp.errors import RequestError
from headlab.models.passages.pairs import Pairs

CHUNK = 512  # questions at a time


def hard_negatives(pairs: Pairs, count: int) -> np.ndarray:
    """For each question `count` wrong passages, the likest first: [question, negative].

    Likeness is the cosine of TF-IDF vectors (words, sublinear counts), fitted to the passages; negatives that came
    with the pairs stand first. The answer is never among them. Raises ValueError where there are too few passages.
    """
    if not 1 <= count < len(pairs.passages):
        raise RequestError(f"{count} negatives a question cannot be had of {len(pairs.passages)} passages")
    vectoriser = TfidfVectorizer(sublinear_tf=True)
    passages: Any = vectoriser.fit_transform(pairs.passages)
    questions: Any = vectoriser.transform(pairs.questions)
    found = np.empty((len(pairs), count), dtype=np.int64)
    for first in range(0, len(pairs), CHUNK):
        likeness = (questions[first : first + CHUNK] @ passages.T).toarray()
        rows = np.arange(len(likeness))
        likeness[rows, pairs.answers[first : first + CHUNK]] = -np.inf
        for row in rows if pairs.negatives else ():
            given = [p for p in pairs.negatives[first + row] if p != pairs.answers[first + row]]
            likeness[row, given] = 2 - np.arange(len(given)) / (len(given) + 1)  # above every cosine, in their order
        found[first : first + len(rows)] = np.argsort(-likeness, axis=1, kind="stable")[:, :count]
    return found
