"""A metric's contract: logits [example, position, vocabulary] -> one finite number per example."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError

Metric = Callable[[Tensor], Tensor]


def metric_name(metric: Metric) -> str:
    """What a metric is called in results: its function's name."""
    return getattr(metric, "__name__", type(metric).__name__)


def performance(
    metric: Metric, logits: Float[Tensor, "example position vocabulary"], name: str
) -> Float[Tensor, " example"]:
    """The metric of `logits`, checked. Raises ValueError, in one sentence, for a metric that breaks the contract."""
    version = logits._version
    value = metric(logits)
    if logits._version != version:
        raise RequestError(f"metric '{name}' edits the logits in place: let it work on a copy")
    value = _checked(value, logits.shape[0], name)
    if not torch.isfinite(value).all():
        row = int((~torch.isfinite(value)).nonzero()[0])
        raise RequestError(
            f"metric '{name}' returned {value[row].item()} for example {row}: fix the metric, or leave the example out"
        )
    return value


def _checked(value: object, examples: int, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise RequestError(
            f"metric '{name}' returned a {type(value).__name__}: return a tensor with one number per example, "
            f"shape [{examples}], without .item()"
        )
    if value.shape != (examples,):
        raise RequestError(
            f"metric '{name}' returned shape {list(value.shape)}: return one number per example, shape [{examples}]"
        )
    value = value.detach()
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


class BatchedMetric:
    """A metric over many runs at once: vmapped over cells where it can be, one cell after the other where it cannot.

    `looped` says, after the first call, why it could not be; None where it could.
    """

    def __init__(self, metric: Metric, name: str) -> None:
        self.metric = metric
        self.name = name
        self.looped: str | None = None
        self._batched = torch.func.vmap(metric)
        self._agrees = False

    def __call__(self, logits: Float[Tensor, "cell example position vocabulary"]) -> Float[Tensor, "cell example"]:
        """One number per cell and example. Raises ValueError where the contract is broken, NaN included."""
        cells, examples = logits.shape[:2]
        if self.looped is None:
            version = logits._version
            try:
                value = self._batched(logits)
                good = isinstance(value, Tensor) and value.shape == (cells, examples)
                if good and not self._agrees:
                    first = performance(self.metric, logits[0], self.name)
                    good = torch.allclose(first, value[0].to(first.dtype), rtol=1e-4, atol=1e-6)
                    self._agrees = good
                if good and logits._version == version:
                    value = value.detach()
                    if not value.is_floating_point():
                        value = value.to(torch.get_default_dtype())
                    if torch.isfinite(value).all():
                        return value
            except Exception as reason:
                self.looped = f"{type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else ''}"
            else:
                self.looped = "its vmapped value differs from its own"
        return torch.stack([performance(self.metric, logits[cell], self.name) for cell in range(cells)])
