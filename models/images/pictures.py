"""Pictures to train on and to hold out, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError

SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Pictures:
    """Square pictures with values in [0, 1] and the numbers of their classes."""

    name: str
    classes: tuple[str, ...]
    train: Float[Tensor, "picture channel row column"]
    targets: Int[Tensor, " picture"]
    held: Float[Tensor, "other channel row column"]
    held_targets: Int[Tensor, " other"]


@dataclass(frozen=True, eq=False)
class Shelf:
    """Pictures where they lie, not read yet.

    labels: split (`train`, `test`) -> the class of each picture. read(split, rows): those pictures, bytes
    [picture, channel, row, column].
    """

    name: str
    classes: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    read: Callable[[str, np.ndarray], np.ndarray]

    def draw(self, train: int, held: int, *, seed: int = 0) -> Pictures:
        """`train` pictures of the training split and `held` of the test split, as many of each class as can be.

        The same seed draws the same pictures, and a smaller draw is part of a larger one, class by class. Raises
        ValueError where the shelf has fewer.
        """
        found = {}
        for split, count in zip(SPLITS, (train, held), strict=True):
            rows = self._rows(split, count, seed)
            pixels = torch.from_numpy(np.ascontiguousarray(self.read(split, rows)))
            found[split] = pixels.float() / 255, torch.from_numpy(self.labels[split][rows].astype(np.int64))
        return Pictures(self.name, self.classes, *found["train"], *found["test"])

    def _rows(self, split: str, count: int, seed: int) -> np.ndarray:
        labels = self.labels[split]
        if not 1 <= count <= len(labels):
            raise RequestError(f"{self.name} has {len(labels)} pictures to {split}: {count} cannot be drawn of them")
        generator = np.random.default_rng([seed, SPLITS.index(split)])
        order = generator.permutation(len(labels))
        within = np.zeros(len(labels), dtype=np.int64)  # how many of its class stand before a picture
        for label in np.unique(labels):
            mine = order[labels[order] == label]
            within[mine] = np.arange(len(mine))
        return np.sort(order[np.argsort(within[order], kind="stable")][:count])


def digits(held: int = 297) -> Pictures:
    """scikit-learn's 1797 handwritten digits of 8 x 8, of which the last `held` are held out. Nothing is downloaded.

    Raises ValueError where none would be left to train on or to hold out.
    """
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    count = len(data.target)
    if not 1 <= held < count:
        raise RequestError(f"held = {held}: between 1 and {count - 1} of the {count} digits can be held out")
    pixels = torch.from_numpy(data.images).float()[:, None] / 16
    labels = torch.from_numpy(data.target.astype(np.int64))
    names = tuple(str(name) for name in data.target_names)
    return Pictures("digits", names, pixels[:-held], labels[:-held], pixels[-held:], labels[-held:])
