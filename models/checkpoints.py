"""Checkpoints: a model with all that says how it came about, as safetensors and JSON.

A checkpoint is a folder (see models.bundle): `checkpoint.json`, the weights, optionally the weights at earlier
steps and the state from which training goes on. Many runs lie in one folder with a `runs.json` that names the best.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headlab.interp.errors import RequestError, UnknownName
from headlab.models import bundle
from headlab.models.hooked import Architecture, HookedTransformer, build
from headlab.models.manifest import KIND, RUNS, load_runs, read_checkpoint, resolve

__all__ = [
    "RUNS",
    "Checkpoint",
    "TrainingState",
    "history_steps",
    "load",
    "load_history",
    "load_runs",
    "load_training",
    "load_weights",
    "resolve",
    "save",
    "save_runs",
    "save_training",
    "versions",
    "weights_of",
]

TRAINING_KIND = "training state"
_DERIVED = ("mask", "IGNORE")  # buffers that the configuration alone determines


@dataclass(frozen=True)
class Checkpoint:
    """A model and where it comes from.

    task, task_options: the task's name and what its `from_options` takes.
    variant: the construction's name, None for learned weights. recipe: of learned weights, None for constructed ones.
    metrics: what was measured when it was saved. history: one dict per recorded step, each with a `step`.
    directory: the folder that it was loaded from (of many runs: the best run's own), None for one not loaded.
    """

    model: HookedTransformer
    architecture: Architecture
    task: str
    task_options: Mapping[str, Any] = field(default_factory=dict)
    variant: str | None = None
    recipe: Mapping[str, Any] | None = None
    seed: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    directory: Path | None = None


@dataclass(frozen=True)
class TrainingState:
    """All from which training goes on to the same result, bit for bit.

    step: updates done. tensors: parameters, optimiser and generator states, best weights. data: JSON-ready rest.
    """

    step: int
    tensors: Mapping[str, Tensor]
    data: Mapping[str, Any] = field(default_factory=dict)


def versions() -> dict[str, str]:
    """The versions that a result depends on: headlab, torch, transformer-lens, python."""
    found = {name: version(name) for name in ("headlab", "torch", "transformer-lens")}
    return {**found, "python": platform.python_version()}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's weights by name, detached: its state_dict without what the configuration alone determines."""
    return {name: value for name, value in model.state_dict().items() if name.rsplit(".", 1)[-1] not in _DERIVED}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], source: str = "the weights") -> None:
    """Copy `weights` into the model, all or none. Raises ValueError naming the first tensor that does not fit."""
    own = weights_of(model)
    for name in [*own, *weights]:
        if name not in weights:
            raise RequestError(f"{source} do not fit the architecture: '{name}' is missing")
        if name not in own:
            raise RequestError(f"{source} do not fit the architecture: it has no '{name}'")
        if own[name].shape != weights[name].shape:
            found, wanted = tuple(weights[name].shape), tuple(own[name].shape)
            raise RequestError(f"{source} do not fit the architecture: '{name}' has shape {found}, not {wanted}")
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)


def save(
    directory: str | Path,
    checkpoint: Checkpoint,
    *,
    training: TrainingState | None = None,
    weights: Mapping[int, Mapping[str, Tensor]] | None = None,
) -> Path:
    """Write the checkpoint, whole or not at all, and return its folder; an older checkpoint there is replaced.

    training: the state from which training goes on. weights: step -> the model's weights at that step (`weights_of`).
    Raises ValueError where the folder cannot be written or holds something else, or a number is not finite.
    """
    data = {
        "task": checkpoint.task,
        "task_options": checkpoint.task_options,
        "variant": checkpoint.variant,
        "recipe": checkpoint.recipe,
        "seed": checkpoint.seed,
        "metrics": checkpoint.metrics,
        "versions": checkpoint.versions or versions(),
        "architecture": checkpoint.architecture.to_json(),
        "dtype": str(checkpoint.model.cfg.dtype).removeprefix("torch."),
        "history": checkpoint.history,
    }
    tensors: dict[str, Mapping[str, Tensor]] = {"weights": weights_of(checkpoint.model)}
    for step, named in sorted((weights or {}).items()):
        tensors[f"step-{step:08d}"] = named
    if training is not None:
        data["training"] = {"step": training.step, "data": training.data}
        tensors["training"] = training.tensors
    return bundle.write(directory, KIND, data, tensors)


def load(directory: str | Path, *, device: str = "cpu", dtype: torch.dtype | str | None = None) -> Checkpoint:
    """The checkpoint in `directory`, in evaluation mode; of a folder of many runs, the best run's.

    dtype None keeps the dtype that was saved. Raises FileNotFoundError where the folder or one of its files is missing
    and ValueError where it is foreign, damaged, of another format, or its weights do not fit its architecture.
    """
    directory = resolve(directory)
    manifest = read_checkpoint(directory)
    model = _model(directory, manifest, "weights", device, dtype)
    return Checkpoint(
        model=model,
        architecture=Architecture.from_json(manifest["architecture"]),
        task=manifest["task"],
        task_options=manifest["task_options"],
        variant=manifest["variant"],
        recipe=manifest["recipe"],
        seed=manifest["seed"],
        metrics=manifest["metrics"],
        versions=manifest.get("versions", {}),
        history=manifest["history"],
        directory=directory,
    )


def load_history(
    directory: str | Path,
    *,
    steps: Sequence[int] | None = None,
    device: str = "cpu",
    dtype: torch.dtype | str | None = None,
) -> Iterator[tuple[int, HookedTransformer]]:
    """(step, model) at the recorded steps, in order, one model in memory at a time; each is a model of its own.

    Raises ValueError where the checkpoint keeps no earlier weights, KeyError for a step that it does not keep; else as
    `load`.
    """
    directory = resolve(directory)
    manifest = read_checkpoint(directory)
    recorded = history_steps(directory)
    if not recorded:
        raise RequestError(f"'{directory}' keeps no weights of earlier steps")
    for step in recorded if steps is None else steps:
        if step not in recorded:
            raise UnknownName(
                f"'{directory}' keeps no weights of step {step}; it keeps {', '.join(map(str, recorded))}"
            )
        yield step, _model(directory, manifest, f"step-{step:08d}", device, dtype)


def history_steps(directory: str | Path) -> tuple[int, ...]:
    """The steps whose weights the checkpoint keeps, ascending; empty where it keeps none. Errors as for `load`."""
    files = bundle.read(resolve(directory), KIND)["files"]
    return tuple(sorted(int(part[5:]) for part in files if part.startswith("step-") and part[5:].isdecimal()))


def save_training(directory: str | Path, state: TrainingState) -> Path:
    """Write a training state by itself (many seeds that train together have one), whole or not at all."""
    return bundle.write(directory, TRAINING_KIND, {"step": state.step, "data": state.data}, {"training": state.tensors})


def load_training(directory: str | Path) -> TrainingState:
    """The state that `save` kept with a checkpoint, or that `save_training` wrote by itself.

    Raises ValueError where the checkpoint was saved without one; else as `load`.
    """
    directory = Path(directory)
    if (directory / RUNS).is_file():
        directory = resolve(directory)
    path = directory / bundle.MANIFEST
    alone = path.is_file() and f'"kind": "{TRAINING_KIND}"'.encode() in path.read_bytes()
    manifest = bundle.read(directory, TRAINING_KIND if alone else KIND)
    state = manifest if alone else manifest.get("training")
    if state is None:
        raise RequestError(f"'{directory}' was saved without a training state: it cannot be resumed")
    step, data = (state.get("step"), state.get("data")) if isinstance(state, dict) else (None, None)
    if not isinstance(step, int) or not isinstance(data, dict):
        raise RequestError(f"'{directory}' is damaged: its training state has no step and data")
    return TrainingState(step, bundle.read_tensors(directory, manifest, "training"), data)


def save_runs(directory: str | Path, runs: Sequence[Mapping[str, Any]], best: str, **more: Any) -> Path:
    """Write `runs.json`, which makes `directory` a folder of many runs, and return its path.

    runs: one dict per run, each with `dir`, the run's folder under `directory`; best: the best run's `dir`.
    Raises ValueError where `best` is none of them.
    """
    if best not in [run["dir"] for run in runs]:
        raise RequestError(f"the best run '{best}' is not one of the runs")
    data = {"format": bundle.FORMAT, "kind": "runs", "runs": runs, "best": best, **more}
    return bundle.write_json(Path(directory) / RUNS, data)


def _model(
    directory: Path, manifest: Mapping[str, Any], part: str, device: str, dtype: torch.dtype | str | None
) -> HookedTransformer:
    """The model with the weights of one part of the bundle, which must be finite and of the dtype that was saved."""
    weights, source = bundle.read_tensors(directory, manifest, part), f"the weights in '{directory}'"
    for name, value in weights.items():
        if not bool(torch.isfinite(value).all()):
            raise RequestError(f"{source} are not finite in '{name}': the training that made them diverged")
    model = _build(directory, manifest, device, manifest["dtype"])
    for name, own in weights_of(model).items():
        if name in weights and weights[name].dtype != own.dtype:
            raise RequestError(f"{source} are {manifest['dtype']}, but '{name}' is {weights[name].dtype}")
    load_weights(model, weights, source)
    if dtype is None or str(dtype).removeprefix("torch.") == manifest["dtype"]:
        return model
    converted = _build(directory, manifest, device, dtype)
    load_weights(converted, weights_of(model), source)
    return converted


def _build(directory: Path, manifest: Mapping[str, Any], device: str, dtype: torch.dtype | str) -> HookedTransformer:
    try:
        architecture = Architecture.from_json(manifest["architecture"])
        return build(architecture, device=device, dtype=dtype)
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise RequestError(f"'{directory}' names an architecture that cannot be built: {reason}") from error
