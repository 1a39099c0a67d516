"""Beside the ladder: models trained on from the construction, and trained from scratch. Their truth is measured."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from headlab.analyses.calibrate.rung import Rung, interventions
from headlab.analyses.calibrate.tasks import ALL, SETTINGS, Esp, Retrieval, Tree, Xor
from headlab.analyses.calibrate.truth import GAP, certify
from headlab.models.esp.training import train as train_esp
from headlab.models.hooked import Architecture, HookedTransformer
from headlab.models.retrieval.architecture import architecture as retrieval_architecture
from headlab.models.retrieval.learner import draw_data
from headlab.models.retrieval.recipes import recipe as retrieval_recipe
from headlab.models.retrieval.recipes import train as train_retrieval
from headlab.models.training import fit
from headlab.models.tree.recipes import RECIPE, frozen_labels
from headlab.models.xor.architecture import architecture as xor_architecture
from headlab.models.xor.architecture import to_model
from headlab.models.xor.method import Method, run

TUNED, TRAINED = "tuned on", "trained"
STEPS, RATE = 100, 0.01
COUNTS = 0.05  # of the largest effect: what is smaller is not asked to open a gap


def tuned(task: str) -> Rung:
    """The construction after 100 more steps of Adam on the task's own loss; its truth is enumerated, or void."""
    setting = SETTINGS[task]()
    rung = setting.rung(TUNED)
    model: Any = copy.deepcopy(rung.model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("b_U" not in name)
    with torch.no_grad():
        before = model(rung.inputs)[:, list(rung.read)]
    wanted = before.argmax(-1).flatten() if before.shape[-1] > 1 else before
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        _loss(model(rung.inputs)[:, list(rung.read)], wanted).backward()
        optimiser.step()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return replace(rung, model=model, basis="enumerated")


def _loss(output: Tensor, wanted: Tensor) -> Tensor:
    if output.shape[-1] > 1:
        return torch.nn.functional.cross_entropy(output.flatten(0, -2), wanted)
    return (output - wanted).square().mean()


def trained(task: str, seed: int) -> Rung:
    """A model trained from scratch. Under each kind the true edges are those above the largest relative gap in their
    effects, where it is 2 or more; else the kind is open and `certify` says so."""
    model, design = _learned(task)(seed)
    setting = SETTINGS[task]()
    plain = setting.rung(TRAINED)
    torch.nn.Module.to(model, torch.float64)  # past HookedTransformer.to, which prints
    model.cfg.dtype = torch.float64
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    found = interventions(plain.inputs, ALL)
    rung = replace(plain, model=model, architecture=design, interventions=found, truth={k: frozenset() for k in found})
    return replace(rung, truth={kind: _above_the_gap(rung, kind) for kind in found}, basis="measured")


def _above_the_gap(rung: Rung, kind: str) -> frozenset[Any]:
    certificate = certify(rung, kind)
    order = certificate.largest.argsort(descending=True)
    sorted_ = certificate.largest[order]
    ratio = sorted_[:-1] / sorted_[1:].clamp(min=1e-12)
    ratio[sorted_[:-1] <= COUNTS * sorted_[0]] = 0.0
    cut = int(ratio.argmax())
    if float(ratio[cut]) < GAP:
        return frozenset()
    return frozenset(certificate.edges[i] for i in order[: cut + 1].tolist())


def _learned(task: str) -> Any:
    return {"esp": _esp, "tree": _tree, "xor": _xor, "retrieval": _retrieval}[task]


@cache
def _esp(seed: int) -> tuple[HookedTransformer, Architecture]:
    many = train_esp(Esp, heads=2, method="cross-entropy", seeds=(seed, seed + 1000))
    return many.models[0].model, many.architecture


@cache
def _tree(seed: int) -> tuple[HookedTransformer, Architecture]:
    plan = frozen_labels(Tree, heads=2, d_head=16, recipe=replace(RECIPE, steps=500, lr=3e-2, record=500))
    learner = plan.learner((seed,), validation=32)
    done = fit(learner, plan.recipe)
    return learner.export(0, done.best), plan.architecture


@cache
def _xor(seed: int) -> tuple[HookedTransformer, Architecture]:
    method = Method("plain")
    models = run(Xor, method, (seed,)).final
    return to_model(models), xor_architecture(Xor, models.queries.shape[-1])


@cache
def _retrieval(seed: int) -> tuple[HookedTransformer, Architecture]:
    family = Retrieval.family
    design = retrieval_architecture(family, 3, width=4)
    data = draw_data(family, train=2000, validation=500)
    done = train_retrieval(family, design, retrieval_recipe("quick", steps=600), (seed,), data=data)
    return done.models[0], design
