"""How well a model does sparse parity: its error on samples, the exact one, and where its heads look."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment

from headlab.interp.model import run, untouched
from headlab.models.hooked import HookedTransformer
from headlab.models.xor.architecture import from_model
from headlab.models.xor.task import LISTED_UP_TO, XorTask

BATCH = 1 << 22  # attention weights of one pass
MOST_WEIGHTS = 1 << 30  # attention weights of all passes, where the number of samples is left to us


@dataclass(frozen=True)
class XorEvaluation:
    """loss: mean squared error on `samples` inputs. max_error: the largest |f - y| among them.

    Of attention models, None for a feed-forward network: population_loss, exact over all 2^d inputs; one_to_one,
    whether each head's largest |attention| is on a target of its own; attention_at_targets, for each head in turn the
    share of its |attention| on the target that it is matched with.
    """

    samples: int
    loss: float
    max_error: float
    population_loss: float | None
    one_to_one: bool | None
    attention_at_targets: list[float] | None

    def to_json(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def evaluate(model: HookedTransformer, task: XorTask, *, seed: int = 0, count: int | None = None) -> XorEvaluation:
    """Measure `model` on all inputs where d <= 12 and `count` is None, else on `count` of them drawn with `seed`.

    count: 4096 by default, fewer from some 360 bits on, where a transformer's work grows as d^2 a sample.
    """
    weights = model.cfg.n_ctx**2 * model.cfg.n_heads
    if count is None and task.bits > LISTED_UP_TO:
        count = max(1, min(4096, MOST_WEIGHTS // weights))
    examples = task.examples(seed=seed, count=count)
    rows = max(1, BATCH // weights)
    errors = []
    with untouched(model):
        for start in range(0, len(examples), rows):
            part = examples[slice(start, start + rows)].to(model.cfg.device or "cpu")
            answer = run(model, part.inputs)[:, -1, 0].double()
            errors.append((answer - part.targets[:, 0].double()).cpu())
    error = torch.cat(errors)
    if not model.cfg.attn_only:
        return XorEvaluation(len(examples), float((error**2).mean()), float(error.abs().max()), None, None, None)
    models = from_model(model, task).to(torch.float64)
    size = models.attention()[0].abs()
    shares = (size[:, list(task.targets)] / size.sum(dim=-1, keepdim=True)).cpu().numpy()
    heads, columns = linear_sum_assignment(shares, maximize=True)
    return XorEvaluation(
        samples=len(examples),
        loss=float((error**2).mean()),
        max_error=float(error.abs().max()),
        population_loss=max(0.0, float(models.loss())),
        one_to_one=bool(models.placement().one_to_one),
        attention_at_targets=[float(share) for share in shares[heads, columns]],
    )
