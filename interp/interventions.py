"""What is put at a site: an activation of another run, zero, a mean, or the activation of another example.

One vocabulary for ablation, patching and circuits. Every kind that needs data names them: there is no mean without
saying over what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from headlab.interp.errors import RequestError, UnknownName
from headlab.interp.model import HookedModel, Mask, activations
from headlab.interp.padding import mask_for_run, require_padding_unseen, same_padding, token_mask

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
    tokens: Bool[Tensor, "donor position"] | None = None,
) -> Shaped[Tensor, "example ..."]:
    """What `kind` puts in the place of `activation`.

    Args:
        kind: See `Intervention`.
        activation: Of the destination run.
        reference: The same activation on the reference data; for `patch` it is the other run's.
        drawn: For the resample kinds, which reference example each example takes (`donors`).
        positional: Whether the axis after `example` is the position, over which `mean` averages too; without it
            (attention patterns [example, head, destination, source]) `mean` is the mean over examples.
        tokens: Where the reference has tokens; means leave padding out. None is everywhere.

    Returns:
        A tensor of the activation's shape. At a position where no reference example has a token, a mean over examples
        is the activation itself.

    Raises:
        RequestError: Where the reference is missing or its shape does not fit.
    """
    require_kind(kind)
    if kind == "zero":
        return torch.zeros_like(activation)
    if reference is None:
        raise RequestError(f"{kind} needs reference data: say which examples it is taken over")
    if kind == "mean" and positional:
        if reference.shape[2:] != activation.shape[2:]:
            raise RequestError(f"the reference has shape {tuple(reference.shape)}, the run {tuple(activation.shape)}")
        mean = reference.mean(dim=(0, 1)) if tokens is None else reference[tokens].mean(0)
        return mean.expand_as(activation)
    if reference.shape[1:] != activation.shape[1:]:
        raise RequestError(
            f"{kind} needs a reference of the same length: it has shape {tuple(reference.shape)}, "
            f"the run {tuple(activation.shape)}"
        )
    if kind in ("mean", "positional_mean"):
        if tokens is None:
            return reference.mean(dim=0).expand_as(activation)
        # A row of a pattern belongs to its destination: padded destinations are left out.
        weight = tokens.view(*tokens.shape, *[1] * (reference.ndim - 2)) if positional else tokens[:, None, :, None]
        count = weight.sum(0)
        mean = (reference * weight).sum(0) / count.clamp(min=1)
        return torch.where(count > 0, mean.to(activation), activation)
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

    Args:
        kind: `patch` (the same example of the run on `reference`), `zero`, `mean` (over reference examples and
            positions), `positional_mean` (over reference examples), `resample` (another reference example),
            `matched_resample` (another reference example of the same levels).
        reference: Model inputs, first axis `example`; required for every kind but `zero`.
        seed: Of the draw, for the resample kinds.
        factors: Name -> level per destination example, for `matched_resample`.
        reference_factors: The same for the reference, needed only where it is not the destination's own inputs.
        reference_mask: 1 where the reference has a token, 0 where it is padding. Where the reference is the
            destination's own inputs, theirs is taken by default.
    """

    kind: Kind | str
    reference: Tensor | None = None
    seed: int = 0
    factors: Factors = field(default_factory=dict)
    reference_factors: DonorFactors = field(default_factory=dict)
    reference_mask: Mask | None = None

    def __post_init__(self) -> None:
        require_kind(self.kind)
        if self.kind != "zero" and self.reference is None:
            raise RequestError(f"{self.kind} needs reference data: say which examples it is taken over")
        if self.kind == "matched_resample" and not self.factors:
            raise RequestError("matched_resample needs factors: a level per example that the donor must share")

    def drawn(
        self, destination: Shaped[Tensor, "example ..."], tokens: Bool[Tensor, "example position"] | None = None
    ) -> Int[Tensor, " example"] | None:
        """Which reference example each destination example takes; None for kinds that draw nothing.

        Args:
            destination: Model inputs.
            tokens: Where they have tokens; an example takes from a donor that is padded at the same positions.
        """
        if self.kind not in ("resample", "matched_resample") or self.reference is None:
            return None
        own = self._is(destination)
        available = None if own else len(self.reference)
        factors, theirs = dict(self.factors), dict(self.reference_factors or (self.factors if own else {}))
        if self.kind == "resample":
            factors, theirs = {}, {}
        elif not theirs:
            raise RequestError("matched_resample on other reference data needs reference_factors: a level per donor")
        theirs = factor_table(theirs, list(factors))
        donor_tokens = self._tokens(destination, tokens)
        if tokens is not None or donor_tokens is not None:
            every = [torch.ones(each.shape[:2], dtype=torch.bool) for each in (destination, self.reference)]
            masks = [a if b is None else b for a, b in zip(every, (tokens, donor_tokens), strict=True)]
            factors["padding"], theirs["padding"] = same_padding(*masks)
            if own and (alone := factors["padding"].bincount() == 1).any():
                example = int(alone[factors["padding"]].nonzero()[0])
                raise RequestError(f"example {example} alone has its length: it can take from no other example")
        if not factors:
            return donors(len(destination), seed=self.seed, available=available)
        levels, donor_levels = _combined([factors, theirs])
        return donors(len(destination), seed=self.seed, available=available, levels=levels, donor_levels=donor_levels)

    def _is(self, destination: Tensor) -> bool:
        reference = self.reference
        return reference is not None and reference.shape == destination.shape and torch.equal(reference, destination)

    def _tokens(
        self, destination: Tensor, tokens: Bool[Tensor, "example position"] | None
    ) -> Bool[Tensor, "donor position"] | None:
        """Where the reference has tokens; None is everywhere."""
        if self.reference is None:
            return None
        if self.reference_mask is not None:
            return token_mask(self.reference_mask, self.reference)
        return tokens if self._is(destination) or self.kind == "patch" else None

    def values(
        self,
        model: HookedModel,
        destination: Shaped[Tensor, "example ..."],
        run: Mapping[str, Tensor],
        tokens: Bool[Tensor, "example position"] | None = None,
    ) -> dict[str, Tensor]:
        """What is put at each hook. The reference runs once, and only the named activations are held.

        Args:
            model: The model.
            destination: Model inputs of the run that is edited.
            run: Hook name -> the destination run's activation.
            tokens: Where the destination has tokens; None is everywhere.

        Returns:
            Hook name -> a tensor of that activation's shape.
        """
        drawn = self.drawn(destination, tokens)
        held: Mapping[str, Tensor | None] = dict.fromkeys(run)
        theirs = self._tokens(destination, tokens)
        if self.kind != "zero" and self.reference is not None:
            require_padding_unseen(model, self.reference, theirs)
            mask = mask_for_run(model, theirs)
            held = activations(model, self.reference, list(run), attention_mask=mask)[1]
        return {
            name: replacement(
                self.kind, value, held[name], drawn, positional=not name.endswith("hook_pattern"), tokens=theirs
            )
            for name, value in run.items()
        }

    def __str__(self) -> str:
        over = "" if self.reference is None or self.kind == "zero" else f" over {len(self.reference)} examples"
        matched = f" matched on {', '.join(self.factors)}" if self.kind == "matched_resample" else ""
        seed = f", seed {self.seed}" if "resample" in self.kind else ""
        return f"{self.kind}{over}{matched}{seed}"
