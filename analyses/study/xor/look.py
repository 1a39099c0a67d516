"""What the instruments say of one trained sparse XOR model, its heads in the order of their targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from headlab.interp.ablation import ablate_heads
from headlab.interp.alignment import Alignment, align_roles
from headlab.interp.comparison import Comparison, compare
from headlab.interp.interventions import Intervention
from headlab.interp.model import HookedModel, activations, untouched
from headlab.interp.patching import patch_contrast
from headlab.interp.paths import patch_edges
from headlab.interp.recovery import Recovery, recovery
from headlab.interp.roles import Specialisation, score
from headlab.interp.sites import hook_name
from headlab.models.hooked import HookedTransformer
from headlab.models.task import Contrast
from headlab.models.xor.architecture import from_model
from headlab.models.xor.constructed import limit
from headlab.models.xor.task import XorTask

ABLATIONS = ("zero", "mean", "resample")
EXAMPLES = 256


@dataclass(frozen=True)
class Look:
    """One two-head model under every instrument; axis `head` follows the targets: the head of target 0 first.

    order: the model's own head indices. attention: at the CLS. patched: contrast -> what each head's output at the CLS
    restores of the gap, in [0, 1] where there is one, 0 for the background flip, which has none. lost: ablation kind ->
    squared error added without the head. recovery: exact edge patching on the LIMIT solution of the same positions.
    """

    order: tuple[int, ...]
    attention: Float[np.ndarray, "head position"]
    patched: dict[str, Float[np.ndarray, " head"]]
    lost: dict[str, Float[np.ndarray, " head"]]
    score: Specialisation
    alignment: Alignment
    comparison: Comparison
    recovery: Recovery


def look(model: HookedTransformer, task: XorTask, *, seed: int = 0) -> Look:
    """Score, alignment, patches, ablations and the comparison with the limit solution on the model's own positions."""
    examples = task.examples(seed=seed, count=EXAMPLES)
    alignment = align_roles(model, task.roles(seed=seed), seed=seed)
    ranks = {name: index for index, name in enumerate(task.role_names)}
    matched = [len(ranks) if name is None else ranks[name] for name in alignment.matched]
    order = tuple(int(head) for head in np.argsort(matched, kind="stable"))
    pattern = hook_name("pattern", 0)
    with untouched(model):
        _, kept = activations(model, examples.inputs[:1], [pattern])
    name, metric = next(iter(task.metrics(examples).items()))
    lost = {}
    for kind in ABLATIONS:
        found = ablate_heads(
            model,
            examples.inputs,
            metric,
            kind=kind,
            reference=None if kind == "zero" else examples.inputs,
            seed=seed,
            name=name,
        )
        lost[kind] = found.mean[list(order)].double().numpy()
    contrasts = task.contrasts(seed=seed)
    made = limit(task, positions=from_model(model, task).positions[0])
    queries = torch.zeros(len(examples), task.bits + 1, dtype=torch.bool)
    queries[:, task.cls] = True
    return Look(
        order=order,
        attention=kept[pattern][0, list(order), task.cls, : task.bits].abs().double().numpy(),
        patched={name: _restored(model, contrast)[list(order)] for name, contrast in contrasts.items()},
        lost=lost,
        score=score(model, task.roles(seed=seed)),
        alignment=alignment,
        comparison=compare(model, made.model, examples.inputs, queries, regression=True),
        recovery=recovery(
            patch_edges(
                made.model,
                contrasts["target-0"].source,
                contrasts["target-0"].metrics["agreement"],
                Intervention("resample", contrasts["target-0"].source, seed),
                read=(task.cls,),
            ),
            made.circuit("resample"),
            seed=seed,
        ),
    )


def _restored(model: HookedModel, contrast: Contrast) -> Float[np.ndarray, " head"]:
    found = patch_contrast(model, contrast, component="z", by=("layer", "head"))
    share = found.normalised()
    return np.asarray(found.effect() if share is None else share, dtype=float).reshape(-1)
