"""How endpoint selection models are trained: architecture and recipe by number of heads and method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.esp.task import EspTask
from headlab.models.hooked import Architecture
from headlab.models.recipe import Recipe

METHODS = ("cross-entropy", "gce", "solver-guided", "feed-forward", "layer-norm")
WIDTHS = ((12, 32, 1e-2), (60, 64, 5e-3), (10**9, 128, 2e-3))  # up to n vertices: d_model, learning rate
MOSTLY_MUTUAL = 0.5  # share of arcs whose opposite is an arc too
NEURONS = 8


@dataclass(frozen=True)
class EspPlan:
    """An architecture, the recipe that trains it, and whether the arcs of a feedback arc set lose their second sample.

    With `guided` the samples that ask for the second endpoint of a given-up arc are left out of the loss: no one-head
    model can have all of them right, and which to give up is what the solver knows.
    """

    architecture: Architecture
    recipe: Recipe
    guided: bool = False


def automatic(heads: int, cyclic: bool) -> str:
    """The method that fits: cross-entropy where no error is possible, else the bounded loss."""
    return "gce" if heads == 1 and cyclic else "cross-entropy"


def plan(task: EspTask, *, heads: int, method: str, steps: int | None = None) -> EspPlan:
    """Architecture and recipe for `heads` heads by `method`.

    Full batch, Adam (.9, .99), gradient norm clipped at 1, 20 steps of warm-up; LNPre, tied, b_U frozen at 0, which
    keeps one head inside the theorem's class. cross-entropy: the usual loss. gce: generalised cross-entropy
    (1 - p^q)/q (Zhang and Sabuncu 2018), which stops pulling at samples that cannot be had; q = .7 on graphs most of
    whose arcs are mutual, .4 on others. solver-guided: cross-entropy without the samples that a minimum feedback arc
    set gives up. feed-forward: one ReLU layer of 8 neurons behind the heads. layer-norm: an untied model with all of
    LayerNorm's and the unembedding's own biases, which is outside the class. Initial weights are N(0, (s / sqrt d)^2)
    with s = .1 for one head by cross-entropy, where a larger start leaves 1 seed in 60 stuck on a small tournament;
    .4 for two heads, which must part, and for gce; .2 solver-guided; .8 with neurons or LayerNorm.

    Raises KeyError for an unknown method, ValueError for fewer than one head or step, or a method that is for one
    head.
    """
    if method not in METHODS:
        raise UnknownName(f"no training method '{method}': there are {', '.join(METHODS)}")
    if heads < 1:
        raise RequestError(f"a model needs at least one head, not {heads}")
    if steps is not None and steps < 1:
        raise RequestError(f"training needs at least one step, not {steps}")
    if heads > 1 and method in ("solver-guided", "layer-norm"):
        raise RequestError(f"'{method}' is for one head: {heads} heads solve every graph by cross-entropy")
    width, rate = next((d, lr) for most, d, lr in WIDTHS if task.n <= most)
    config: dict[str, Any] = {
        "n_layers": 1,
        "n_heads": heads,
        "d_model": width,
        "d_head": max(1, width // heads),
        "n_ctx": len(task.positions),
        "d_vocab": task.n + 3,
        "attn_only": True,
        "normalization_type": "LNPre",
    }
    tied = Architecture(config, {"unembed": {"part": "TiedUnembed"}}, ("unembed.b_U",))
    usual = Recipe(lr=rate, init_scale=0.4 / width**0.5, check=1)
    annealed = replace(usual, steps=1000, schedule="cosine", check=5)
    if method == "layer-norm":
        free = Architecture({**config, "normalization_type": "LN"})
        made = EspPlan(free, replace(usual, lr=3e-3, steps=2000, init_scale=0.8 / width**0.5, check=10))
    elif method == "feed-forward":
        mixed = {
            **config,
            "attn_only": False,
            "d_mlp": NEURONS,
            "act_fn": "relu",
            "d_head": max(1, width // 2 // heads),
        }
        made = EspPlan(
            replace(tied, config=mixed), replace(usual, lr=3e-3, steps=1000, init_scale=0.8 / width**0.5, check=5)
        )
    elif method == "gce":
        constraints = task.graph.constraints()
        mutual = sum(count for (u, v), count in constraints.items() if (v, u) in constraints) / max(1, task.m)
        q = 0.7 if mutual >= MOSTLY_MUTUAL else 0.4
        made = EspPlan(tied, replace(annealed, loss="gce", q=q, steps=1000 if task.n <= 12 else 1200))
    elif method == "solver-guided":
        made = EspPlan(tied, replace(annealed, init_scale=0.2 / width**0.5), guided=True)
    elif heads == 1:
        made = EspPlan(tied, replace(usual, steps=1000, init_scale=0.1 / width**0.5, stop=True, settle=100))
    else:
        made = EspPlan(tied, replace(usual, steps=600, stop=True, settle=150))
    return made if steps is None else replace(made, recipe=replace(made.recipe, steps=steps))
