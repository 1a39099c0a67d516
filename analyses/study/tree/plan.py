"""What the tree study trains and constructs, part by part: in full, and quickly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headlab.analyses.options.tree import StudyOptions
from headlab.analyses.study.frame import Part, seeds_of

MODULE = "headlab.analyses.study.tree.measure"
DEPTHS = (3, 5, 7, 10)
LENGTHS = (*range(1, 21), 30, 50)
VERSIONS: dict[str, int] = {}
Job = dict[str, Any]


def plan(options: StudyOptions) -> list[Part]:
    """The parts, in order. Raises RequestError for fewer than two seeds."""
    seeds, quick, first = seeds_of(options, 2), options.quick, options.common.seed
    looks = {"count": 64, "pairs": 32} if quick else {"count": 256, "pairs": 64}
    chosen = {name: job for name, job in jobs().items() if job["quick"] or not quick}
    parts = [
        _part("constructed", "constructed", {"cases": constructed_cases(quick)}, first),
        *(_part(name, "training", _settings(job, seeds, looks, quick), first) for name, job in chosen.items()),
        _part("untrained", "untrained", {"depth": 5, "models": 16 if quick else 64}, first),
        _part("guesses", "guesses", {"depths": DEPTHS, "trees": 2000}, first),
        _part("generation", "generation", {"depth": 200, "trees": 1}, first),
    ]
    return parts


def _part(name: str, measure: str, config: Mapping[str, Any], seed: int) -> Part:
    return Part(name, f"{MODULE}:{measure}", {**config, "seed": seed}, VERSIONS.get(name, 1))


def _settings(job: Job, seeds: int, looks: Mapping[str, int], quick: bool) -> Job:
    """A job with its number of seeds and what is looked at in its models."""
    own = {key: value for key, value in job.items() if key not in ("quick", "always")}
    own["seeds"] = job["seeds"] if job["always"] else min(job["seeds"], seeds)
    if job["look"]:
        own["look"] = looks
    if quick and job["lengths"]:
        own |= {"lengths": (1, 2, 3, 5, 8, 10), "trees": 100}
    return own


def constructed_cases(quick: bool) -> list[dict[str, Any]]:
    """Random and perfect binary trees, and labels that no weight was fitted to.

    One-hot labels to depth 10; 512 or 1024 near-orthogonal labels in 64 dimensions for deep and binary trees.
    """
    cases = [
        {"direction": direction, "depth": depth, "paths": 200 if quick else 500}
        for depth in DEPTHS
        for direction in ("backward", "forward")
    ]
    wide = {"direction": "forward", "label_width": 66}
    for depth, paths in ((50, 100), (200, 50)):
        cases.append({**wide, "depth": depth, "labels": 512, "paths": paths // 10 if quick else paths})
    for depth in range(3, 10):
        cases.append({**wide, "depth": depth, "shape": "binary", "labels": 1024, "paths": 20 if quick else 100})
    cases.append({**wide, "depth": 5, "labels": 512, "split": "labels", "paths": 100 if quick else 500})
    return cases


def jobs() -> dict[str, Job]:
    """name -> job: the trainings, the cheap and central ones first.

    Each job holds `kind` and what `measure.make_plan` makes the training of; `seeds`; `look`: whether heads are looked
    at; `follow`: trees on which roles are followed while training; `lengths`: other depths to test at; `quick`: whether
    a quick study has it; `always`: whether it has its number of seeds whatever the study's is.
    """
    all_jobs = {
        **{f"forward-h2-d{depth}": _direct("forward", 2, depth) for depth in DEPTHS},
        **{f"backward-h1-d{depth}": _direct("backward", 1, depth) for depth in DEPTHS},
        **{f"forward-h1-d{depth}": _direct("forward", 1, depth) for depth in DEPTHS},
        **{f"plain-descent-d{depth}": _plain_descent(depth) for depth in (3, 5, 10)},
        "control-one-hot-wide": _job("control", "frozen labels", depth=5, d_head=67, steps=2400, seeds=16, always=True)
        | {"look": True},
        **{f"forward-h{heads}-d5": _direct("forward", heads, 5) for heads in (4, 6, 8)},
        "binary-curriculum-d9": _curriculum((3, 5, 7, 9), (5000, 2500, 1500, 800), (128, 64, 32, 8), 1024),
        "unseen-labels": _job(
            "unseen-labels", "frozen labels", depth=5, labels=512, split="labels", label_width=34, d_head=35, seeds=3
        )
        | {"unseen": "labels"},
        "binary-curriculum-d7": _curriculum((3, 5, 7), (3000, 2000, 2000), (64, 32, 16), 256),
        **{
            f"forward-h{heads}-d{depth}": _direct("forward", heads, depth)
            for heads, depth in ((4, 3), (6, 7), (8, 10), (4, 10))
        },
        **{
            f"without-chain-l{layers}-d{depth}": _without_chain(layers, depth)
            for depth in DEPTHS
            for layers in ((1, 3, 6) if depth == 10 else range(1, 7))
        },
        **{
            f"plain-tokens-l{layers}-d3": _job(
                "plain-tokens", "direct", depth=3, heads=4, layers=layers, form="plain", seeds=2
            )
            | {"recipe": "without chain"}
            for layers in (1, 2)
        },
        "binary-direct-d5": _binary_direct(5, 256, steps=4000, batch=32, seeds=3),
        "binary-direct-d7": _binary_direct(7, 256, steps=4300, batch=16, seeds=3),
        "binary-direct-d9": _binary_direct(9, 1024, steps=5900, batch=8, seeds=1),
    }
    all_jobs["forward-h2-d5"] |= {"lengths": LENGTHS, "trees": 400, "unseen": "shapes", "shown": True}
    all_jobs["forward-h2-d3"] |= {"shown": True}
    for name in ("forward-h1-d5", "backward-h1-d5"):
        all_jobs[name] |= {"lengths": DEPTHS, "trees": 400}
    return all_jobs


def _job(kind: str, method: str, *, seeds: int, always: bool = False, **settings: Any) -> Job:
    common: Job = {"look": None, "follow": 0, "lengths": (), "trees": 400, "unseen": None, "shown": False}
    common |= {"quick": False, "always": always, "heads": 2, "layers": 1, "direction": "forward", "depth": None}
    return common | {"kind": kind, "method": method, "seeds": seeds} | settings


def _direct(direction: str, heads: int, depth: int) -> Job:
    follow = 64 if heads <= 2 or depth == 5 else 0
    return _job(direction, "direct", direction=direction, heads=heads, depth=depth, seeds=5 if follow else 3) | {
        "follow": follow,
        "look": direction == "forward" and heads > 1,
        "quick": depth in (3, 5) and (heads == 1 or (direction, heads) == ("forward", 2)),
    }


def _plain_descent(depth: int) -> Job:
    """The paper's training; 32 labels, since every head holds a matrix of the whole residual width."""
    job = _job("plain-descent", "plain descent", depth=depth, labels=32, seeds=3)
    return job | {"follow": 64, "look": True, "quick": depth == 3}


def _without_chain(layers: int, depth: int) -> Job:
    job = _job("without-chain", "direct", depth=depth, heads=4, layers=layers, chain_of_thought=False, seeds=1)
    return job | {"recipe": "without chain"}


def _curriculum(depths: tuple[int, ...], steps: tuple[int, ...], batches: tuple[int, ...], labels: int) -> Job:
    """Perfect binary trees of growing depth; they have one shape, so labelled trees are split."""
    job = _job("binary-curriculum", "curriculum", depth=depths[-1], labels=labels, shape="binary", seeds=3)
    job |= {"depths": depths, "stage_steps": steps, "batches": batches}
    return job | ({"unseen": "labellings"} if depths[-1] == 7 else {"before_last": True, "other_depths": (5, 7)})


def _binary_direct(depth: int, labels: int, *, steps: int, batch: int, seeds: int) -> Job:
    """As many positions as the curriculum up to that depth has seen, all of them at that depth."""
    job = _job("binary-direct", "direct", depth=depth, labels=labels, shape="binary", seeds=seeds)
    return job | {"steps": steps, "batch": batch}
