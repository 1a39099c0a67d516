"""Are two models one mechanism? Their circuits in token space, blind to what is only a choice of coordinates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int, Shaped
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from headlab.interp import statistics
from headlab.interp.ablation import Head
from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, activations, untouched
from headlab.interp.movement import batches, visible_keys
from headlab.interp.weights import normalise_rows, qk_circuit, unembedding, written_rows


@dataclass(frozen=True)
class HeadMatch:
    """A head of the first model, the head of the second that it was matched with, and their circuits' cosines."""

    a: Head
    b: Head
    qk: float
    ov: float
    in_use: float


@dataclass(frozen=True)
class Comparison:
    """How alike two models are, in [-1, 1] where 1 is the same mechanism and 0 nothing in common.

    heads: matched pairs; qk, ov, in_use: their means. unmatched: heads of either model that found no partner.
    space: `logits`, or `residual` where an unembedding is not a matrix: there ov and in_use compare which rows a
    head writes alike (centred kernel alignment, in [0, 1]).
    function: `agreement` (share of reads with the same largest logit) and `kl` (mean, nats, of a from b), or `r2` of
    a regression, b being the truth. rows, queries: how many of them the circuits were taken over.
    """

    heads: tuple[HeadMatch, ...]
    qk: float
    ov: float
    in_use: float
    unmatched: tuple[tuple[Head, ...], tuple[Head, ...]]
    space: str
    function: Mapping[str, float]
    rows: int
    queries: int

    def to_frame(self) -> pd.DataFrame:
        """One row per matched pair: layer_a, head_a, layer_b, head_b, qk, ov, in_use."""
        return pd.DataFrame(
            [
                {
                    "layer_a": pair.a[0],
                    "head_a": pair.a[1],
                    "layer_b": pair.b[0],
                    "head_b": pair.b[1],
                    "qk": pair.qk,
                    "ov": pair.ov,
                    "in_use": pair.in_use,
                }
                for pair in self.heads
            ]
        )


def compare(
    a: HookedModel,
    b: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    queries: Bool[Tensor, "example position"],
    *,
    regression: bool = False,
    most_rows: int = 1024,
    seed: int = 0,
) -> Comparison:
    """Compare two models that read the same inputs, whatever their width, their number of heads and their scales.

    Circuits are taken over rows: the distinct (position, token) vectors before the first layer that occur in `inputs`
    and that some query sees; with continuous tokens `inputs` is the probe set. QK: scores from each query row, centred
    over the keys. OV: logits of each row, centred over rows and targets. In use: mean attention to a row times its OV.
    Each is blind to the basis inside a head, to scale and to what the softmax does not feel; heads are matched for the
    largest sum of the cosines in use (Hungarian), so their order does not matter. In later layers the circuits are
    those of the direct path from the embeddings. A circuit that is zero in both models is alike, in one of them not.

    queries: the positions that count, both as attention's queries and for the function. Beyond `most_rows`, rows are a
    sample drawn with `seed`. Computed in float64. Raises ValueError for models with different positions or outputs.
    """
    if not queries.any():
        raise RequestError("no query is marked: there is nothing to compare")
    runs = [_Run.of(model, inputs, queries) for model in (a, b)]
    if runs[0].logits.shape != runs[1].logits.shape:
        raise RequestError(
            f"the models have {runs[0].logits.shape[-1]} and {runs[1].logits.shape[-1]} outputs: "
            f"compare models of one task"
        )
    rows = _Rows.of(runs, queries, most_rows, seed)
    linear = all(run.linear for run in runs)
    one, other = (_circuits(run, rows, linear) for run in runs)
    alike = _cosine if linear else _kernel_alignment
    table = np.array([[alike(mine, theirs) for theirs in other.in_use] for mine in one.in_use])
    chosen = list(zip(*linear_sum_assignment(table, maximize=True), strict=True))
    heads = (runs[0].heads, runs[1].heads)
    pairs = tuple(
        HeadMatch(
            a=heads[0][i],
            b=heads[1][j],
            qk=_cosine(one.qk[i], other.qk[j]),
            ov=alike(one.ov[i], other.ov[j]),
            in_use=float(table[i, j]),
        )
        for i, j in chosen
    )
    left = tuple(
        tuple(head for head in side if head not in {getattr(pair, name) for pair in pairs})
        for side, name in zip(heads, ("a", "b"), strict=True)
    )
    return Comparison(
        heads=pairs,
        qk=float(np.mean([pair.qk for pair in pairs])),
        ov=float(np.mean([pair.ov for pair in pairs])),
        in_use=float(np.mean([pair.in_use for pair in pairs])),
        unmatched=(left[0], left[1]),
        space="logits" if linear else "residual",
        function=_regression(*runs) if regression else _function(*runs),
        rows=len(rows.keys),
        queries=len(rows.queries),
    )


def chance(
    build_untrained: Callable[[int], HookedModel],
    b: HookedModel,
    inputs: Shaped[Tensor, "example ..."],
    queries: Bool[Tensor, "example position"],
    *,
    seeds: int | Sequence[int] = 16,
    regression: bool = False,
) -> dict[str, statistics.Chance]:
    """What qk, ov and in_use read between untrained models (seed -> model) and `b`: the level to hold a figure to."""
    found = [
        compare(build_untrained(seed), b, inputs, queries, regression=regression)
        for seed in (range(seeds) if isinstance(seeds, int) else seeds)
    ]
    return {name: statistics.chance([getattr(each, name) for each in found]) for name in ("qk", "ov", "in_use")}


ROUNDING = 1e-6  # what centring leaves of a circuit that is constant, relative to the circuit itself


@dataclass(frozen=True, eq=False)
class _Circuits:
    """One tensor per head: qk [query, key], ov and in_use [key, target] (or [key, model])."""

    qk: list[Tensor]
    ov: list[Tensor]
    in_use: list[Tensor]


@dataclass(frozen=True, eq=False)
class _Run:
    """One model on the inputs, on the CPU.

    seen: how many of the example's queries see a position. paid: the attention that they pay it, over all of them.
    """

    model: HookedModel
    heads: tuple[Head, ...]
    residual: Float[Tensor, "example position model"]
    seen: Int[Tensor, "example position"]
    paid: Float[Tensor, "example head position"]
    logits: Float[Tensor, "read output"]
    linear: bool

    @classmethod
    def of(cls, model: HookedModel, inputs: Tensor, queries: Tensor) -> _Run:
        layers = range(model.cfg.n_layers)
        patterns = [f"blocks.{layer}.attn.hook_pattern" for layer in layers]
        first, last = "blocks.0.hook_resid_pre", f"blocks.{layers[-1]}.hook_resid_post"
        scores = "blocks.0.attn.hook_attn_scores"
        device = next(model.parameters()).device  # type: ignore[attr-defined]
        parts: list[tuple[Tensor, ...]] = []
        heads: tuple[Head, ...] = ()
        with untouched(model):
            for part in batches(model, len(inputs), queries.shape[1]):
                logits, held = activations(model, inputs[part].to(device), [first, last, scores, *patterns])
                asked = queries[part].to(device)
                _require_positions(asked, held[first])
                heads = tuple((layer, head) for layer in layers for head in range(held[patterns[layer]].shape[1]))
                weights = torch.cat([held[name] for name in patterns], dim=1).double() * asked[:, None, :, None]
                visible = visible_keys(held[scores]).any(1) & asked.unsqueeze(-1)
                kept = (held[first], visible.sum(1), weights.sum(2), held[last][asked].double(), logits[asked].double())
                parts.append(tuple(each.detach().cpu() for each in kept))
        residual, seen, paid, read, logits = (torch.cat(column) for column in zip(*parts, strict=True))
        return cls(model, heads, residual, seen, paid, logits, _is_linear(model, read, logits))


def _require_positions(asked: Tensor, residual: Tensor) -> None:
    if asked.shape != residual.shape[:2]:
        raise RequestError(
            f"queries of shape {tuple(asked.shape)} do not count the model's (example, position) "
            f"{tuple(residual.shape[:2])}"
        )


def _is_linear(model: HookedModel, residual: Float[Tensor, "read model"], logits: Float[Tensor, "read output"]) -> bool:
    """Whether the logits are the final norm, then W_U and b_U, and nothing else."""
    try:
        unembedding(model)
    except ValueError:
        return False
    unembed = model.unembed  # type: ignore[attr-defined]
    W_U, b_U = unembed.W_U.detach().cpu().double(), getattr(unembed, "b_U", None)
    if tuple(W_U.shape) != (residual.shape[-1], logits.shape[-1]):
        return False
    made = normalise_rows(model, getattr(model, "ln_final", None), residual) @ W_U
    made = made if b_U is None else made + b_U.detach().cpu().double()
    return float((made - logits).norm()) <= 0.02 * float(logits.norm()) + 1e-12


@dataclass(frozen=True, eq=False)
class _Rows:
    """The distinct rows. `identity`: which row stands at an example's position; `first`: where each row first occurs.

    queries, keys: the rows that ask, and those that some query sees in both models.
    """

    identity: Int[Tensor, "example position"]
    first: Int[Tensor, " row"]
    queries: Int[Tensor, " query"]
    keys: Int[Tensor, " key"]

    @classmethod
    def of(cls, runs: Sequence[_Run], queries: Tensor, most: int, seed: int) -> _Rows:
        both = torch.cat([run.residual for run in runs], dim=-1).float() + 0.0  # turns -0 into 0: equal bytes below
        flat = np.ascontiguousarray(both.flatten(0, 1).numpy())
        as_bytes = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1])))[:, 0]
        _, first, identity = np.unique(as_bytes, return_index=True, return_inverse=True)
        identity = torch.from_numpy(identity.reshape(both.shape[:2]))
        rng = np.random.default_rng(seed)

        def some(rows: Tensor) -> Tensor:
            rows = rows.unique()
            return rows if len(rows) <= most else rows[np.sort(rng.choice(len(rows), most, replace=False))]

        seen = identity[(runs[0].seen > 0) & (runs[1].seen > 0)]
        if not len(seen):
            raise RequestError("no query sees any key in both models: there is nothing to compare")
        return cls(identity, torch.from_numpy(first), some(identity[queries.cpu()]), some(seen))

    def residual(self, run: _Run, rows: Int[Tensor, " chosen"]) -> Float[Tensor, "chosen model"]:
        return run.residual.flatten(0, 1)[self.first[rows]].double()

    def attention(self, run: _Run) -> Float[Tensor, "head key"]:
        """Mean attention to each key row over the times that a query sees it."""
        where = self.identity.flatten()
        count = torch.zeros(len(self.first), dtype=torch.float64).index_add_(0, where, run.seen.flatten().double())
        paid = rearrange(run.paid, "example head key -> (example key) head")
        total = torch.zeros(len(count), paid.shape[1], dtype=torch.float64).index_add_(0, where, paid)
        return (total[self.keys] / count[self.keys, None]).T


def _circuits(run: _Run, rows: _Rows, linear: bool) -> _Circuits:
    keys, queries = rows.residual(run, rows.keys), rows.residual(run, rows.queries)
    made = _Circuits([], [], [])
    attention = iter(rows.attention(run))
    for layer in range(run.model.cfg.n_layers):
        for scores in qk_circuit(run.model, layer, queries, keys):
            made.qk.append(_unless_rounding(scores - scores.mean(1, keepdim=True), scores))
        written = written_rows(run.model, layer, keys)
        if linear:
            written = written @ unembedding(run.model).to(written)
        for output in written:
            centred = output - output.mean(0)
            centred = centred - centred.mean(1, keepdim=True) if linear else centred
            centred = _unless_rounding(centred, output)
            made.ov.append(centred)
            made.in_use.append(next(attention).unsqueeze(1) * centred)
    return made


def _unless_rounding(centred: Tensor, raw: Tensor) -> Tensor:
    return centred if float(centred.norm()) > ROUNDING * float(raw.norm()) else torch.zeros_like(centred)


def _cosine(one: Tensor, other: Tensor) -> float:
    sizes = float(one.norm()), float(other.norm())
    if 0.0 in sizes:
        return float(sizes[0] == sizes[1])
    return float((one * other).sum()) / (sizes[0] * sizes[1])


def _kernel_alignment(one: Float[Tensor, "row model"], other: Float[Tensor, "row model2"]) -> float:
    """Linear centred kernel alignment (Kornblith et al. 2019): blind to rotations and scale of either space."""
    sizes = float((one.T @ one).norm()), float((other.T @ other).norm())
    if 0.0 in sizes:
        return float(sizes[0] == sizes[1])
    return float((one.T @ other).square().sum()) / (sizes[0] * sizes[1])


def _function(a: _Run, b: _Run) -> dict[str, float]:
    log_a, log_b = a.logits.log_softmax(-1), b.logits.log_softmax(-1)
    agreement = (a.logits.argmax(-1) == b.logits.argmax(-1)).double().mean()
    kl = (log_a.exp() * (log_a - log_b)).sum(-1).mean()
    return {"agreement": float(agreement), "kl": max(0.0, float(kl))}


def _regression(a: _Run, b: _Run) -> dict[str, float]:
    missed = float((a.logits - b.logits).square().sum())
    spread = float((b.logits - b.logits.mean(0)).square().sum())
    if spread == 0:
        return {"r2": float(missed == 0)}
    return {"r2": 1 - missed / spread}
