"""The calibration of one method on the ladder: a cell per rung, kind of ablation and seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import pandas as pd
from joblib import Parallel, delayed

from headlab.analyses.calibrate.instruments import methods_for
from headlab.analyses.calibrate.ladder import NAMES, QUICK
from headlab.analyses.calibrate.ladder import rung as make_rung
from headlab.analyses.calibrate.rung import Rung, blind
from headlab.analyses.calibrate.tasks import SETTINGS
from headlab.analyses.calibrate.trained import TRAINED, TUNED, trained, tuned
from headlab.analyses.calibrate.truth import Certificate, certify
from headlab.analyses.calibrate.view import LEVELS, Answer, Item, Method, View, ask, item_name, item_of, items_of
from headlab.interp.model import untouched
from headlab.interp.paths import patch_edge_sets
from headlab.interp.recovery import Recovery, rank

APART = (TUNED, TRAINED)  # measured, not proved
PASSES_AUROC, PASSES_FAITHFULNESS = 0.95, 0.9
LIMIT = 60.0
Chosen = Callable[[str, str], Mapping[str, Method]]


@dataclass(frozen=True)
class Cell:
    """One method on one rung under one kind of ablation, with one seed.

    state: `proved`, `enumerated` or `measured`; `void` or `open` where the truth does not stand and nothing is scored.
    gap: smallest true over largest false effect, by exact enumeration. true, items: how many are true, and in all.
    auroc, low, high: with the 5 % and 95 % points of random orders; precision: at the true number; faithfulness: as a
    distance, of the items with the largest scores, as many as are true; whole: that of the true circuit itself.
    recall, precision_5: at 5 % of the largest score. contested: the share of contested items above the cut.
    seconds, forward, backward: cost. problem: why there is no score, in one sentence. last_true, first_false: the true
    item that came last and the false one that came first, with the exact effect of each. is_set: the method named items
    instead of scoring them, so that its AUROC says little.
    """

    task: str
    rung: str
    kind: str
    seed: int
    level: str
    method: str
    state: str
    gap: float
    true: int = 0
    items: int = 0
    auroc: float | None = None
    low: float | None = None
    high: float | None = None
    precision: float | None = None
    faithfulness: float | None = None
    whole: float | None = None
    recall: float | None = None
    precision_5: float | None = None
    contested: float | None = None
    seconds: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    problem: str = ""
    is_set: bool = False
    last_true: tuple[str, float] | None = None
    first_false: tuple[str, float] | None = None

    @property
    def scored(self) -> bool:
        """Whether there is a score."""
        return self.auroc is not None

    @property
    def passes(self) -> bool:
        """AUROC .95 or more, and faithfulness .9 or more of what the true circuit itself has, where that is defined."""
        if self.auroc is None or self.auroc < PASSES_AUROC:
            return False
        return self.faithfulness is None or self.faithfulness >= PASSES_FAITHFULNESS * min(1.0, self.whole or 1.0)


@dataclass(frozen=True)
class Calibration:
    """All cells of one or more methods, and, where they were asked for, each item's score.

    scores: (task, rung, kind, seed, method) -> rows of (item, is true, score, exact effect), for the pages.
    """

    cells: tuple[Cell, ...]
    level: str
    scores: Mapping[tuple[Any, ...], list[tuple[str, bool, float, float]]] = field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the order in which they came."""
        return tuple(dict.fromkeys(cell.method for cell in self.cells))

    def select(self, **chosen: Any) -> list[Cell]:
        """The cells whose fields equal `chosen`, e.g. select(kind="zero", rung="shaken")."""
        return [cell for cell in self.cells if all(getattr(cell, name) == value for name, value in chosen.items())]

    def to_frame(self) -> pd.DataFrame:
        """One row per cell."""
        return pd.DataFrame([asdict(cell) for cell in self.cells])


def calibrate(
    method: Method | Mapping[str, Method],
    *,
    level: str = "edges",
    tasks: Sequence[str] | None = None,
    rungs: Sequence[str] | None = None,
    quick: bool = False,
    apart: bool = False,
    seeds: Sequence[int] = (0,),
    limit: float = LIMIT,
    jobs: int = 1,
    details: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Calibration:
    """Hold a method to every rung of the ladder, under every kind of ablation that its truth is known for.

    Args:
        method: takes a `View` and gives a score per item (a mapping; higher = more important), or a set of items. Or
            several, by name.
        level: what is scored: `edges`, `heads`, or `sites` (layer, head, position).
        tasks, rungs: by name; all by default, or the four rungs of `QUICK` where `quick`.
        apart: also the tuned and the trained models, whose truth is measured and not proved.
        seeds: of the noise, the random weights and the heads' order and bases.
        limit: seconds a cell.
        jobs: processes; each takes a task and a seed.
        details: keep every item's score, for a page.
        progress: told each rung's name when it is done (with one job).

    Returns:
        A `Calibration`. A method that raises, is too slow, changes the model's weights or leaves items without a score
        has a sentence in that cell, and goes on.

    Raises:
        KeyError: for an unknown level, task or rung, listing those there are.

    Example:
        >>> from headlab.analyses.calibrate import calibrate
        >>> calibrate(lambda view: {edge: 1.0 for edge in view.edges}, tasks=["xor"], rungs=["as built"]).cells[0].auroc
        0.5
    """
    if level not in LEVELS:
        raise KeyError(f"no level '{level}': choose {', '.join(LEVELS)}")
    chosen_tasks = tuple(tasks or SETTINGS)
    chosen = tuple(rungs or (QUICK if quick else (*NAMES, *(APART if apart else ()))))
    for given, known, what in ((chosen_tasks, SETTINGS, "task"), (chosen, (*NAMES, *APART), "rung")):
        for name in given:
            if name not in known:
                raise KeyError(f"no {what} '{name}' on the ladder: there are {', '.join(known)}")
    methods = dict(method) if isinstance(method, Mapping) else {getattr(method, "__name__", "method"): method}
    work = [(task, seed) for seed in seeds for task in chosen_tasks]
    one = delayed(_one)
    parts = Parallel(n_jobs=jobs)(
        one(methods, task, chosen, seed, level, limit, details, progress if jobs == 1 else None) for task, seed in work
    )
    parts = cast("list[tuple[list[Cell], Kept]]", parts)
    cells = tuple(cell for part, _ in parts for cell in part)
    return Calibration(cells, level, {key: rows for _, kept in parts for key, rows in kept.items()})


def calibrate_built_in(
    *,
    level: str = "edges",
    tasks: Sequence[str] | None = None,
    rungs: Sequence[str],
    seeds: Sequence[int],
    jobs: int = 1,
) -> Calibration:
    """The built-in instruments on the ladder: each on the cells that `instruments.methods_for` names."""
    work = [(task, seed) for seed in seeds for task in (tasks or SETTINGS)]
    parts = Parallel(n_jobs=jobs)(delayed(_one)(None, t, rungs, s, level, 10 * LIMIT, False, None) for t, s in work)
    parts = cast("list[tuple[list[Cell], Kept]]", parts)
    return Calibration(tuple(cell for part, _ in parts for cell in part), level)


Kept = dict[tuple[Any, ...], list[tuple[str, bool, float, float]]]


def _one(
    methods: Mapping[str, Method] | None,
    task: str,
    rungs: Sequence[str],
    seed: int,
    level: str,
    limit: float,
    details: bool,
    progress: Callable[[str], None] | None,
) -> tuple[list[Cell], Kept]:
    import torch

    torch.set_num_threads(1)
    cells: list[Cell] = []
    kept: Kept = {}
    for name in rungs:
        if name in ("as built", TUNED) and seed != 0 and methods is None:
            continue  # no chance in it
        if (task, name) == ("tree", TRAINED) and seed != 0 and methods is None:
            continue  # its effects have no gap, so that every such cell is open
        rung = blind(_rung(task, name, seed), seed)
        asked = methods_for(level, task, name, seed) if methods is None else methods
        for kind in rung.kinds:
            found, rows = _cells(rung, kind, asked, seed, level, limit, details)
            cells += found
            kept |= rows
        if progress is not None:
            progress(f"{task}: {name}")
    return cells, kept


def _rung(task: str, name: str, seed: int) -> Rung:
    if name == TUNED:
        return tuned(task)
    return trained(task, seed) if name == TRAINED else make_rung(task, name, seed)


def _cells(
    rung: Rung, kind: str, methods: Mapping[str, Method], seed: int, level: str, limit: float, details: bool
) -> tuple[list[Cell], Kept]:
    certificate = certify(rung, kind)
    items = items_of(level, certificate.edges)
    true = frozenset(items_of(level, rung.truth[kind]))
    contested = frozenset(items_of(level, rung.contested.get(kind, frozenset()))) - true
    heads = tuple((layer, head) for layer in range(rung.model.cfg.n_layers) for head in range(rung.model.cfg.n_heads))
    put = rung.interventions[kind]
    view = View(rung.model, rung.inputs, rung.metric, rung.read, put, level, items, certificate.edges, heads, seed)
    head = {"task": rung.task, "rung": rung.name, "kind": kind, "seed": seed, "level": level}
    common: dict[str, Any] = {
        **head,
        "state": certificate.state,
        "gap": certificate.gap,
        "true": len(true),
        "items": len(items),
    }
    answers = {name: ask(method, view, limit=limit) for name, method in methods.items()} if certificate.holds else {}
    good = {name: answer for name, answer in answers.items() if answer.scores}
    sets = [_top(answer.scores, items, contested, len(true), seed) | contested for answer in good.values()]
    *shares, whole = _faithfulness(view, [*sets, true | contested])
    share_of = dict(zip(good, shares, strict=True))
    exact = _exact(level, certificate)
    cells, kept = [], {}
    for name in methods:
        if name not in answers:
            cells.append(Cell(**common, method=name))
            continue
        answer = answers[name]
        cost: dict[str, Any] = {"seconds": answer.seconds, "forward": answer.forward, "backward": answer.backward}
        if name not in good:
            cells.append(Cell(**common, method=name, problem=answer.problem, **cost))
            continue
        try:
            found = rank(answer.scores, true, contested=contested, what=level)
        except ValueError as error:
            cells.append(Cell(**common, method=name, problem=str(error), **cost))
            continue
        cells.append(_cell(common, name, answer, found, share_of[name], whole, cost, true, contested, exact))
        if details:
            key = (rung.task, rung.name, kind, seed, name)
            rows = sorted(answer.scores.items(), key=lambda pair: -pair[1])
            kept[key] = [(item_name(item), item in true, score, exact[item]) for item, score in rows]
    return cells, kept


def _cell(
    common: Mapping[str, Any],
    name: str,
    answer: Answer,
    found: Recovery,
    share: float | None,
    whole: float | None,
    cost: Mapping[str, Any],
    true: frozenset[Item],
    contested: frozenset[Item],
    exact: Mapping[Any, float],
) -> Cell:
    last = min(true, key=lambda item: (answer.scores[item], -exact[item]))
    false = (item for item in answer.scores if item not in true and item not in contested)
    first = max(false, key=lambda item: (answer.scores[item], -exact[item]))
    return Cell(
        **common,
        method=name,
        auroc=found.auroc,
        low=found.random_auroc.low,
        high=found.random_auroc.high,
        precision=found.precision,
        faithfulness=share,
        whole=whole,
        recall=found.recall_at_5,
        precision_5=found.precision_at_5,
        contested=found.contested,
        is_set=answer.is_set,
        last_true=(item_name(last), exact[last]),
        first_false=(item_name(first), exact[first]),
        **cost,
    )


def _exact(level: str, certificate: Certificate) -> dict[Any, float]:
    """item -> its exact effect (largest over inputs); of a head or site that of its strongest edge."""
    found: dict[Any, float] = {}
    for edge, effect in zip(certificate.edges, certificate.largest.tolist(), strict=True):
        item = item_of(level, edge)
        if item is not None:
            found[item] = max(found.get(item, 0.0), effect)
    return found


def _top(
    scores: Mapping[Any, float], items: Sequence[Item], contested: frozenset[Item], count: int, seed: int
) -> frozenset[Item]:
    """The `count` items with the largest scores; ties in a random order."""
    import numpy as np

    draw = np.random.default_rng(seed).random(len(items))
    order = sorted(zip(items, draw, strict=True), key=lambda pair: (-scores[pair[0]], pair[1]))
    return frozenset([item for item, _ in order if item not in contested][:count])


def _faithfulness(view: View, kept: Sequence[frozenset[Item]]) -> list[float | None]:
    """Of each set of items alone, as a distance: 1 - mean |kept - whole| / mean |nothing - whole|.

    At the level of heads and sites every other edge stays: what the heads and sites that are not kept write is
    replaced.
    """
    owner = {edge: item_of(view.level, edge) for edge in view.edges}
    every = [edge for edge, item in owner.items() if item is not None]
    sets = [every, *([edge for edge in every if owner[edge] not in chosen] for chosen in kept)]
    with untouched(view.model):
        effect = patch_edge_sets(view.model, view.inputs, view.metric, view.put, sets, read=view.read).effect
    far = effect.abs().mean(1)
    return [None if float(far[0]) < 1e-9 else 1 - float(each / far[0]) for each in far[1:]]
