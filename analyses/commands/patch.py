"""`headlab patch`: put activations of a source run into a destination run, cell by cell."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.ablate import pick
from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_table
from headlab.analyses.options.instruments import Patch
from headlab.analyses.systems import system
from headlab.interp.errors import RequestError
from headlab.interp.patching import patch_contrast


def run(options: Patch) -> dict[str, Any]:
    """The JSON of `headlab patch`. axes: name -> labels of each axis; effects are means over the pairs of runs.

    Raises KeyError for a contrast, site or metric that does not exist, and ValueError for fewer than one pair.
    """
    if options.count < 1:
        raise RequestError(f"{options.count} pairs of runs were asked for: at least 1 is needed")
    checkpoint = load_with_heads(options.dir, options.common.device)
    task = system(checkpoint.task).task(checkpoint)
    contrasts = task.contrasts(seed=options.common.seed, count=options.count)
    name, contrast = pick(contrasts, options.contrast, "contrast")
    metric, _ = pick(contrast.metrics, options.metric, "metric")
    result = patch_contrast(
        checkpoint.model,
        contrast.to(options.common.device),
        component=options.site,
        metric=metric,
        direction=options.direction,
        progress=not options.common.json,
    )
    effect, normalised = result.effect(), result.normalised()
    low, high = result.interval()
    runs = [f"as the task gives it ({len(contrast.source)} examples)", f"the same with another {contrast.factor}"]
    source, destination = runs if options.direction == "denoising" else runs[::-1]
    return {
        "dir": str(checkpoint.directory),
        "contrast": name,
        "contrasts": list(contrasts),
        "source": source,
        "destination": destination,
        "direction": options.direction,
        "site": options.site,
        "metric": metric,
        "axes": {axis: _names(axis, result.labels[axis], contrast.positions) for axis in result.axes},
        "shape": list(effect.shape),
        "effect": effect.tolist(),
        "low": None if len(contrast.source) == 1 else low.tolist(),
        "high": None if len(contrast.source) == 1 else high.tolist(),
        "normalised": None if normalised is None else normalised.tolist(),
        "why_not_normalised": result.why_not(),
        "gap": result.gap(),
        "pairs": len(contrast.source),
        "engine": result.engine,
        "notes": list(result.notes),
        "device": result.device,
    }


def _names(axis: str, labels: tuple[int, ...], positions: tuple[str, ...]) -> list[Any]:
    if axis in ("position", "destination", "source") and max(labels, default=0) < len(positions):
        return [positions[label] for label in labels]
    return list(labels)


def show(result: dict[str, Any]) -> None:
    """Print the twelve cells of the largest effects."""
    axes = list(result["axes"])
    cells: list[tuple[list[Any], float, float | None, float | None, float | None]] = []

    def walk(effect: Any, low: Any, high: Any, share: Any, path: list[Any]) -> None:
        if len(path) == len(axes):
            cells.append((path, effect, low, high, share))
            return
        for i, label in enumerate(result["axes"][axes[len(path)]]):
            walk(effect[i], low and low[i], high and high[i], None if share is None else share[i], [*path, label])

    walk(result["effect"], result["low"], result["high"], result["normalised"], [])
    cells.sort(key=lambda cell: -abs(cell[1]))
    title = (
        f"{result['site']} patched, contrast {result['contrast']}, {result['direction']}: effect on {result['metric']}"
    )
    rows = [
        [*path, effect, None if low is None else f"{low:.3g} to {high:.3g}", share]
        for path, effect, low, high, share in cells[:12]
    ]
    print_table([*axes, "effect", "95 % interval", "share of the gap"], rows, title=title)
    print(f"{len(cells)} cells, {result['pairs']} pairs, engine {result['engine']}; source: {result['source']}")
    for note in (*result["notes"], result["why_not_normalised"]):
        if note:
            print(note)
