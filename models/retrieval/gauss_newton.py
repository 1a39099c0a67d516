"""Damped Gauss-Newton (Levenberg-Marquardt) for retrieval: what Adam leaves as error, second order takes away.

Adam first, on short sequences; then all weights at once on the full batch, in stages of growing length. With the
Jacobian J of the answers [example, weight] and the residuals r, a step solves (J'J / N + lam diag) d = J'r / N by
Cholesky (Marquardt 1963, whose damping scales with the curvature of each weight). The best validation error is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from headlab.interp.errors import RequestError
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.recipe import Recipe
from headlab.models.retrieval.family import Family
from headlab.models.retrieval.learner import RetrievalData, draw_data
from headlab.models.retrieval.recipes import TrainedModels, train

Weights = Mapping[str, Float[Tensor, "..."]]
CHUNK = 250  # sequences whose Jacobian is held at once
TRIES = 14  # dampings tried before a stage ends
FLOOR = 1e-6  # of the largest curvature: damping of weights that move nothing
SHORT = 8, 16  # tokens that Adam trains on, with one layer and with more


@dataclass(frozen=True)
class Stage:
    """`iterations` steps on the first `examples` training sequences, of which `length` tokens are seen."""

    length: int
    examples: int
    iterations: int


def usual_stages(length: int, examples: int, *, layers: int = 1) -> tuple[Stage, ...]:
    """Short sequences, then all tokens of under a third of the sequences, then everything."""
    short = min(SHORT[layers > 1], length)
    first = (Stage(short, examples, 12), Stage(length, min(examples, 2500), 14))
    return (*(first if short < length else first[:1]), Stage(length, examples, 24))


@dataclass(frozen=True)
class Iteration:
    """After one step: the stage it belongs to, NMSE on the stage's training and validation sequences, the damping."""

    stage: int
    train: float
    validation: float
    damping: float


@dataclass(frozen=True, eq=False)
class GaussNewton(TrainedModels):
    """A training that ends with damped Gauss-Newton; runs are those of Adam, on short sequences.

    adam_nmse: of each seed after Adam, on short validation sequences. iterations: what each seed's steps reached.
    """

    stages: tuple[Stage, ...] = ()
    adam_nmse: tuple[float, ...] = ()
    iterations: tuple[tuple[Iteration, ...], ...] = ()


def train_second_order(
    family: Family,
    architecture: Architecture,
    plan: Recipe,
    seeds: Sequence[int],
    *,
    data: RetrievalData | None = None,
    stages: Sequence[Stage] | None = None,
    patience: int = 6,
    device: str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> GaussNewton:
    """Adam by `plan` on short sequences, then damped Gauss-Newton; one model a seed.

    Args:
        family: the target; every S_i is the whole sequence.
        architecture: as headlab.models.retrieval.architecture makes it.
        plan: of the Adam training.
        seeds: of the start and of Adam's batches.
        data: 8000 sequences and 2000 to validate on, drawn with seed 0, unless given.
        stages: `usual_stages` by default.
        patience: steps at full length without a better validation error after which training stops.
        progress: called with the seeds that are done, and all of them.

    Returns:
        The models in the target's own units, each at its smallest validation error (`nmse`).

    Raises:
        RequestError: for position sets, no seeds, a stage longer than the family's sequences or with too few examples.
    """
    if not family.is_whole:
        raise RequestError("Gauss-Newton trains targets over whole sequences only: use Adam for position sets")
    data = draw_data(family) if data is None else data
    layers = architecture.config["n_layers"]
    stages = usual_stages(family.length, len(data.train), layers=layers) if stages is None else tuple(stages)
    for stage in stages:
        if not (1 <= stage.length <= family.length and 2 <= stage.examples <= len(data.train)):
            raise RequestError(
                f"a stage of {stage.examples} sequences of {stage.length} tokens: there are {len(data.train)} of "
                f"{family.length}"
            )
    if not stages or stages[-1].length != family.length:
        raise RequestError(f"the last stage must see all {family.length} tokens, on which models are compared")
    short = min(SHORT[layers > 1], family.length)
    first = train(
        replace(family, length=short, sets=None),
        _of_length(architecture, short),
        plan,
        seeds,
        data=_first_tokens(family, data, short),
        device=device,
    )
    models, errors, paths = [], [], []
    for index, model in enumerate(first.models):
        weights, answer = fold(model)
        best, path = _descend(family, weights, answer, data, stages, patience)
        models.append(unfold(best, architecture, device=device))
        errors.append(_nmse(answer, best, data.validation, data.validation_targets))
        paths.append(path)
        if progress:
            progress(index + 1, len(seeds))
    return GaussNewton(
        architecture=architecture,
        data=data,
        recipe=plan,
        seeds=tuple(seeds),
        models=tuple(models),
        nmse=tuple(errors),
        runs=first.runs,
        stages=stages,
        adam_nmse=first.nmse,
        iterations=tuple(paths),
    )


def _of_length(architecture: Architecture, length: int) -> Architecture:
    return replace(architecture, config={**architecture.config, "n_ctx": length + 1})


def _first_tokens(family: Family, data: RetrievalData, length: int) -> RetrievalData:
    shorter = replace(family, length=length, sets=None)
    tokens, held = data.train[:, :length].contiguous(), data.validation[:, :length].contiguous()
    return RetrievalData(tokens, shorter.target(tokens), held, shorter.target(held))


def _descend(
    family: Family, weights: Weights, answer: Answer, data: RetrievalData, stages: Sequence[Stage], patience: int
) -> tuple[Weights, tuple[Iteration, ...]]:
    """The weights with the smallest validation error at full length, and the path there."""
    path: list[Iteration] = []
    best, least = weights, _nmse(answer, weights, data.validation, data.validation_targets)
    for number, stage in enumerate(stages):
        part = _first_tokens(family, data, stage.length)
        tokens, targets = part.train[: stage.examples], part.targets[: stage.examples]
        damping, waited = 1e-3, 0
        error = _squared(answer, weights, tokens, targets)
        for _ in range(stage.iterations):
            taken = _step(answer, weights, tokens, targets, error, damping)
            if taken is None:
                break
            weights, error, damping = taken
            validation = _nmse(answer, weights, part.validation, part.validation_targets)
            path.append(Iteration(number, error / float(targets.double().var(correction=0)), validation, damping))
            if stage.length == family.length:
                waited = 0 if validation < least else waited + 1
                best, least = (weights, validation) if validation < least else (best, least)
                if waited >= patience:
                    break
    return best, tuple(path)


def _step(
    answer: Answer, weights: Weights, tokens: Tensor, targets: Tensor, error: float, damping: float
) -> tuple[Weights, float, float] | None:
    """One step that lowers the error, and the damping to go on with; None where no damping brings one."""
    size = sum(value.numel() for value in weights.values())
    device = tokens.device
    curvature = torch.zeros(size, size, dtype=torch.float64, device=device)
    slope = torch.zeros(size, dtype=torch.float64, device=device)
    for part, wanted in zip(tokens.split(CHUNK), targets.split(CHUNK), strict=True):
        rows = jacobian(answer, weights, part)
        curvature += rows.T @ rows
        slope += rows.T @ (_answers(answer, weights, part) - wanted)
    curvature, slope = curvature / len(tokens), slope / len(tokens)
    diagonal = curvature.diagonal().clone()
    for tried in range(TRIES):
        damped = curvature.clone()
        damped.diagonal().add_(damping * (diagonal + FLOOR * diagonal.max()))
        factor, failed = torch.linalg.cholesky_ex(damped)
        if not int(failed):
            moved = _moved(weights, torch.cholesky_solve(slope[:, None], factor)[:, 0])
            reached = _squared(answer, moved, tokens, targets)
            if math.isfinite(reached) and reached < error:
                return moved, reached, max(damping / (5 if not tried else 1.5), 1e-12)
        damping *= 5
    return None


def _moved(weights: Weights, step: Float[Tensor, " weight"]) -> Weights:
    parts = step.split([value.numel() for value in weights.values()])
    return {
        name: value - part.view_as(value).to(value) for (name, value), part in zip(weights.items(), parts, strict=True)
    }


def jacobian(answer: Answer, weights: Weights, tokens: Float[Tensor, "example position feature"]) -> Tensor:
    """d answer / d weight, [example, weight], weights flattened in their order."""
    rows = vmap(grad(answer), (None, 0))(dict(weights), tokens)
    return torch.cat([rows[name].flatten(1) for name in weights], dim=1)


def _answers(answer: Answer, weights: Weights, tokens: Tensor) -> Float[Tensor, " example"]:
    with torch.no_grad():
        each = vmap(partial(answer, dict(weights)))
        return torch.cat([each(part) for part in tokens.split(CHUNK)])


def _squared(answer: Answer, weights: Weights, tokens: Tensor, targets: Tensor) -> float:
    return float((_answers(answer, weights, tokens) - targets).double().square().mean())


def _nmse(answer: Answer, weights: Weights, tokens: Tensor, targets: Tensor) -> float:
    return _squared(answer, weights, tokens, targets) / float(targets.double().var(correction=0))


# ---- the models as functions of as few weights as they need ---------------------------------------------------------

Answer = Callable[[Weights, Float[Tensor, "position feature"]], Float[Tensor, ""]]


def fold(model: HookedTransformer) -> tuple[Weights, Answer]:
    """The weights to train, and the model's answer to one sequence as a function of them.

    One layer has many names for one function: only the CLS is read, its query is one constant vector, and what heads
    read and write can be written in the basis of their values. With V = [W_V of each head] the folded weights are
    W_E V (h * n columns, head i's values in block i), the query-key vectors V^-1 W_K W_Q' c0 / sqrt(n), and W_O W_0:
    a third of the weights. Deeper models keep theirs.
    """
    own = {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}
    layers, heads, width = model.cfg.n_layers, model.cfg.n_heads, model.cfg.d_head
    scale = width**-0.5
    if layers > 1:
        return own, partial(answer_deep, layers=layers, scale=scale)
    attention = {name: own[f"blocks.0.attn.{name}"].double() for name in ("W_Q", "W_K", "W_V", "W_O")}
    wide = {name: own[name].double() for name in ("embed.W_E", "embed.b_E", "embed.c0", "unembed.W_0", "unembed.b_0")}
    values = attention["W_V"].transpose(0, 1).flatten(1)  # [model, head * width]
    query = torch.einsum("m,hmd->hd", wide["embed.c0"], attention["W_Q"]) * scale
    asked = torch.einsum("hd,hmd->hm", query, attention["W_K"])
    write = attention["W_O"].flatten(0, 1) @ wide["unembed.W_0"]
    folded = {
        "values": wide["embed.W_E"] @ values,
        "queries": torch.linalg.lstsq(values, asked.T).solution.T,
        "write": write,
        "bias": wide["embed.c0"] @ wide["unembed.W_0"] + wide["embed.b_E"] @ values @ write + wide["unembed.b_0"],
    }
    kept = ("embed.W_in", "embed.b_in", "unembed.W_1", "unembed.b_1")
    weights = {name: own[name] for name in kept if name in own}
    weights |= {name: value.to(own["embed.W_E"]) for name, value in folded.items()}
    return weights, partial(answer_folded, heads=heads)


def unfold(weights: Weights, architecture: Architecture, *, device: str = "cpu") -> HookedTransformer:
    """The HookedTransformer that computes the same: for one layer with W_V and W_O the identity, block by block."""
    dtype = next(iter(weights.values())).dtype
    model = build(architecture, device=device, dtype=dtype)
    own = dict(weights)
    if "queries" in own:
        heads, width = architecture.config["n_heads"], architecture.config["d_head"]
        wide, full = own["values"].shape[1], heads * width
        blocks = torch.eye(full, wide, dtype=dtype, device=device).view(heads, width, wide)
        query = torch.ones(wide, dtype=dtype, device=device)
        asks = torch.zeros(heads, wide, width, dtype=dtype, device=device)
        asks[..., 0] = width**0.5 / wide  # c0 = 1 then asks with sqrt(n) along the first axis of every head
        keys = torch.zeros_like(asks)
        keys[..., 0] = own.pop("queries")
        write = own.pop("write")
        own |= {
            "embed.W_E": own.pop("values"),
            "embed.c0": query,
            "blocks.0.attn.W_Q": asks,
            "blocks.0.attn.W_K": keys,
            "blocks.0.attn.W_V": blocks.transpose(1, 2),
            "blocks.0.attn.W_O": blocks,
            "unembed.W_0": write,
            "unembed.b_0": own.pop("bias") - query @ write,
        }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in own:
                parameter.copy_(own[name])
    return model


def _features(weights: Weights, tokens: Float[Tensor, "position feature"]) -> Float[Tensor, "position inner"]:
    return (tokens @ weights["embed.W_in"] + weights["embed.b_in"]).relu() if "embed.W_in" in weights else tokens


def _read(weights: Weights, hidden: Float[Tensor, " hidden"]) -> Float[Tensor, ""]:
    return (functional.gelu(hidden) @ weights["unembed.W_1"] + weights["unembed.b_1"])[0]


def answer_folded(weights: Weights, tokens: Float[Tensor, "position feature"], *, heads: int) -> Float[Tensor, ""]:
    """The one-layer model on one sequence; attention sums to 1, so features are averaged before they are mapped."""
    features = _features(weights, tokens)
    pattern = (features @ (weights["values"] @ weights["queries"].T)).softmax(0)
    pooled = pattern.T @ features
    values = torch.einsum("hi,ihn->hn", pooled, weights["values"].view(features.shape[1], heads, -1)).flatten()
    return _read(weights, values @ weights["write"] + weights["bias"])


def answer_deep(
    weights: Weights, tokens: Float[Tensor, "position feature"], *, layers: int, scale: float
) -> Float[Tensor, ""]:
    """A model of several layers on one sequence: tokens attend causally, the CLS to all of them but not to itself."""
    residual = _features(weights, tokens) @ weights["embed.W_E"] + weights["embed.b_E"]
    cls, size = weights["embed.c0"], tokens.shape[0]
    future = torch.full((size, size), -torch.inf, dtype=tokens.dtype, device=tokens.device).triu(1)
    for layer in range(layers):
        query, key, value, out = (weights[f"blocks.{layer}.attn.W_{name}"] for name in "QKVO")
        k, v = (torch.einsum("tm,hmd->htd", residual, weight) for weight in (key, value))
        asked = torch.einsum("m,hmd->hd", cls, query)
        pattern = (torch.einsum("hd,htd->ht", asked, k) * scale).softmax(-1)
        cls = cls + torch.einsum("ht,htd,hdm->m", pattern, v, out)
        if layer < layers - 1:
            q = torch.einsum("tm,hmd->htd", residual, query)
            pattern = (q @ k.transpose(1, 2) * scale + future).softmax(-1)
            residual = residual + torch.einsum("htd,hdm->tm", pattern @ v, out)
    return _read(weights, cls @ weights["unembed.W_0"] + weights["unembed.b_0"])
