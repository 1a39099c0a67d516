"""Query-target alignment over training: when does which head find which target?

The instrument is interp.alignment, the same for every task: roles say where each target stands. Here it is read at
every recorded step of a checkpoint, and over whole ensembles of sparse parity models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from headlab.interp.ablation import Head
from headlab.interp.alignment import Alignment, align, align_roles
from headlab.interp.errors import RequestError
from headlab.interp.render import Axis, Curve, CurvePanel, Figure, curve_chart
from headlab.interp.roles import Role
from headlab.models.checkpoints import load_history
from headlab.models.xor.ensemble import Ensemble

LETTERS = "ABCDEFGHIJKL"


@dataclass(frozen=True)
class AlignmentCurve:
    """Alignment at each recorded step of one training.

    alignment, rank: in [0, 1], as interp.alignment has them. scores: per head, the attention on the target that the
    head has at the LAST step, chance-corrected; 0 for a head that has none there.
    """

    steps: tuple[int, ...]
    alignment: Float[np.ndarray, " step"]
    rank: Float[np.ndarray, " step"]
    heads: tuple[Head, ...]
    targets: tuple[str | None, ...]
    scores: Float[np.ndarray, "step head"]

    def to_frame(self) -> pd.DataFrame:
        """One row per step and head: step, layer, head, target, score, alignment, rank."""
        return pd.DataFrame(
            [
                {
                    "step": step,
                    "layer": layer,
                    "head": head,
                    "target": self.targets[index],
                    "score": float(self.scores[row, index]),
                    "alignment": float(self.alignment[row]),
                    "rank": float(self.rank[row]),
                }
                for row, step in enumerate(self.steps)
                for index, (layer, head) in enumerate(self.heads)
            ]
        )

    def render(self) -> Figure:
        """Score of every head over the steps; a head has the letter of its target."""
        names = sorted({target for target in self.targets if target is not None})
        curves = []
        for index, target in enumerate(self.targets):
            key = LETTERS[names.index(target)] if target is not None and names.index(target) < len(LETTERS) else "ink"
            curves.append(Curve(self.steps, self.scores[:, index], label=target or "no target", heads=key))
        return curve_chart(
            [CurvePanel("alignment of each head with its target", curves, axis=Axis("score", domain=(0.0, 1.0)))],
            axis=Axis("step", scale="log1p"),
            title="Query-target alignment over training",
            description=f"Alignment is {self.alignment[0]:.3f} at step {self.steps[0]} and {self.alignment[-1]:.3f} at "
            f"step {self.steps[-1]}.",
            caption="Chance-corrected attention of each head to the target that it has at the last step.",
        )


def over_training(directory: str | Path, roles: Sequence[Role], *, device: str = "cpu") -> AlignmentCurve:
    """The alignment of a checkpoint's heads at every step whose weights it keeps, and of its final weights' targets.

    Raises ValueError where the checkpoint keeps no earlier weights; else as `load_history` and `align_roles`.
    """
    steps, found = [], []
    for step, model in load_history(directory, device=device):
        steps.append(step)
        found.append(align_roles(model, roles, shuffles=0))
    return curve(steps, found)


def curve(steps: Sequence[int], found: Sequence[Alignment]) -> AlignmentCurve:
    """The curve through alignments of the same heads and targets, one per step, in order."""
    if not found or len(steps) != len(found):
        raise RequestError(f"a curve takes one alignment per step, not {len(found)} for {len(steps)} steps")
    last = found[-1]
    columns = [None if target is None else last.targets.index(target) for target in last.matched]
    scores = np.array(
        [
            [0.0 if column is None else each.matrix[head, column] for head, column in enumerate(columns)]
            for each in found
        ]
    )
    return AlignmentCurve(
        steps=tuple(steps),
        alignment=np.array([each.alignment for each in found]),
        rank=np.array([each.rank for each in found]),
        heads=last.heads,
        targets=last.matched,
        scores=scores,
    )


def align_ensemble(models: Ensemble) -> list[Alignment]:
    """One alignment per seed of a sparse parity ensemble, from the closed form: as align_roles reads its transformer.

    Chance levels are left out; scores are those before the attention map.
    """
    task = models.task
    weights = models.attention()
    scores = models.queries @ models.positions.mT
    targets = torch.zeros(1, len(task.targets), task.bits, dtype=torch.bool)
    targets[0, torch.arange(len(task.targets)), list(task.targets)] = True
    return [
        align(weights[row : row + 1], targets, scores=scores[row : row + 1], names=task.role_names, shuffles=0)
        for row in range(len(models.seeds))
    ]
