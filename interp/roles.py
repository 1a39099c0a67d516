"""Roles of heads: where a head that plays a role attends, and how well a model's heads divide the roles."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor


@dataclass(frozen=True)
class Role:
    """A role: at which positions of each example it is played, and which positions a head that plays it reads.

    inputs: whatever the model takes, first axis `example`. `queries` and `targets` count the model's own positions,
    which can be more than the input's (a task that appends a CLS).
    """

    name: str
    inputs: Tensor
    queries: Bool[Tensor, "example query"]
    targets: Bool[Tensor, "example query key"]
