"""What the retrieval study measures, one function a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch

from headlab.analyses.head_count import HeadCount, heads_needed
from headlab.analyses.study.retrieval.findings import error_table
from headlab.analyses.study.retrieval.records import Built, FourMax, Look, Memory, Pair, Run, Trained
from headlab.interp.alignment import align_roles
from headlab.interp.model import activations
from headlab.interp.roles import chance, score
from headlab.interp.statistics import Chance
from headlab.models.constructed import Constructed
from headlab.models.outer import Outer, linear, product
from headlab.models.retrieval.architecture import start
from headlab.models.retrieval.constructed import construct
from headlab.models.retrieval.evaluation import evaluate, outputs
from headlab.models.retrieval.family import Family, nearest_points, sum_of_maxima
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.retrieval.witness import find_witness

PAPER_CELLS = {
    (1, 8): 7.01e-2,
    (1, 128): 1.45e-1,
    (2, 128): 1e-2,
    (3, 128): 1.58e-3,
    (4, 8): 6.10e-5,
    (4, 128): 5.23e-6,
}
ROUNDING = 1e-12  # of the spread of f: what float64 adds to an error beyond exact arithmetic


def constructed_table(*, quick: bool, seed: int) -> list[Built]:
    """One head per coordinate on random targets: both kinds of f, linear, product and polynomial F0, sets of 2 to 512.

    A row is one number of coordinates, size of the sets and softmax scale.
    """
    sizes = (2, 32, 512) if quick else (2, 8, 32, 128, 512)
    coordinates = (1, 3, 6) if quick else (1, 2, 3, 4, 5, 6)
    betas = (10.0, 1000.0) if quick else (10.0, 100.0, 1000.0)
    return [_built(d, size, beta, seed=seed) for d in coordinates for size in sizes for beta in betas]


def _built(coordinates: int, size: int, beta: float, *, seed: int) -> Built:
    generator = torch.Generator().manual_seed(seed + 1000 * size + coordinates)
    sequences, used, bounds, violations = 4, 0.0, [], 0
    families = _random_families(coordinates, size, generator)
    for family in families:
        made = construct(RetrievalTask(family), beta=beta, dtype="float64")
        tokens = family.draw(sequences, generator).double()
        error = float((outputs(made.model, tokens) - family.target(tokens)).abs().max())
        bounds.append(made.notes["bound"])
        used = max(used, error / made.notes["bound"])
        violations += error > made.notes["bound"] + ROUNDING * made.notes["spread"]
    return Built(coordinates, size, beta, len(families), sequences, min(bounds), used, violations)


def _random_families(coordinates: int, size: int, generator: torch.Generator) -> list[Family]:
    """Three targets in which each S_i holds `size` random positions of a few more."""
    length = size + int(torch.randint(0, 9, (), generator=generator))
    sets = [torch.randperm(length, generator=generator)[:size].tolist() for _ in range(coordinates)]
    drawn = int(torch.randint(10**6, (), generator=generator))
    maxima = sum_of_maxima(coordinates, length, seed=drawn, vectors="gaussian")
    polynomial = Outer((1.0, -0.5), ((1,) * coordinates, (3,) * coordinates))
    return [
        Family(length, "projection", maxima.vectors, maxima.outer, tuple(map(tuple, sets))),
        nearest_points(coordinates, length, product(coordinates), seed=drawn, sets=sets),
        nearest_points(coordinates, length, polynomial, seed=drawn, sets=sets),
        nearest_points(coordinates, length, linear([1.0] * coordinates), seed=drawn, sets=sets),
    ]


def four_maxima(lengths: Sequence[int], betas: Sequence[float], *, seed: int) -> list[FourMax]:
    """The construction for the synthetic target over the softmax scale: its error, its bound, what its heads use."""
    rows = []
    for length in lengths:
        task = RetrievalTask(sum_of_maxima(4, length))
        count = 256 if length > 64 else 1024
        roles = task.roles(seed=seed, count=count)
        for beta in betas:
            made = construct(task, beta=beta, dtype="float64")
            found = evaluate(made.model, task, seed=seed, count=count, bound=made.notes["bound"])
            used = score(made.model, roles)
            held = _attention(made, task, seed=seed, count=64)
            rows.append(
                FourMax(
                    length,
                    beta,
                    found.nmse,
                    found.max_error,
                    made.notes["bound"],
                    float(used.usage.diagonal().min()),
                    held,
                )
            )
    return rows


def _attention(made: Constructed, task: RetrievalTask, *, seed: int, count: int) -> float:
    """The mean attention of head i at the minimum of coordinate i."""
    tokens = task.draw(count, seed).double()
    pattern = "blocks.0.attn.hook_pattern"
    _, kept = activations(made.model, tokens, [pattern])
    at_cls = kept[pattern][:, :, task.cls]  # [example, head, key]
    places = task.family.retrieved(tokens)[..., None]
    return float(at_cls.gather(2, places).mean())


def memory_table(lengths: Sequence[int], *, seed: int) -> list[Memory]:
    """One head that carries the whole sequence, for the synthetic target, float64."""
    rows = []
    for length in lengths:
        task = RetrievalTask(sum_of_maxima(4, length))
        made = construct(task, "memorise", dtype="float64")
        count = 64 if length > 64 else 512
        found = evaluate(made.model, task, seed=seed, count=count)
        rows.append(Memory(length, found.max_error, made.notes["parameters"], made.notes["depth"], count))
    return rows


def trained_pair(made: Trained, *, seed: int) -> Pair:
    """The witness of a job's best model."""
    model, job = made.best.load().model, made.job
    found = find_witness(model, job.task(), seed=seed, steps=300 if job.length > 64 else 400)
    return _pair(job.kind, job.coordinates, job.length, job.heads, made.best.nmse, found)


def constructed_pair(heads: int, length: int = 8, *, seed: int) -> Pair:
    """The witness of the construction for four maxima, of which it has `heads` heads, at a mild softmax scale.

    At 10 its gradients still reach every token.
    """
    task = RetrievalTask(sum_of_maxima(4, length))
    model = construct(task, beta=10.0, heads=heads, dtype="float64").model
    nmse = evaluate(model, task, seed=seed).nmse
    return _pair("constructed", 4, length, heads, nmse, find_witness(model, task, seed=seed))


def _pair(kind: str, coordinates: int, length: int, heads: int, nmse: float, found) -> Pair:
    apart, told = (abs(two[0] - two[1]) / found.sigma for two in (found.targets, found.outputs))
    return Pair(kind, coordinates, length, heads, nmse, found.distance, apart, told, found.forced)


def look(made: Trained, run: Run, *, count: int, seed: int) -> Look:
    """Who retrieves which coordinate in one model: roles by what heads move, alignment by where they attend."""
    model = run.load().model
    roles = made.job.task().roles(seed=seed, count=count)
    return Look(made.job, run.seed, run.nmse, score(model, roles), align_roles(model, roles))


def untrained_scores(made: Trained, *, models: int, count: int, seed: int) -> Chance:
    """The specialisation of untrained models of a job's architecture."""
    design = made.job.architecture()
    return chance(lambda k: start(design, seed=k), made.job.task().roles(seed=seed, count=count), seeds=models)


def readings(trained: Mapping[str, Trained]) -> dict[tuple[str, int], HeadCount]:
    """The number of coordinates read off each table that has more than one head count."""
    tables = {(made.job.kind, made.job.coordinates) for made in trained.values() if made.job.kind in ("linear", "mlp")}
    found = {}
    for kind, coordinates in sorted(tables):
        table = error_table(trained, kind, coordinates)
        if len(set(table["heads"])) > 2:
            found[kind, coordinates] = heads_needed(table, complete=False)
    return found


def controls(trained: Mapping[str, Trained], *, seed: int = 0) -> dict[str, tuple[int | None, HeadCount]]:
    """Tables in which the answer is known: the level after a fall alone, a slope that falls nowhere, which is made up,
    and the paper's own cells.
    """
    table = error_table(trained, "linear", 4)
    after = table[table["heads"] >= 4]
    after = after.assign(heads=after["heads"] - 3)
    random = np.random.default_rng(seed)
    cells = [(h, t, 10 ** (-0.4 - 0.35 * (h - 1) + random.normal(0, 0.1))) for h in range(1, 7) for t in (8, 32, 128)]
    paper = [(h, t, error) for (h, t), error in PAPER_CELLS.items()]
    slope, published = (pd.DataFrame(rows, columns=["heads", "length", "error"]) for rows in (cells, paper))
    return {
        "level after the fall": (1, heads_needed(after)),
        "made-up slope": (None, heads_needed(slope)),
        "the paper's cells": (4, heads_needed(published, complete=False)),
    }
