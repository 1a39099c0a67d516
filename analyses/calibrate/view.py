"""What a method may see of a rung: model, data, metric and intervention, and what must get a score. No truth."""

from __future__ import annotations

import copy
import hashlib
import math
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from torch.random import fork_rng

from headlab.analyses.calibrate.rung import ReadMetric
from headlab.interp.circuits import Circuit, Edge
from headlab.interp.interventions import Intervention
from headlab.models.hooked import HookedTransformer

Level = Literal["edges", "heads", "sites"]
LEVELS: tuple[str, ...] = get_args(Level)
Item = Edge | tuple[int, ...]
Scores = Mapping[Any, float] | Collection[Any] | Circuit
Method = Callable[["View"], Scores]


@dataclass(frozen=True)
class View:
    """What a method sees. Task, rung and truth are not here, nor how many items are true.

    model: a HookedTransformer, a copy of its own, float64, heads in a random order and bases.
    inputs: what it takes, first axis `example`.
    metric: the output at the positions `read` [example, read, output] -> one number per example.
    read: the positions that the metric looks at.
    put: what is put in place (kind and reference data); `put.kind` is zero, positional_mean or resample.
    level: edges, heads or sites; items: what must get a score, higher = more important: `Edge`s, (layer, head), or
        (layer, head, position).
    edges, heads: all candidate edges, and all heads, whatever the level.
    seed: for methods that draw.
    """

    model: HookedTransformer
    inputs: Tensor
    metric: ReadMetric
    read: tuple[int, ...]
    put: Intervention
    level: str
    items: tuple[Item, ...]
    edges: tuple[Edge, ...]
    heads: tuple[tuple[int, int], ...]
    seed: int = 0

    def value(self, logits: Tensor) -> Tensor:
        """The metric of a run's full logits [example, position, output]: one number per example."""
        return self.metric(logits[:, list(self.read)])


def items_of(level: str, edges: Collection[Edge]) -> tuple[Item, ...]:
    """What of `edges` stands at a level: the edges, the heads that write some, or these heads' positions, sorted.

    Raises KeyError for an unknown level, listing the levels there are.
    """
    if level not in LEVELS:
        raise KeyError(f"no level '{level}': choose edges, heads or sites")
    found: set[Any] = {item for edge in edges if (item := item_of(level, edge)) is not None}
    return tuple(sorted(found))


def item_of(level: str, edge: Edge) -> Item | None:
    """The item that `edge` belongs to at a level: the head, or head and position, that writes what it carries."""
    if level == "edges":
        return edge
    if edge.source.kind != "head":
        return None
    head = (edge.source.layer, edge.source.head)
    return head if level == "heads" else (*head, cast("int", edge.position))


def item_name(item: Any) -> str:
    """An edge as it prints itself, a head as `0.1`, a site as `0.1@3`."""
    if isinstance(item, tuple):
        return f"{item[0]}.{item[1]}" + (f"@{item[2]}" if len(item) > 2 else "")
    return str(item)


@dataclass
class Answer:
    """What came of one call of a method.

    scores: item -> score; empty where `problem` says, in one sentence, why there are none. is_set: the method named
    items instead of scoring them. seconds: CPU time. forward, backward: passes of the model over all examples (a pass
    over some counts in part). What a method computes beside the model, as the cone engine does, is not counted.
    """

    scores: dict[Any, float] = field(default_factory=dict)
    problem: str = ""
    is_set: bool = False
    seconds: float = 0.0
    forward: float = 0.0
    backward: float = 0.0


class TooSlow(Exception):
    """A method ran past its time limit."""


def ask(method: Method, view: View, *, limit: float) -> Answer:
    """Call `method` with a private copy of the model, and judge what it gives back. Nothing that it does is an error.

    Args:
        method: what is calibrated.
        view: as it will see it, but for the model's copy.
        limit: seconds of wall time; a method past it is stopped (where it runs in the main thread) and not scored.
    """
    answer = Answer()
    view = View(**{**vars(view), "model": copy.deepcopy(view.model)})
    before, state = fingerprint(view.model), torch.is_grad_enabled()
    started, clock = time.process_time(), time.monotonic()
    try:
        with fork_rng(devices=[]), _counted(view.model, len(view.inputs), answer), _stopped(limit):
            torch.manual_seed(view.seed)
            given = method(view)
    except TooSlow:
        answer.problem = f"it was stopped after {limit:g} s"
    except Exception as error:  # a stranger's method may fail in any way: the sentence says how
        answer.problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    else:
        answer.scores, answer.is_set, answer.problem = read_scores(given, view.items)
    finally:
        torch.set_grad_enabled(state)
    answer.seconds = time.process_time() - started
    if not answer.problem and time.monotonic() - clock > limit:
        answer.problem = f"it took longer than {limit:g} s"
    if not answer.problem and fingerprint(view.model) != before:
        answer.problem = "it changed the model's weights"
    if answer.problem:
        answer.scores = {}
    return answer


def read_scores(given: Any, items: Collection[Any]) -> tuple[dict[Any, float], bool, str]:
    """item -> score, whether a set was given instead, and what is wrong with it, in one sentence ('' for nothing)."""
    is_set = not isinstance(given, Mapping)
    if isinstance(given, Circuit):
        given = given.edges
    if is_set:
        if given is None or isinstance(given, str) or not isinstance(given, Collection):
            return (
                {},
                False,
                f"it gave a {type(given).__name__}: give a mapping from items to scores, or a set of items",
            )
        strange = [item for item in given if item not in set(items)]
        if strange:
            return {}, True, f"it named {len(strange)} items that are not asked for, e.g. {item_name(strange[0])}"
        return {item: float(item in given) for item in items}, True, ""
    missing = [item for item in items if item not in given]
    if missing:
        return {}, False, f"{len(missing)} of {len(items)} items have no score, e.g. {item_name(missing[0])}"
    try:
        scores = {item: float(given[item]) for item in items}
    except (TypeError, ValueError) as error:
        return {}, False, f"a score is no number ({error})"
    bad = [item for item, score in scores.items() if not math.isfinite(score)]
    if bad:
        return {}, False, f"{len(bad)} of {len(items)} scores are not finite, e.g. that of {item_name(bad[0])}"
    return scores, False, ""


def fingerprint(model: torch.nn.Module) -> str:
    """A digest of all weights."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def _counted(model: Any, examples: int, answer: Answer) -> Iterator[None]:
    """Count the model's passes, by its `forward` and not by hooks, which would change the engine that it is run by."""
    own = model.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        output = own(*args, **kwargs)
        share = len(args[0]) / examples if args and isinstance(args[0], Tensor) and args[0].ndim else 1.0
        answer.forward += share
        if isinstance(output, Tensor) and output.requires_grad:

            def back(gradient: Tensor) -> None:
                answer.backward += share

            output.register_hook(back)
        return output

    model.forward = forward
    try:
        yield
    finally:
        del model.forward


@contextmanager
def _stopped(limit: float) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
