"""The data of the head-count study: read only when a cell has to be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from headlab.analyses.study.retrieval.real.plans import Plan
from headlab.interp.errors import RequestError
from headlab.models.classifier.learner import Data
from headlab.models.images import archives
from headlab.models.images.patches import sequences as picture_sequences
from headlab.models.images.pictures import Pictures, digits
from headlab.models.passages.docstrings import OPENING, documentation
from headlab.models.passages.embeddings import embed, encoder_at_hand
from headlab.models.passages.marco import HUB, marco, require_marco
from headlab.models.passages.negatives import hard_negatives
from headlab.models.passages.pairs import Pairs
from headlab.models.passages.sequences import sequences as passage_sequences

INSTALLED = "installed"
DISTRIBUTIONS = {"sklearn": "scikit-learn"}


@dataclass(frozen=True, eq=False)
class Source:
    """Data of one kind. name: for a reader. about: what they are, JSON-ready; cells of other data are measured anew.

    sequences(size): the data at one length, read on the first call.
    """

    name: str
    classes: int
    about: Mapping[str, Any]
    sequences: Callable[[int], Data]


def source(plan: Plan, *, images: str | None, passages: str, seed: int = 0) -> Source:
    """The data that a plan asks for.

    Raises FileNotFoundError and ValueError for pictures or passages that cannot be read.
    """
    if plan.kind == "digits":
        pictures = _some(digits(plan.held), plan.train)
        return Source("digits", 10, {"data": "digits"}, _cut(plan, lambda: pictures))
    if plan.kind == "pictures":
        return _pictures(plan, str(images), seed)
    return _passages(plan, passages, seed)


def _some(pictures: Pictures, train: int) -> Pictures:
    return replace(pictures, train=pictures.train[:train], targets=pictures.targets[:train])


def _cut(plan: Plan, read: Callable[[], Pictures]) -> Callable[[int], Data]:
    return lambda side: picture_sequences(read(), patch=plan.patch, side=side)


def _pictures(plan: Plan, place: str, seed: int) -> Source:
    shelf = archives.shelf(place)
    about = {"data": shelf.name, "seed": seed, "pictures": {s: len(rows) for s, rows in shelf.labels.items()}}
    read = cache(lambda: shelf.draw(plan.train, min(plan.held, len(shelf.labels["test"])), seed=seed))
    return Source(shelf.name, len(shelf.classes), about, _cut(plan, read))


def _passages(plan: Plan, place: str, seed: int) -> Source:
    encoder, count = encoder_at_hand(), plan.train + plan.held
    about: dict[str, Any] = {"data": place, "encoder": encoder, "seed": seed}
    if place != INSTALLED:
        require_marco(place)
    else:
        about["words"] = OPENING
        about["versions"] = {name: version(DISTRIBUTIONS.get(name, name)) for name in plan.documents}

    @cache
    def prepared() -> tuple[Any, ...]:
        pairs = draw(documentation(plan.documents), count, seed) if place == INSTALLED else marco(place, count)
        if len(pairs) < count:
            raise RequestError(f"{pairs.name} has {len(pairs)} questions with an answer: the study takes {count}")
        vectors = embed((*pairs.passages, *pairs.questions), encoder, fit_on=len(pairs.passages))
        split = len(pairs.passages)
        return vectors[split:], vectors[:split], pairs.answers, hard_negatives(pairs, max(plan.sizes) - 1)

    def sequences(size: int) -> Data:
        return passage_sequences(*prepared(), length=size, train=plan.train, seed=seed)

    name = "documentation" if place == INSTALLED else "MS MARCO"
    if place.startswith(HUB) and "marco" not in place.lower():
        name = place[len(HUB) :]
    return Source(name, 1, about, sequences)


def draw(pairs: Pairs, count: int, seed: int) -> Pairs:
    """`count` pairs drawn with `seed`, with only their own passages. Raises ValueError where there are fewer."""
    if len(pairs) < count:
        raise RequestError(f"{pairs.name}: {len(pairs)} pairs, the study takes {count}")
    rows = np.sort(np.random.default_rng(seed).permutation(len(pairs))[:count])
    order = np.random.default_rng([seed, 1]).permutation(count)  # neighbours in a file are not all trained on
    rows = rows[order]
    return Pairs(
        pairs.name,
        tuple(pairs.questions[row] for row in rows),
        tuple(pairs.passages[pairs.answers[row]] for row in rows),
        np.arange(count),
    )
