"""How right a model is on endpoint selection: errors as integers, the smallest margin, the loss."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, run, untouched
from headlab.models.esp.task import EspTask, margins

BATCH_ENTRIES = 16_000_000


@dataclass(frozen=True)
class EspEvaluation:
    """A model on all 2m samples of a task.

    errors: samples whose target's logit is not strictly the largest over all tokens. accuracy: 1 - errors/samples.
    min_margin: the smallest of target's logit minus the largest other one, in logits. loss: mean cross-entropy, nats.
    """

    samples: int
    errors: int
    accuracy: float
    min_margin: float
    loss: float

    def to_json(self) -> dict[str, Any]:
        """The fields, JSON-ready."""
        return asdict(self)


def read_logits(
    model: HookedModel, task: EspTask, *, dtype: torch.dtype | None = None
) -> Float[Tensor, "example vocabulary"]:
    """The logits at '#' of all 2m samples, in the task's order, on the CPU; in batches that keep memory small.

    dtype: compute in it, on a copy of the model. ValueError where the model's vocabulary or context does not fit.
    """
    require_fit(model, task)
    if dtype is not None:
        model = in_dtype(model, dtype)
    examples = task.examples()
    device = next(model.parameters()).device  # type: ignore[attr-defined]
    rows = max(1, BATCH_ENTRIES // (len(task.positions) * (task.n + 3)))
    with untouched(model):
        parts = [run(model, batch.to(device))[:, -1].cpu() for batch in examples.inputs.split(rows)]
    return torch.cat(parts)


def evaluate(model: HookedModel, task: EspTask, *, dtype: torch.dtype | None = None) -> EspEvaluation:
    """Errors, accuracy, smallest margin and cross-entropy over all 2m samples; ties are wrong.

    dtype: compute in it (torch.float64 for exact tests), on a copy. ValueError where model and task do not fit, and
    where a logit is not finite.
    """
    logits = read_logits(model, task, dtype=dtype)
    if not bool(torch.isfinite(logits).all()):
        raise RequestError("the model's logits are not finite: it cannot be evaluated")
    targets = task.examples().targets[:, 0]
    margin = margins(logits, targets)
    errors = int((margin <= 0).sum())
    loss = torch.nn.functional.cross_entropy(logits.double(), targets)
    return EspEvaluation(len(targets), errors, 1 - errors / len(targets), float(margin.min()), float(loss))


def require_fit(model: HookedModel, task: EspTask) -> None:
    """Raise ValueError where the model's vocabulary or context is not the task's."""
    if model.cfg.d_vocab != task.n + 3 or model.cfg.d_vocab_out != task.n + 3:
        raise RequestError(
            f"the model has {model.cfg.d_vocab} tokens in and {model.cfg.d_vocab_out} out, but the graph "
            f"'{task.graph.name}' with {task.n} vertices makes {task.n + 3}: take the graph that the model was made for"
        )
    if model.cfg.n_ctx < len(task.positions):
        raise RequestError(f"the model sees {model.cfg.n_ctx} positions, but a sample has {len(task.positions)}")


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """The model itself where it is of that dtype throughout, else a copy that computes in it."""
    if all(parameter.dtype == dtype for parameter in model.parameters()) and model.cfg.dtype == dtype:
        return model
    model = copy.deepcopy(model)
    torch.nn.Module.to(model, dtype=dtype)  # past HookedTransformer.to, which prints
    for module in model.modules():
        if hasattr(module, "cfg"):
            module.cfg.dtype = dtype
    return model
