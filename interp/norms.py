"""What a norm of a model is, asked of the module itself: whether it centres, its weight, its bias, its epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel

TOLERANCE: dict[torch.dtype, float] = {torch.float64: 1e-9, torch.float32: 1e-4}
HALF = 3e-2


def tolerance(model: HookedModel, dtype: torch.dtype) -> float:
    """How far a sum computed by hand may lie from the model's own, relative to its size.

    A module that a TransformerBridge wraps may compute in float32 within a float64 model.
    """
    wrapped = hasattr(model, "original_model")
    return max(TOLERANCE.get(dtype, HALF), 1e-5 if wrapped else 0.0)


@dataclass(frozen=True, eq=False)
class Norm:
    """x -> (x - mean(x) if centres) / sqrt(mean square + eps) * weight + bias, over the last axis."""

    centres: bool
    weight: Float[Tensor, " model"]
    bias: Float[Tensor, " model"]
    eps: float

    def scale(self, rows: Float[Tensor, "*row model"]) -> Float[Tensor, "*row 1"]:
        """What the rows are divided by, in float32 or better."""
        rows = precise(rows)[0]
        rows = rows - rows.mean(-1, keepdim=True) if self.centres else rows
        return (rows.square().mean(-1, keepdim=True) + self.eps).sqrt()

    def frozen(self, rows: Float[Tensor, "*row model"], scale: Float[Tensor, "*row 1"]) -> Float[Tensor, "*row model"]:
        """The rows through the norm with its scale held at `scale`: affine in the rows."""
        rows, weight, bias = precise(rows, self.weight, self.bias)
        rows = rows - rows.mean(-1, keepdim=True) if self.centres else rows
        return rows / scale * weight + bias

    def __call__(self, rows: Float[Tensor, "*row model"]) -> Float[Tensor, "*row model"]:
        """The rows through the norm, in float32 or better."""
        return self.frozen(rows, self.scale(rows))

    def pulled_back(
        self, gradient: Float[Tensor, "... model"], rows: Float[Tensor, "... model"]
    ) -> Float[Tensor, "... model"]:
        """The gradient at the rows of what has `gradient` behind the norm (its vector-Jacobian product).

        With c the centred rows, s their scale and u = c / s: g = weight * gradient, (g - u mean(g u)) / s, centred.
        """
        gradient, rows, weight = precise(gradient, rows, self.weight)
        scale = self.scale(rows)
        unit = (rows - rows.mean(-1, keepdim=True) if self.centres else rows) / scale
        inner = gradient * weight
        inner = (inner - unit * (inner * unit).mean(-1, keepdim=True)) / scale
        return inner - inner.mean(-1, keepdim=True) if self.centres else inner

    def folded(self, matrix: Float[Tensor, " model *column"]) -> Float[Tensor, " model *column"]:
        """The matrix that acts on rows as norm at scale 1, then `matrix`, without the bias."""
        matrix, weight = precise(matrix, self.weight)
        matrix = weight.view(-1, *[1] * (matrix.ndim - 1)) * matrix
        return matrix - matrix.mean(0) if self.centres else matrix


def norm_of(model: HookedModel, module: Any, width: int | None = None) -> Norm | None:
    """What `module` does to the last axis of its input; None where it does nothing or there is none.

    The module is asked: its answer to a few random rows tells whether it centres and which of its tensors is the
    weight (Gemma keeps the weight minus 1). The configuration's name for the norm is not read: `final_rms`, for one,
    gives a model two kinds.

    Args:
        model: Whose dtype and device the module has.
        module: A norm, or None.
        width: The length of the last axis; default `cfg.d_model`.

    Raises:
        RequestError: Where the module is neither a LayerNorm nor an RMSNorm.
    """
    if module is None or isinstance(module, torch.nn.Identity):
        return None
    inner = getattr(module, "original_component", None) or module
    if isinstance(inner, torch.nn.Identity):
        return None
    width = int(model.cfg.d_model) if width is None else width
    parameter = next(model.parameters())  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(0)
    rows = (torch.randn(1, 4, width, generator=generator, dtype=torch.float64) + 0.5).to(parameter)
    with torch.no_grad():
        answer = module(rows).to(torch.promote_types(rows.dtype, torch.float32))
    ones = torch.ones(width, device=answer.device, dtype=answer.dtype)
    weights = [ones, *_vectors(module, inner, ("w", "weight"), answer)]
    weights += [1 + weight for weight in weights[1:]]
    biases = [0 * ones, *_vectors(module, inner, ("b", "bias"), answer)]
    eps = next((float(value) for value in _epsilons(model, module, inner)), 1e-5)
    allowed = max(tolerance(model, rows.dtype), 1e-4) * (1 + float(answer.abs().max()))
    if bool((answer - rows).abs().max() <= 1e-6):
        return None
    best, norm = float("inf"), None
    for centres, weight, bias in product((True, False), weights, biases):
        candidate = Norm(centres, weight, bias, eps)
        error = float((candidate(rows) - answer).abs().max())
        if error < best:
            best, norm = error, candidate
    if norm is None or best > allowed:
        raise RequestError(f"{type(inner).__name__} is neither a LayerNorm nor an RMSNorm over the residual stream")
    return norm


def precise(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in one dtype, float32 or wider, on the device of the first."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype=dtype, device=tensors[0].device) for tensor in tensors)


def _vectors(module: Any, inner: Any, names: tuple[str, ...], like: Tensor) -> list[Tensor]:
    found = [getattr(each, name, None) for each in (module, inner) for name in names]
    return [each.detach().to(like) for each in found if isinstance(each, Tensor) and each.shape == like.shape[-1:]]


def _epsilons(model: HookedModel, module: Any, inner: Any) -> list[float]:
    found = [getattr(each, name, None) for each in (inner, module) for name in ("eps", "variance_epsilon")]
    return [float(each) for each in (*found, getattr(model.cfg, "eps", None)) if isinstance(each, (int, float))]
