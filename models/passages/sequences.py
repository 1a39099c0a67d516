"""A question and T passages, one of which answers it, as a sequence of frozen embeddings."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.classifier.learner import Data


def sequences(
    questions: Float[Tensor, "question feature"],
    passages: Float[Tensor, "passage feature"],
    answers: Int[np.ndarray, " question"],
    negatives: Int[np.ndarray, "question negative"],
    *,
    length: int,
    train: int,
    seed: int = 0,
) -> Data:
    """The answer among its first length - 1 negatives, at a place drawn with `seed`, and the question last.

    The first `train` questions are trained on, the others held out. Embeddings of length 1 are scaled so that a
    feature is of the order of 1. Raises ValueError where there are not that many negatives, or none would be held out.
    """
    count = len(questions)
    if not 2 <= length <= negatives.shape[1] + 1:
        raise RequestError(f"T = {length}: with {negatives.shape[1]} negatives it can be 2 to {negatives.shape[1] + 1}")
    if not 1 <= train < count:
        raise RequestError(f"train = {train}: between 1 and {count - 1} of the {count} questions can be trained on")
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(length, (count,), generator=generator)
    rows = torch.from_numpy(np.concatenate([answers[:, None], negatives[:, : length - 1]], axis=1))
    each = torch.arange(count)
    shuffled = rows.clone()  # the answer and the negative at its place change places
    shuffled[:, 0] = rows[each, places]
    shuffled[each, places] = rows[:, 0]
    tokens = torch.cat([passages[shuffled], questions[:, None]], dim=1) * questions.shape[1] ** 0.5
    return Data(tokens[:train], places[:train], tokens[train:], places[train:])


def similarity_accuracy(data: Data) -> tuple[float, float]:
    """How often the passage most like the question is the answer: what the frozen embeddings do by themselves.

    (training questions, held questions); likeness is the dot product.
    """
    found = []
    for tokens, places in ((data.train, data.targets), (data.held, data.held_targets)):
        likeness = torch.einsum("etf,ef->et", tokens[:, :-1], tokens[:, -1])
        found.append(float((likeness.argmax(1) == places).double().mean()))
    return found[0], found[1]
