"""What is put at a site: an activation of another run, zero, a mean, or the activation of another example.

One vocabulary for ablation, patching and circuits. Every kind that needs data names them: there is no mean without
saying over what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.model import HookedModel, activations

Kind = Literal["patch", "zero", "mean", "positional_mean", "resample", "matched_resample"]
KINDS: tuple[str, ...] = get_args(Kind)

Factors = Mapping[str, Int[Tensor, " example"]]
DonorFactors = Mapping[str, Int[Tensor, " donor"]]


def require_kind(kind: str) -> None:
    """Raise KeyError, listing the kinds there are, for an unknown kind."""
    if kind not in KINDS:
        raise UnknownName(f"unknown kind of intervention '{kind}': choose one of {', '.join(KINDS)}")


def donors(
    count: int,
    *,
    seed: int,
    available: int | None = None,
    levels: Int[Tensor, " example"] | None = None,
    donor_levels: Int[Tensor, " donor"] | None = None,
) -> Int[Tensor, " example"]:
    """Which example each of `count` examples takes its activation from, drawn with `seed` (no global generator moves).

    available: how many examples there are to draw from; None when they are the examples themselves: then the draw is
        a permutation, without a fixed point wherever a group has two members or more.
    levels, donor_levels: an example draws only from donors of its own level. Without `donor_levels` they are `levels`.
    Raises ValueError for a level that no donor has.
    """
    generator = torch.Generator().manual_seed(seed)
    own = available is None
    pool = count if available is None else available
    if levels is None:
        levels, donor_levels = torch.zeros(count, dtype=torch.long), torch.zeros(pool, dtype=torch.long)
    elif donor_levels is None:
        donor_levels = levels
    if len(levels) != count or len(donor_levels) != pool:
        raise RequestError(
            f"{len(levels)} and {len(donor_levels)} levels were given for {count} examples and {pool} donors: "
            "give one per example"
        )
    drawn = torch.empty(count, dtype=torch.long)
    for level in levels.unique().tolist():
        takers = (levels == level).nonzero().flatten().cpu()
        givers = (donor_levels == level).nonzero().flatten().cpu()
        if not len(givers):
            raise RequestError(
                f"no reference example has level {level}: nothing to draw from for {len(takers)} examples"
            )
        if own:
            # One cycle through the group in random order: no example is its own donor.
            order = takers[torch.randperm(len(takers), generator=generator)]
            drawn[order] = order.roll(1)
        elif len(givers) >= len(takers):
            drawn[takers] = givers[torch.randperm(len(givers), generator=generator)[: len(takers)]]
        else:
            drawn[takers] = givers[torch.randint(len(givers), (len(takers),), generator=generator)]
    return drawn


def factor_table(factors: Mapping[str, Tensor] | Tensor, names: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The factors as a mapping, or `names` of them; a bare tensor is the one factor called `factor`.

    Raises KeyError, listing the factors there are, for a name that is not one.
    """
    table = {"factor": factors} if isinstance(factors, Tensor) else dict(factors)
    if names is None:
        return table
    missing = [name for name in names if name not in table]
    if missing:
        raise UnknownName(f"no factor '{missing[0]}': there are {', '.join(table) or 'none'}")
    return {name: table[name] for name in names}


def _combined(tables: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
    """Each table's factors as one level per example, the same level for the same combination in every table."""
    rows = [torch.stack([table[name].cpu() for name in tables[0]], dim=1) for table in tables]
    _, inverse = torch.cat(rows).unique(dim=0, return_inverse=True)
    return list(inverse.split([len(row) for row in rows]))


def replacement(
    kind: Kind | str,
    activation: Shaped[Tensor, "example ..."],
    reference: Shaped[Tensor, "donor ..."] | None = None,
    drawn: Int[Tensor, " example"] | None = None,
    *,
    positional: bool = True,
) -> Shaped[Tensor, "example ..."]:
    """What `kind` puts in the place of `activation`; the shape of `activation`.

    reference: the same activation on the reference data; for `patch` it is the other run's. drawn: for the resample
    kinds, which reference example each example takes (`donors`). positional: whether the axis after `example` is the
    position, over which `mean` averages too; without (attention patterns) `mean` is the mean over examples.
    Raises ValueError where the reference is missing or its shape does not fit.
    """
    require_kind(kind)
    if kind == "zero":
        return torch.zeros_like(activation)
    if reference is None:
        raise RequestError(f"{kind} needs reference data: say which examples it is taken over")
    if kind == "mean" and positional:
        if reference.shape[2:] != activation.shape[2:]:
            raise RequestError(f"the reference has shape {tuple(reference.shape)}, the run {tuple(activation.shape)}")
        return reference.mean(dim=(0, 1)).expand_as(activation)
    if reference.shape[1:] != activation.shape[1:]:
        raise RequestError(
            f"{kind} needs a reference of the same length: it has shape {tuple(reference.shape)}, "
            f"the run {tuple(activation.shape)}"
        )
    if kind in ("mean", "positional_mean"):
        return reference.mean(dim=0).expand_as(activation)
    if kind == "patch":
        if len(reference) != len(activation):
            raise RequestError(f"patch needs one source example per example: {len(reference)} for {len(activation)}")
        return reference
    if drawn is None:
        raise RequestError(f"{kind} needs `drawn`, the donor of each example: draw it with donors(...)")
    return reference[drawn.to(reference.device)]


@dataclass(frozen=True, eq=False)
class Intervention:
    """What is put in the place of an activation, relative to which data.

    kind: `patch` (the same example of the run on `reference`), `zero`, `mean` (over reference examples and positions),
        `positional_mean` (over reference examples), `resample` (another reference example), `matched_resample`
        (another reference example of the same levels).
    reference: model inputs, first axis `example`; required for every kind but `zero`.
    seed: of the draw, for the resample kinds.
    factors: name -> level per destination example, for `matched_resample`; reference_factors: the same for the
        reference, needed only where the reference is not the destination's own inputs.
    """

    kind: Kind | str
    reference: Tensor | None = None
    seed: int = 0
    factors: Factors = field(default_factory=dict)
    reference_factors: DonorFactors = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_kind(self.kind)
        if self.kind != "zero" and self.reference is None:
            raise RequestError(f"{self.kind} needs reference data: say which examples it is taken over")
        if self.kind == "matched_resample" and not self.factors:
            raise RequestError("matched_resample needs factors: a level per example that the donor must share")

    def drawn(self, destination: Shaped[Tensor, "example ..."]) -> Int[Tensor, " example"] | None:
        """Which reference example each destination example takes, None for kinds that draw nothing."""
        if self.kind not in ("resample", "matched_resample") or self.reference is None:
            return None
        own = self.reference.shape == destination.shape and bool(torch.equal(self.reference, destination))
        available = None if own else len(self.reference)
        if self.kind == "resample":
            return donors(len(destination), seed=self.seed, available=available)
        theirs = self.reference_factors or (self.factors if own else {})
        if not theirs:
            raise RequestError("matched_resample on other reference data needs reference_factors: a level per donor")
        levels, donor_levels = _combined([self.factors, factor_table(theirs, list(self.factors))])
        return donors(len(destination), seed=self.seed, available=available, levels=levels, donor_levels=donor_levels)

    def values(
        self, model: HookedModel, destination: Shaped[Tensor, "example ..."], run: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """What is put at each hook of `run` (name -> the destination run's activation), in that activation's shape.

        The reference runs once, and only the named activations are held.
        """
        drawn = self.drawn(destination)
        held: Mapping[str, Tensor | None] = dict.fromkeys(run)
        if self.kind != "zero" and self.reference is not None:
            held = activations(model, self.reference, list(run))[1]
        return {
            name: replacement(self.kind, value, held[name], drawn, positional=not name.endswith("hook_pattern"))
            for name, value in run.items()
        }

    def __str__(self) -> str:
        over = "" if self.reference is None or self.kind == "zero" else f" over {len(self.reference)} examples"
        matched = f" matched on {', '.join(self.factors)}" if self.kind == "matched_resample" else ""
        seed = f", seed {self.seed}" if "resample" in self.kind else ""
        return f"{self.kind}{over}{matched}{seed}"
