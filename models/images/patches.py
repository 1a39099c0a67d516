"""Pictures as sequences: a border around the picture makes it longer, square patches are its tokens."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from headlab.interp.errors import RequestError
from headlab.models.classifier.learner import Data
from headlab.models.images.pictures import Pictures


def extend(
    pictures: Float[Tensor, "picture channel row column"], side: int
) -> Float[Tensor, "picture channel {side} {side}"]:
    """The same pictures in the middle of squares of `side`, with zeros around them.

    Raises ValueError for a side that is smaller than the picture, or that cannot have it in its middle.
    """
    height, width = pictures.shape[2:]
    if height != width or side < height or (side - height) % 2:
        raise RequestError(f"pictures of {height} x {width} cannot stand in the middle of a square of {side}")
    border = (side - height) // 2
    return functional.pad(pictures, (border, border, border, border))


def cut(pictures: Float[Tensor, "picture channel row column"], patch: int) -> Float[Tensor, "picture patch feature"]:
    """Square patches row by row; a patch is its channels one after the other, each row by row.

    Raises ValueError where the patches do not tile the picture.
    """
    side = pictures.shape[-1]
    if patch < 1 or side % patch:
        raise RequestError(f"patches of {patch} do not tile a picture of {side}")
    pieces = pictures.unfold(2, patch, patch).unfold(3, patch, patch)  # [picture, channel, down, across, row, column]
    return pieces.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


def sequences(pictures: Pictures, *, patch: int, side: int) -> Data:
    """Tokens of standardised pictures (each channel by its mean and deviation over the training pictures).

    The border is 0, the mean of the training pictures. The sequence has (side / patch)^2 tokens.
    """
    mean = pictures.train.mean((0, 2, 3), keepdim=True)
    sd = pictures.train.std((0, 2, 3), keepdim=True)

    def tokens(some: Tensor) -> Tensor:
        return cut(extend((some - mean) / sd, side), patch)

    return Data(tokens(pictures.train), pictures.targets, tokens(pictures.held), pictures.held_targets)


def length(side: int, patch: int) -> int:
    """How many tokens a picture of `side` makes."""
    return (side // patch) ** 2
