"""A model whose weights were written down from a theorem, with everything that the theorem says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headlab.interp.circuits import Circuit
from headlab.interp.errors import UnknownName
from headlab.models.hooked import Architecture, HookedTransformer


@dataclass(frozen=True)
class Constructed:
    """Constructed weights and the truth about them: what instruments are calibrated against.

    model: the HookedTransformer, in evaluation mode; no random generator had a part in it.
    architecture: what `headlab.models.hooked.build` makes an equal, weightless model from; goes into checkpoints.
    variant: the construction's name on the command line, e.g. `two-head`.
    circuits: ablation kind -> the circuit that is true under that kind, e.g. `circuits["positional_mean"]`.
        A construction can be true under kinds that only its own task knows; the keys are the whole list.
    roles: (layer, head) -> the name of the task's role that the head plays; empty where no head plays one.
    options: JSON-ready keyword arguments of the construction; with the task and the variant they rebuild the model.
    errors: how many of the task's listed examples the theorem says are wrong; None where it makes no such statement.
    margin: the theorem's smallest distance between the right logit and the largest other one, over the examples that
        are right, in logits; None where no formula is known. `margin_is_exact` tells equality from a lower bound.
    notes: further figures of the proof by name (a sink's strength, an attention weight, a vertex order), JSON-ready.
    """

    model: HookedTransformer
    architecture: Architecture
    variant: str
    circuits: Mapping[str, Circuit]
    roles: Mapping[tuple[int, int], str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    errors: int | None = None
    margin: float | int | None = None
    margin_is_exact: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)

    def circuit(self, ablation: str) -> Circuit:
        """The circuit that is true under `ablation`; KeyError lists the kinds that are known."""
        if ablation not in self.circuits:
            known = ", ".join(self.circuits) or "none"
            raise UnknownName(
                f"the circuit of '{self.variant}' under '{ablation}' ablation is not known; known: {known}"
            )
        return self.circuits[ablation]
