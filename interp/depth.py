"""Attribution by depth: what the model would answer after each layer, and what each layer adds to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headlab.interp.attribution import Directions, _direction_weights, direct_logit_attribution
from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.model import HookedModel, activations, run, untouched

if TYPE_CHECKING:
    import pandas as pd

    from headlab.interp.render.figure import Figure


@dataclass(frozen=True, eq=False)
class LogitLens:
    """A direction of the logits, read off the residual stream at every depth through the model's own unembedding.

    Attributes:
        values: the direction's value, in logits, with the final norm applied to the residual stream at that depth
            (nostalgebraist 2020). The last depth is the model's own answer.
        best: the token with the largest logit.
        probability: that token's probability.
        depths: the name of each depth: "embed", then "L0 attn", "L0 mlp", ...
        positions: the model positions that were read.
    """

    values: Float[Tensor, "example depth position"]
    best: Int[Tensor, "example depth position"]
    probability: Float[Tensor, "example depth position"]
    depths: tuple[str, ...]
    positions: tuple[int, ...]

    def __repr__(self) -> str:
        examples = len(self.values)
        return f"LogitLens({examples} examples, {len(self.depths)} depths, positions {list(self.positions)})"

    def to_frame(self) -> pd.DataFrame:
        """One row per example, depth and position: example, depth, position, value, best, probability."""
        import pandas as pd

        index = pd.MultiIndex.from_product(
            [range(len(self.values)), self.depths, self.positions], names=["example", "depth", "position"]
        )
        columns = {"value": self.values, "best": self.best, "probability": self.probability}
        return pd.DataFrame({name: each.flatten().numpy() for name, each in columns.items()}, index=index).reset_index()

    def render(self, position_names: Sequence[str] = ()) -> Figure:
        """The mean over examples as a grid, depth from the top and positions from the left, in logits.

        Args:
            position_names: what the model's positions are called.
        """
        from headlab.interp.render import effect_grid

        columns = [position_names[p] if p < len(position_names) else str(p) for p in self.positions]
        mean = self.values.mean(0).double().numpy()
        return effect_grid(
            mean,
            rows=list(self.depths),
            columns=columns,
            row_axis="depth",
            column_axis="position",
            unit="logits",
            title="Logit lens: the direction's value at every depth",
            description=f"Mean over {len(self.values)} examples; {mean[-1, -1]:.3g} at the last depth and position.",
            caption=f"Final norm and unembedding at every depth, mean over {len(self.values)} examples; logits.",
        )


@dataclass(frozen=True, eq=False)
class LayerAttribution:
    """What each layer adds to a direction of the logits, the final norm's scale frozen: heads, bias and MLP as sums.

    Attributes:
        heads: by layer and head, over all source positions.
        biases: a layer's attention output bias.
        mlps: a layer's MLP output, summed over its neurons.
        start: what the embeddings add.
        constant: what the unembedding adds whatever the residual stream holds.
    """

    heads: Float[Tensor, "example layer head"]
    biases: Float[Tensor, "example layer"]
    mlps: Float[Tensor, "example layer"]
    start: Float[Tensor, " example"]
    constant: Float[Tensor, " example"]

    @property
    def accumulated(self) -> Float[Tensor, "example depth"]:
        """The direction along the residual stream at every depth: embeddings first, then after each attention and MLP.

        With the constant added, the last depth is the model's own value.
        """
        steps = torch.stack([self.heads.sum(2) + self.biases, self.mlps], 2).flatten(1)
        return torch.cat([self.start[:, None], self.start[:, None] + steps.cumsum(1)], 1) + self.constant[:, None]

    def to_frame(self) -> pd.DataFrame:
        """One row per layer and part ("head 0", ..., "attention bias", "mlp"): the mean attribution, in logits."""
        import pandas as pd

        parts = [f"head {head}" for head in range(self.heads.shape[2])] + ["attention bias", "mlp"]
        table = torch.cat([self.heads.mean(0), self.biases.mean(0)[:, None], self.mlps.mean(0)[:, None]], 1)
        index = pd.MultiIndex.from_product([range(len(table)), parts], names=["layer", "part"])
        return pd.DataFrame({"attribution": table.flatten().double().numpy()}, index=index).reset_index()

    def render(self) -> Figure:
        """The mean over examples as a grid, layers from the top, heads and MLP from the left, in logits."""
        from headlab.interp.render import effect_grid

        frame = self.to_frame()
        table = frame.pivot(index="layer", columns="part", values="attribution")[list(dict.fromkeys(frame["part"]))]
        return effect_grid(
            table.to_numpy(),
            rows=[f"layer {layer}" for layer in table.index],
            columns=list(table.columns),
            row_axis="layer",
            column_axis="part",
            unit="logits",
            title="What each layer adds to the direction",
            description=f"Largest: {table.abs().to_numpy().max():.3g} logits.",
            caption=f"Direct attribution, the final norm's scale frozen, mean over {len(self.heads)} examples; logits.",
        )


def logit_lens(
    model: HookedModel, inputs: Any, directions: Directions, *, positions: Sequence[int] | None = None
) -> LogitLens:
    """Read a direction of the logits at every depth of the residual stream.

    It tells when an answer is there, in the basis that the unembedding reads. It can mislead: an early layer may hold
    the answer in another basis, and the final norm of a shallow residual stream scales what it holds.

    Args:
        model: any hooked model whose residual stream has hooks.
        inputs: what the model takes.
        directions: one token per example (its logit), two (first minus second), or weights over the vocabulary.
        positions: the positions to read; None is all.

    Raises:
        OutOfRange: a position that does not exist.
        RequestError: the model's logits are not its unembedding of the last residual stream.

    Example:
        >>> lens = logit_lens(model, tokens, (answers, wrong))  # doctest: +SKIP
        >>> lens.values[0, :, -1]  # doctest: +SKIP
    """
    names, depths = _residual_points(model)
    with untouched(model):
        logits, streams = activations(model, inputs, names)
        count = logits.shape[1]
        chosen = tuple(range(count)) if positions is None else tuple(int(p) for p in positions)
        if any(not -count <= p < count for p in chosen):
            raise OutOfRange(f"positions {list(chosen)}: the model has positions 0 to {count - 1}")
        chosen = tuple(p % count for p in chosen)
        weights = _direction_weights(directions, logits)
        unembed = _unembedding(model, inputs, names[-1], streams[names[-1]], logits)
        values, best, probability = [], [], []
        for name in names:
            at = unembed(streams[name])[:, list(chosen)]
            at = at.to(torch.promote_types(at.dtype, torch.float32))
            values.append(torch.einsum("epv,ev->ep", at, weights.to(at)))
            most = at.log_softmax(-1).max(-1)
            best.append(most.indices)
            probability.append(most.values.exp())
    stacked = [torch.stack(each, 1).cpu() for each in (values, best, probability)]
    return LogitLens(stacked[0], stacked[1], stacked[2], depths, chosen)


def layer_attribution(
    model: HookedModel, inputs: Any, directions: Directions, *, position: int | Int[Tensor, " example"] = -1
) -> LayerAttribution:
    """What each layer's heads, bias and MLP add to a direction of the logits at one position.

    Args:
        model: any hooked model that `direct_logit_attribution` takes.
        inputs: what the model takes.
        directions: as for `logit_lens`.
        position: the position to read; one, or one per example.

    Raises:
        RequestError: where `direct_logit_attribution` refuses the model, with its reason.
    """
    terms = direct_logit_attribution(model, inputs, directions, position=position)
    return LayerAttribution(
        heads=terms.by_head.cpu(),
        biases=terms.biases.cpu(),
        mlps=terms.mlps.cpu(),
        start=(terms.embed + terms.positional).cpu(),
        constant=terms.constant.cpu(),
    )


def _residual_points(model: HookedModel) -> tuple[list[str], tuple[str, ...]]:
    """The hooks of the residual stream in order of depth, and the depths' names."""
    known, names, depths = set(model.hook_dict), ["blocks.0.hook_resid_pre"], ["embed"]
    for layer in range(model.cfg.n_layers):
        middle = f"blocks.{layer}.hook_resid_mid"
        if middle in known:
            names.append(middle)
            depths.append(f"L{layer} attn")
        names.append(f"blocks.{layer}.hook_resid_post")
        depths.append(f"L{layer} mlp" if middle in known else f"L{layer}")
    return names, tuple(depths)


def _unembedding(model: Any, inputs: Any, final: str, residual: Tensor, logits: Tensor) -> Any:
    """The map from the residual stream to logits: the model's own modules, or the model run with its last residual
    stream replaced where those modules alone do not give the logits (capped logits, replaced parts)."""

    def by_modules(stream: Tensor) -> Tensor:
        norm = getattr(model, "ln_final", None)
        return model.unembed(stream if norm is None else norm(stream))

    def by_running(stream: Tensor) -> Tensor:
        return run(model, inputs, {final: lambda activation, hook: stream})

    tolerance = 1e-4 * (1.0 + float(logits.abs().max()))
    for unembed in (by_modules, by_running):
        try:
            again = unembed(residual)
        except (AttributeError, TypeError):
            continue
        if again.shape == logits.shape and float((again - logits).abs().max()) <= tolerance:
            return unembed
    raise RequestError("the model's logits are not a function of its last residual stream: a logit lens has no meaning")
