"""How well a model's heads divide the roles: the specialisation score, and the mechanism's name for each role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headlab.interp.ablation import Head
from headlab.interp.model import HookedModel, head_weights
from headlab.interp.roles.carried import Carried, carried
from headlab.interp.roles.causal import CausalCheck, hold_heads
from headlab.interp.roles.metric import ReadMetric, read_metric
from headlab.interp.roles.role import Role, by_inputs, require_roles

if TYPE_CHECKING:
    import pandas as pd

    from headlab.interp.render.figure import Figure
    from headlab.interp.statistics import Chance

DEFINITION = 2  # of the score: figures of different definitions are never compared
MECHANISMS = ("none", "unread", "still", "always on", "shared", "redundant", "divided")  # from nothing to a division
SERVES = 0.5  # usage, and quiet, from which a head counts as serving a role
SILENT = 1e-4  # of the most energy that any head has in a role (1 % in amplitude): a head below it does not act there
UNREAD = 1e-6  # of the energy that the best read direction of the layer would give: below it a write is not read
STILL = 1e-9  # of the mean square: what varies less is the same in every query, up to rounding of float32
ROUNDING = 1e-6  # separation below this is rounding of float32 activations


@dataclass(frozen=True)
class Specialisation:
    """How a model's heads divide roles among them.

    Energies are variances over a role's queries, in the read metric: squared changes of the logits, to first order.

    Args:
        roles: Their names, in the order given.
        heads: (layer, head) of all layers.
        moved: Energy of what the head carries from the role's targets.
        stray: Energy of what it carries at the role's queries from keys that no role reads there.
        p: Joint distribution of head and role by `moved`, each role weighing 1/P; a column of 0 where nothing moves.
        usage: In [0, 1], moved / (moved + what it carries from all other keys), chance-corrected.
        quiet: In [0, 1], 1 - the largest amplitude (root of the energy) of the head's stray in roles that are not
            played where this one is, by that of `moved`. 1 where all roles are played at the same queries, 0 where the
            head moves nothing.
        unread: Per role, whether what most is written from its targets reaches no logit.
        still: Per role, whether what is written from its targets is read, but is the same in every query.
        purity: Per role, in [0, 1], moved / (moved + stray) of all heads together.
        copies: Per role, 1 / sum_h p(h|role)^2, the number of heads that it is spread over.
        separation: In [0, 1], how well the moving head tells the role, (sum_h max_r p(h|r) - 1) / (P - 1).
        coverage: In [0, 1], the best usage x quiet of the worst served role.
        specialisation: separation x coverage. With one role, separation and specialisation are None.
        counted: How many queries each role was measured at.
        causal: What the logits lose when the heads of a role are held at their mean; None where it was not asked for.
        definition: Of the score; see `DEFINITION`.
    """

    roles: tuple[str, ...]
    heads: tuple[Head, ...]
    moved: Float[np.ndarray, "head role"]
    stray: Float[np.ndarray, "head role"]
    p: Float[np.ndarray, "head role"]
    usage: Float[np.ndarray, "head role"]
    quiet: Float[np.ndarray, "head role"]
    unread: Bool[np.ndarray, " role"]
    still: Bool[np.ndarray, " role"]
    purity: Float[np.ndarray, " role"]
    copies: Float[np.ndarray, " role"]
    separation: float | None
    coverage: float
    specialisation: float | None
    counted: tuple[int, ...]
    causal: CausalCheck | None = None
    definition: int = DEFINITION

    @property
    def value(self) -> float:
        """The specialisation; with one role, the coverage."""
        return self.coverage if self.specialisation is None else self.specialisation

    @property
    def information(self) -> float | None:
        """Mutual information of head and role under `p`, by ln P; in [0, 1], None with one role.

        With two roles it ranks models as `separation` does; with more it also tells roles that are confused in pairs
        from roles that are confused throughout.
        """
        if len(self.roles) == 1:
            return None
        if not self.p.any():
            return 0.0
        joint = self.p / self.p.sum()
        independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
        ratio = np.divide(joint, independent, out=np.ones_like(joint), where=joint > 0)
        return float(np.clip((joint * np.log(ratio)).sum() / np.log(len(self.roles)), 0, 1))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Per role, how it is served.

        divided: by one head (usage and quiet of .5 or more). redundant: by two or more such heads. shared: only by
        heads that serve other roles too. always on: only by heads that are as loud where the role is not asked for,
        and another head must override them. unread, still: see the fields. none: by no head.
        """
        names, serves = [], self.usage >= SERVES
        for role in range(len(self.roles)):
            own = serves[:, role]
            quiet = own & (self.quiet[:, role] >= SERVES)
            if not own.any():
                names.append("unread" if self.unread[role] else "still" if self.still[role] else "none")
            elif (serves[own].sum(1) > 1).all():
                names.append("shared")
            else:
                names.append("always on" if not quiet.any() else "redundant" if quiet.sum() > 1 else "divided")
        return tuple(names)

    @property
    def mechanism(self) -> str:
        """The model's: that of the role which is furthest from a division, in the order of `MECHANISMS`."""
        return min(self.mechanisms, key=MECHANISMS.index)

    def to_frame(self) -> pd.DataFrame:
        """One row per head and role: layer, head, role, usage, quiet, p, moved, stray."""
        import pandas as pd

        names = ("usage", "quiet", "p", "moved", "stray")
        return pd.DataFrame(
            [
                {
                    "layer": layer,
                    "head": head,
                    "role": role,
                    **{name: getattr(self, name)[row, column] for name in names},
                }
                for row, (layer, head) in enumerate(self.heads)
                for column, role in enumerate(self.roles)
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON of `headlab score`, without accuracy and chance; `stored_score` reads it."""
        return {
            "definition": self.definition,
            "specialisation": self.specialisation,
            "separation": self.separation,
            "information": self.information,
            "coverage": self.coverage,
            "roles": list(self.roles),
            "mechanism": list(self.mechanisms),
            "model_mechanism": self.mechanism,
            "purity": self.purity.tolist(),
            "copies": self.copies.tolist(),
            "counted": list(self.counted),
            "heads": [list(head) for head in self.heads],
            **{name: getattr(self, name).tolist() for name in ("usage", "quiet", "p", "moved", "stray")},
            "causal": None if self.causal is None else self.causal.to_json(),
        }

    def render(self, chance: Chance | None = None) -> Figure:
        """The usage of every role by every head as a picture, beside it the score and its chance level where given."""
        from headlab.interp.render.theme import LETTERS
        from headlab.interp.render.theme import Head as Mark
        from headlab.interp.render.usage import ScoreStrip, usage_chart

        marks = []
        for (layer, head), used in zip(self.heads, self.usage, strict=True):
            best = int(used.argmax())
            known = used[best] >= SERVES and best < len(LETTERS)
            marks.append(Mark(LETTERS[best] if known else "ink", f"{layer}.{head}"))
        strip = None
        if chance is not None:
            name = "coverage" if self.specialisation is None else "specialisation"
            source = getattr(chance, "source", "untrained models")
            note = f"{chance.count} models ({source}): median {chance.median:.3f}, 95 % below {chance.p95:.3f}"
            strip = ScoreStrip([self.value], chance.values, name, note, heads="ink")
        best = ", ".join(f"{role} {share:.0%}" for role, share in zip(self.roles, self.usage.max(0), strict=True))
        return usage_chart(
            self.usage,
            heads=marks,
            roles=self.roles,
            role_notes=self.mechanisms,
            title="What each head does",
            description=f"Usage of {len(self.roles)} roles by {len(self.heads)} heads; the best head of each: {best}. "
            f"Mechanism: {', '.join(map(' '.join, zip(self.roles, self.mechanisms, strict=True)))}.",
            score=strip,
        )


def score(
    model: HookedModel,
    roles: Sequence[Role],
    *,
    metric: ReadMetric | None = None,
    causal: bool = False,
    batch: int | None = None,
) -> Specialisation:
    """The specialisation of a model's heads in `roles`.

    Changes of the weights that leave the function as it is leave every figure as it is: the order of heads, their
    bases, biases of values and keys, the mean of W_O under a centring norm, weights folded into norms or out of them
    (headlab.interp.symmetries). That decides three things. A bias of the values is no key's, so values count without
    it (`carried`). What a head writes is as large as its effect on the logits (`read_metric`), not as its norm. And a
    head that writes the same in every query equals a bias, so that variance over queries is what counts: where all
    targets are alike a role scores 0, with the mechanism `still`. Two heads may share a role. Never NaN.

    `quiet` is the only figure in amplitude: a whisper a tenth as loud decides the answer as soon as the other head is
    silent, and by energy it would cost 1 %.

    Args:
        model: Any hooked model. With several layers the read metric is of first order: what only a saturated softmax
            or a dead ReLU of a later layer reads counts too little.
        roles: One or more. Where several are played at one query, only examples with distinct targets count.
        metric: The read metric, where it is known already.
        causal: Whether to hold each role's heads at their mean as well; P + 2 passes a role.
        batch: Examples per pass; by default as many as keep a layer's attention within 4 MiB.

    Raises:
        RequestError: For no roles, two of one name, a query without a target, a role of which no query is left, or
            weights that are not finite.
    """
    roles = tuple(roles)
    require_roles(roles)
    together: dict[str, set[str]] = {}
    by_role: dict[str, Carried] = {}
    for group, queries in by_inputs(roles):
        masks = [(counted, role.targets) for counted, role in zip(queries, group, strict=True)]
        for role, counted, found in zip(
            group, queries, carried(model, group[0].inputs, masks, batch=batch), strict=True
        ):
            by_role[role.name] = found
            together[role.name] = {
                other.name for other, its in zip(group, queries, strict=True) if bool((counted & its).any())
            }
    read = read_metric(model, roles) if metric is None else metric
    return _divide(model, roles, [by_role[role.name] for role in roles], together, read, causal)


def _divide(
    model: HookedModel,
    roles: tuple[Role, ...],
    by_role: list[Carried],
    together: dict[str, set[str]],
    metric: ReadMetric,
    causal: bool,
) -> Specialisation:
    written = []
    for layer, centred in enumerate(metric.centred):
        W_O = head_weights(model, layer).W_O.double().cpu()
        W_O = W_O - W_O.mean(-1, keepdim=True) if centred else W_O
        written.append(W_O @ W_O.mT)
    moved, rest, stray = (
        np.stack([_energy(getattr(each, name), metric.z) for each in by_role], axis=1)
        for name in ("target", "rest", "stray")
    )
    size, square, square_written = (
        np.stack([_energy(each.target, form, about_mean=mean) for each in by_role], axis=1)
        for form, mean in ((written, True), (metric.z, False), (written, False))
    )
    heads = tuple((layer, head) for layer, forms in enumerate(metric.z) for head in range(len(forms)))
    gain = np.array([metric.gain[layer] for layer, _ in heads])[:, None]
    unread = (square.max(0) <= UNREAD * (gain * square_written).max(0)) & (square_written.max(0) > 0)
    rounding = torch.finfo(next(model.parameters()).dtype).eps ** 2  # type: ignore[attr-defined]
    still = (moved.max(0) <= max(STILL, rounding) * square.max(0)) & (square.max(0) > 0) & ~unread
    moved = np.where((moved <= UNREAD * gain * size) | still, 0.0, moved)
    usage = _usage(moved, rest, np.array([each.chance for each in by_role]))
    quiet = _quiet(moved, stray, [[other.name in together[role.name] for other in roles] for role in roles])
    share = np.divide(moved, moved.sum(0), out=np.zeros_like(moved), where=moved.sum(0) > 0)
    separation = None
    if len(roles) > 1:
        separation = float(np.clip((share.max(1).sum() - 1) / (len(roles) - 1), 0, 1))
        separation = separation if separation > ROUNDING else 0.0
    coverage = float((usage * quiet).max(0).min())
    every = moved.sum(0) + stray.sum(0)
    groups = [
        [head for head, used in zip(heads, usage[:, r], strict=True) if used >= SERVES] for r in range(len(roles))
    ]
    return Specialisation(
        roles=tuple(role.name for role in roles),
        heads=heads,
        moved=moved,
        stray=stray,
        p=share / len(roles),
        usage=usage,
        quiet=quiet,
        unread=unread,
        still=still,
        purity=np.divide(moved.sum(0), every, out=np.zeros_like(every), where=every > 0),
        copies=np.divide(1.0, (share**2).sum(0), out=np.zeros_like(every), where=share.sum(0) > 0),
        separation=separation,
        coverage=coverage,
        specialisation=None if separation is None else coverage * separation,
        counted=tuple(each.target[0].shape[0] for each in by_role),
        causal=hold_heads(model, roles, groups) if causal else None,
    )


def _energy(
    z: Sequence[Float[Tensor, "query head d_head"]],
    forms: Sequence[Float[Tensor, "head d_head d_head"]],
    *,
    about_mean: bool = True,
) -> Float[np.ndarray, " heads"]:
    """The mean over queries of z^T M z, of all layers' heads; of z without its mean over queries, if asked for."""
    found = []
    for rows, form in zip(z, forms, strict=True):
        rows = rows - rows.mean(0) if about_mean else rows
        found.append(torch.einsum("qhd,hde,qhe->h", rows, form, rows).clamp(min=0) / len(rows))
    return torch.cat(found).numpy()


def _usage(
    moved: Float[np.ndarray, "head role"], rest: Float[np.ndarray, "head role"], chance: Float[np.ndarray, " role"]
) -> Float[np.ndarray, "head role"]:
    total = moved + rest
    acts = (total > 0) & (total >= SILENT * total.max(0)) & (chance < 1)
    share = np.divide(moved, total, out=np.zeros_like(total), where=acts)
    corrected = np.divide(share - chance, 1 - chance, out=np.zeros_like(total), where=acts)
    return np.clip(corrected, 0, 1)


def _quiet(
    moved: Float[np.ndarray, "head role"], stray: Float[np.ndarray, "head role"], together: list[list[bool]]
) -> Float[np.ndarray, "head role"]:
    quiet = np.ones_like(moved)
    for role, shared in enumerate(together):
        loudest = stray[:, ~np.array(shared)].max(1, initial=0.0)
        louder = np.divide(loudest, moved[:, role], out=np.ones_like(loudest), where=moved[:, role] > loudest)
        quiet[:, role] = 1 - np.sqrt(louder)
    return quiet
