"""How well a model retrieves: its error beside the spread of the target, and beside the theorem's bound."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import run, untouched
from headlab.models.hooked import HookedTransformer
from headlab.models.retrieval.task import RetrievalTask

BATCH = 1 << 23  # numbers that one pass holds, attention and residual streams together


@dataclass(frozen=True)
class RetrievalEvaluation:
    """nmse: mean squared error over the variance of the target. max_error: the largest |f - y|, in the target's units.

    bound: what the theorem allows |f - y| to be in exact arithmetic, None where no theorem speaks.
    """

    samples: int
    nmse: float
    max_error: float
    bound: float | None

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def evaluate(
    model: HookedTransformer,
    task: RetrievalTask,
    *,
    seed: int = 0,
    count: int | None = None,
    bound: float | None = None,
) -> RetrievalEvaluation:
    """Measure `model` on `count` (2048) sequences drawn with `seed`, in the model's dtype; `bound` is passed on.

    Raises ValueError for fewer than 2 sequences, which have no variance.
    """
    tokens = task.draw(2048 if count is None else count, seed)
    if len(tokens) < 2:
        raise RequestError(f"count = {count}: the variance of the target needs at least 2 sequences")
    tokens = tokens.to(model.cfg.dtype)
    targets = task.family.target(tokens).double()
    error = outputs(model, tokens).double() - targets
    return RetrievalEvaluation(
        samples=len(tokens),
        nmse=float(error.square().mean() / targets.var(correction=0)),
        max_error=float(error.abs().max()),
        bound=bound,
    )


def outputs(model: HookedTransformer, tokens: Float[Tensor, "example position feature"]) -> Float[Tensor, " example"]:
    """The model's answers, on the CPU."""
    length = model.cfg.n_ctx
    rows = max(1, BATCH // (length * (length * model.cfg.n_heads + 8 * model.cfg.d_model)))
    answers = []
    with untouched(model):
        for part in tokens.split(rows):
            answers.append(run(model, part.to(model.cfg.device or "cpu"))[:, -1, 0].cpu())
    return torch.cat(answers)
