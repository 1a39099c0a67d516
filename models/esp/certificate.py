"""Is a one-head model inside the theorem's class, which order of the vertices does it hold, what must it get wrong?

One attention layer with one head. A_j > 0 is position j's unnormalised attention weight at '#', Z = sum_j A_j,
O_t(j) the logit of t that position j's value brings, c_t the constant part (residual of '#', b_O, b_U).
Z L_t = sum_j A_j (O_t(j) + c_t) is a sum of terms of which each sees u, v or the selector alone. An arc (u, v) is right
under both selectors only where L_u > L_v under '1' and L_v > L_u under '2'. Added, all terms in u and v cancel and
leave delta(u) > delta(v) for

    delta(t) = A_sel('1') (O_t('1') + c_t) - A_sel('2') (O_t('2') + c_t).

So around a cycle some arc fails, the arcs with delta(u) <= delta(v) are a feedback arc set, and a model has at least
|FAS(delta)| >= |MFAS| errors. A final norm scales all logits of a sample alike, which changes no sign, unless something
constant is added after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, activations, untouched
from headlab.models.esp.evaluation import evaluate, in_dtype, require_fit
from headlab.models.esp.feedback import NODES, Arc, FeedbackArcSet, minimum_feedback_arc_set
from headlab.models.esp.graphs import Digraph
from headlab.models.esp.task import EspTask

NORMS = {"LayerNormPre": True, "LayerNorm": True, "RMSNormPre": False, "RMSNorm": False}  # name -> whether it centres
POST_NORM = "use_normalization_before_and_after"
KNOWN_CODE = ("transformer_lens.", "headlab.models.parts", "torch.nn.modules.")  # where a model's forward may stand


@dataclass(frozen=True)
class Potential:
    """What a one-head model has learned: delta(t) = first(t) - second(t), for each vertex t.

    first, second: A_sel (O_t + c_t) under the selectors '1' and '2', float64, up to one positive factor in common.
    first_raw, second_raw: O_t + c_t alone, which decide where the other selector's weight is too small for a float.
    """

    first: Float[Tensor, " vertex"]
    second: Float[Tensor, " vertex"]
    first_raw: Float[Tensor, " vertex"]
    second_raw: Float[Tensor, " vertex"]

    @property
    def delta(self) -> Float[Tensor, " vertex"]:
        """The potential, up to a positive factor."""
        return self.first - self.second

    def difference(self, u: int, v: int) -> float:
        """delta(u) - delta(v) up to a positive factor; its sign holds where one selector's weight underflows."""
        difference = float(self.first[u] - self.first[v]) - float(self.second[u] - self.second[v])
        if difference != 0:
            return difference
        first = float(self.first_raw[u] - self.first_raw[v])
        second = float(self.second_raw[u] - self.second_raw[v])
        return first if second == 0 else -second if first == 0 else 0.0

    def order(self) -> tuple[int, ...]:
        """The vertices by falling delta; among equals by number."""

        def before(u: int, v: int) -> int:
            difference = self.difference(u, v)
            return -1 if difference > 0 else 1 if difference < 0 else u - v

        return tuple(sorted(range(len(self.first)), key=cmp_to_key(before)))

    def given_up(self, graph: Digraph) -> tuple[Arc, ...]:
        """The arcs (u, v) with delta(u) <= delta(v), ties included, parallel arcs repeated, self-loops never."""
        lost = {arc for arc in graph.constraints() if not self.difference(*arc) > 0}
        return tuple(arc for arc in graph.arcs if arc in lost)


@dataclass(frozen=True)
class Certificate:
    """What the theorem says about one model on one graph.

    in_class, reason: whether the theorem covers the model, and if not, which weight or part puts it outside.
    errors, samples: counted in float64 over all 2m samples. feedback: the graph's minimum feedback arc set.
    potential, order, given_up: what a model of the class has learned, None outside; see Potential.
    """

    graph: Digraph
    in_class: bool
    reason: str
    errors: int
    samples: int
    feedback: FeedbackArcSet
    potential: Potential | None = None
    order: tuple[int, ...] | None = None
    given_up: tuple[Arc, ...] | None = None

    @property
    def error(self) -> float:
        """The share of samples that are wrong."""
        return self.errors / self.samples

    @property
    def error_bound(self) -> float | None:
        """No model of the class has a smaller error: |MFAS|/(2m), with the lower bound where |MFAS| is not exact."""
        return self.feedback.lower / self.samples if self.in_class else None

    @property
    def holds(self) -> bool | None:
        """Whether errors >= |FAS(delta)| >= |MFAS|; None outside the class. False would refute the theorem."""
        return None if self.given_up is None else self.errors >= len(self.given_up) >= self.feedback.lower

    def violated(self, cycle: Sequence[int]) -> Arc:
        """An arc (u, v) of a directed cycle with delta(u) <= delta(v): one of its two samples is wrong.

        The cycle is given by its vertices in order. ValueError where it is not a cycle of the graph, or the model is
        outside the class. The arc of the smallest delta(u) - delta(v) is taken.
        """
        if self.potential is None:
            raise RequestError(f"the model is outside the theorem's class ({self.reason}): it need not violate any arc")
        if len(cycle) < 2:
            raise RequestError("a cycle needs at least two vertices: a self-loop is not a constraint")
        arcs = [(u, cycle[(k + 1) % len(cycle)]) for k, u in enumerate(cycle)]
        constraints = self.graph.constraints()
        for arc in arcs:
            if arc not in constraints:
                raise RequestError(f"{arc} is not an arc of '{self.graph.name}': a cycle follows its arcs")
        return min(arcs, key=lambda arc: self.potential.difference(*arc))  # type: ignore[union-attr]

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; vertices by their labels, the order from first to last."""
        labels = self.graph.labels
        order, arcs, learned = self.order, self.given_up, self.potential
        return {
            "in_class": self.in_class,
            "reason": self.reason,
            "order": None if order is None else [labels[v] for v in order],
            "potential": None if learned is None else learned.delta.tolist(),
            "feedback_arcs": None if arcs is None else [[labels[u], labels[v]] for u, v in arcs],
            "errors": self.errors,
            "samples": self.samples,
            "error": self.error,
            "mfas": self.feedback.upper,
            "mfas_lower": self.feedback.lower,
            "mfas_exact": self.feedback.exact,
            "error_bound": self.error_bound,
            "holds": self.holds,
        }


def certify(
    model: HookedModel, task: EspTask, *, feedback: FeedbackArcSet | None = None, nodes: int = NODES
) -> Certificate:
    """The certificate of any HookedTransformer on `task`, in float64, on a copy where it is of another dtype.

    feedback: the graph's minimum feedback arc set where it is known, else computed with `nodes` of the solver. Works
    on the induction form too: its further tokens are the same in every sample. ValueError where the vocabulary or the
    context does not fit, and where the weights are not finite.
    """
    require_fit(model, task)
    model = in_dtype(model, torch.float64)
    for name, parameter in model.named_parameters():  # type: ignore[attr-defined]
        if not bool(torch.isfinite(parameter).all()):
            raise RequestError(f"the weights {name} are not finite: nothing can be certified")
    feedback = minimum_feedback_arc_set(task.graph, nodes=nodes) if feedback is None else feedback
    evaluation = evaluate(model, task)
    reason = "; ".join(outside(model))
    if reason:
        return Certificate(task.graph, False, reason, evaluation.errors, evaluation.samples, feedback)
    learned = potential(model, task)
    return Certificate(
        task.graph,
        True,
        "",
        evaluation.errors,
        evaluation.samples,
        feedback,
        learned,
        learned.order(),
        learned.given_up(task.graph),
    )


def outside(model: Any) -> list[str]:
    """Everything that puts a HookedTransformer outside the theorem's class, one clause each; empty inside it."""
    cfg, reasons = model.cfg, []
    if cfg.n_layers != 1:
        reasons.append(f"blocks.1: {cfg.n_layers} layers, and the theorem speaks of one")
    if cfg.n_heads != 1:
        reasons.append(f"blocks.0.attn.W_Q: {cfg.n_heads} heads, and the theorem speaks of one")
    if not cfg.attn_only:
        reasons.append("blocks.0.mlp: a feed-forward layer is not additive in the endpoints")
    for slot, module, plain in (
        ("embed", model.embed, ("Embed",)),
        ("blocks.0.attn", model.blocks[0].attn, ("Attention", "GroupedQueryAttention")),
        ("unembed", model.unembed, ("Unembed", "TiedUnembed")),
    ):
        if type(module).__name__ not in plain:
            reasons.append(f"{slot}: {type(module).__name__} is a part that the theorem does not know")
    reasons += _outside_weights(model)
    if getattr(cfg, POST_NORM, False) or "olmo" in str(getattr(cfg, "original_architecture", None)).lower():
        reasons.append("blocks.0: a norm after attention scales its output with the endpoints")
    norm = type(model.ln_final).__name__ if hasattr(model, "ln_final") else "Identity"
    if norm == "Identity":
        return reasons
    if norm not in NORMS:
        return [*reasons, f"ln_final: {norm} is a norm that the theorem does not know"]
    after = "is not 0: added after the final norm, it weighs more or less as the endpoints change the norm's scale"
    bias = getattr(model.ln_final, "b", None)
    if bias is not None and bool((bias != 0).any()):
        reasons.append(f"ln_final.b {after}")
    if bool((model.unembed.b_U != 0).any()):
        reasons.append(f"unembed.b_U {after}")
    return reasons


def _outside_weights(model: Any) -> list[str]:
    """What acts on the activations without being a weight: hooks, and code that is not that of the known parts."""
    reasons = []
    for name, module in model.named_modules():
        where = name or "the model"
        if module._forward_hooks or module._forward_pre_hooks:
            reasons.append(f"{where}: a hook stands outside the weights, of which alone the theorem speaks")
        forward = vars(module).get("forward")
        if forward is not None:
            reasons.append(f"{where}: its forward was replaced, and the theorem speaks of weights alone")
        elif not hasattr(module, "__len__") and not str(type(module).forward.__module__).startswith(KNOWN_CODE):
            reasons.append(f"{where}: {type(module).__name__} has a forward of its own that the theorem does not know")
    return reasons


def potential(model: HookedModel, task: EspTask) -> Potential:
    """The potential of a one-head model, in the model's own dtype (float64 for a certificate).

    Whatever makes positions and values (rotary or other position codes, a first norm, biases) is in the measured scores
    and values, so nothing of it is assumed. ValueError for a model outside the class.
    """
    if reasons := outside(model):
        raise RequestError(f"the model is outside the theorem's class: {'; '.join(reasons)}")
    m: Any = model
    device = m.embed.W_E.device
    selector = torch.arange(2, device=device)
    inputs = task.sequences(torch.zeros_like(selector), torch.ones_like(selector), selector)
    names = ["blocks.0.attn.hook_attn_scores", "blocks.0.attn.hook_v", "blocks.0.hook_resid_pre"]
    with untouched(model):
        _, cached = activations(model, inputs, names)
        at = task.position("selector")
        score = cached[names[0]][:, 0, -1, at]
        value = cached[names[1]][:, at, 0] @ m.blocks[0].attn.W_O[0]
        constant = cached[names[2]][:, -1] + m.blocks[0].attn.b_O
        logits = (_final(m, value + constant) @ m.unembed.W_U + m.unembed.b_U)[:, : task.n].detach().cpu()
    weight = (score - score.max()).exp().cpu()
    return Potential(weight[0] * logits[0], weight[1] * logits[1], logits[0], logits[1])


def _final(model: Any, residual: Float[Tensor, "selector model"]) -> Float[Tensor, "selector model"]:
    """The linear part of the final norm: centring and weights, without the scale."""
    norm = getattr(model, "ln_final", None)
    if NORMS.get(type(norm).__name__, False):
        residual = residual - residual.mean(-1, keepdim=True)
    weights = getattr(norm, "w", None)
    return residual if weights is None else residual * weights
