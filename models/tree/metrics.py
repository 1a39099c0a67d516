"""How well the logits spell the path."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.models.task import LogitMetric


def path_metrics(
    read: Int[Tensor, "example read"],
    targets: Int[Tensor, "example read"],
    stages: Mapping[str, Bool[Tensor, "example read"]],
) -> dict[str, LogitMetric]:
    """name -> performance per example from the full logits [example, position, vocabulary]; higher is better.

    `path`: 1.0 where every prediction of the example is right, else 0.0. `token`: the share of right predictions.
    Each of `stages`: that share among the reads that it marks. `log_probability`: of the targets, mean, in nats.
    `margin`: the smallest of target minus largest other logit. A tie is wrong.
    """
    used = read >= 0

    def picked(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, "example read vocabulary"]:
        index = read.clamp(min=0).to(logits.device)[..., None].expand(-1, -1, logits.shape[-1])
        return logits.gather(1, index)

    def mean(values: Tensor, where: Tensor) -> Tensor:
        where = where.to(values)
        return (values * where).sum(1) / where.sum(1).clamp(min=1)

    def shares(where: Bool[Tensor, "example read"]) -> LogitMetric:
        def share(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
            right = margins(picked(logits), targets) > 0
            return mean(right.to(logits.dtype), where)

        return share

    def path(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
        right = margins(picked(logits), targets) > 0
        return (right | ~used.to(logits.device)).all(1).to(logits.dtype)

    def log_probability(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
        chosen = picked(logits).log_softmax(-1).gather(-1, targets.to(logits.device)[..., None])[..., 0]
        return mean(chosen, used)

    def margin(logits: Float[Tensor, "example position vocabulary"]) -> Float[Tensor, " example"]:
        found = margins(picked(logits), targets)
        return found.masked_fill(~used.to(logits.device), torch.inf).min(1).values

    by_stage = {name: shares(where) for name, where in stages.items()}
    return {"path": path, "token": shares(used), **by_stage, "log_probability": log_probability, "margin": margin}


def margins(
    logits: Float[Tensor, "example read vocabulary"], targets: Int[Tensor, "example read"]
) -> Float[Tensor, "example read"]:
    """The target's logit minus the largest other one."""
    index = targets.to(logits.device)[..., None]
    target = logits.gather(-1, index)[..., 0]
    return target - logits.scatter(-1, index, -torch.inf).max(-1).values
