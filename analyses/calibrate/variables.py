"""Causal variables: is the subspace that a method finds the one that the construction uses?

Per task one variable, at one site of the residual stream, whose subspace is known from the weights. Axes that nothing
reads hold features: of the variable itself (correlated with it), or of chance (decorrelated). Interchange accuracy
cannot tell a direction of unread features from the causal one, since exchanging all in which two runs differ exchanges
the variable too (Makelov et al. 2023); the angle to the known subspace can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from joblib import Parallel, delayed
from scipy.linalg import subspace_angles
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from headlab.analyses.calibrate.rung import rotate, rotation
from headlab.analyses.calibrate.tasks import Esp, Retrieval, Xor
from headlab.interp.model import activations, untouched
from headlab.models.constructed import Constructed
from headlab.models.enlarged import enlarged
from headlab.models.esp.constructed import construct as esp_construct
from headlab.models.retrieval.constructed import head_per_coordinate
from headlab.models.tree.constructed import construct as tree_construct
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask
from headlab.models.xor.constructed import limit

UNREAD = 32  # axes that nothing reads
# rung -> (size of the unread features, whether they tell the variable, noise on the weights)
RUNGS: dict[str, tuple[float, bool, float]] = {
    "as built": (0.0, True, 0.0),
    "correlated × 0.3": (0.3, True, 0.0),
    "correlated × 1": (1.0, True, 0.0),
    "correlated × 3": (3.0, True, 0.0),
    "decorrelated × 3": (3.0, False, 0.0),
    "correlated × 1, shaken": (1.0, True, 0.01),
}
STEPS, RATE, STARTS = 150, 0.05, 2
SEEDS = 3


@dataclass(frozen=True)
class Variable:
    """What a method may see: activations and the variable's value in each example, and the model from there on.

    held: the residual stream at the site. values: the variable, a class per example, or a number where `continuous`.
    size: how many dimensions are asked for. base, source: pairs of examples to train on. run: the output at the read
    position where the site of `base` holds the vectors given. loss: of outputs against what the interchange of the
    variable from `source` should give.
    """

    held: Float[Tensor, "example model"]
    values: Tensor
    continuous: bool
    size: int
    base: Int[Tensor, " pair"]
    source: Int[Tensor, " pair"]
    run: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]
    seed: int

    def interchanged(self, basis: Float[Tensor, "size model"], base: Tensor, source: Tensor) -> Tensor:
        """What the site of `base` holds after its part in the span of orthonormal rows came from `source`."""
        own = self.held[base]
        return own + (self.held[source] - own) @ basis.T @ basis


Locate = Callable[[Variable], Tensor]


@dataclass(frozen=True)
class _Problem:
    """A task's variable: the construction, the site, the values, and what an interchange should give."""

    task: str
    name: str
    built: Constructed
    inputs: Tensor
    hook: str
    position: int
    read: int
    values: Tensor
    axes: Float[Tensor, "size model"]
    wanted: Callable[[Tensor, Tensor], Tensor]
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]
    continuous: bool = False


def _esp() -> _Problem:
    examples, n = Esp.examples(), Esp.n
    u, v = Esp.endpoints(examples)
    selector = examples.factors["selector"]
    axis = torch.zeros(1, n + 3, dtype=torch.float64)
    axis[0, n], axis[0, n + 1] = 1.0, -1.0
    return _Problem(
        "esp",
        "which endpoint",
        esp_construct(Esp, "two-head", sink=8.0, dtype="float64"),
        examples.inputs,
        "blocks.0.hook_resid_pre",
        2,
        3,
        selector,
        axis,
        lambda base, source: torch.where(selector[source] == 0, u[base], v[base]),
        lambda output, wanted: torch.nn.functional.cross_entropy(10 * output, wanted),
        _accuracy,
    )


def _accuracy(output: Tensor, wanted: Tensor) -> float:
    return float((output.argmax(-1) == wanted).double().mean())


def _tree() -> _Problem:
    # As many labels as nodes, so that every tree has a parent for every node that may be exchanged.
    task = TreeTask(TreeSource(depths=(2,), nodes=4, labels=4, split="none"), "forward")
    inputs, goal = task.examples(count=96).inputs, task.layout.goal
    node, edges = inputs[:, goal, 1], inputs[:, list(task.layout.edges)]
    built = tree_construct(task, "forward", dtype="float64")

    def parent(base: Tensor, source: Tensor) -> Tensor:
        at = (edges[base, :, 2] == node[source][:, None]).long().argmax(1)
        return edges[base, at, 1]

    axes = torch.zeros(4, built.model.cfg.d_model, dtype=torch.float64)
    axes[:, :4] = torch.eye(4) - 0.25  # differences of labels: what exchanging two nodes moves
    axes = torch.linalg.svd(axes, full_matrices=False).Vh[:3]
    return _Problem(
        "tree",
        "current node",
        built,
        inputs,
        "blocks.0.hook_resid_pre",
        goal,
        goal,
        node,
        axes,
        parent,
        lambda output, wanted: torch.nn.functional.cross_entropy(output, wanted),
        _accuracy,
    )


def _xor() -> _Problem:
    inputs, target = Xor.examples().inputs.double(), Xor.targets[0]
    built = limit(Xor, dtype="float64")
    axis = torch.zeros(1, built.model.cfg.d_model, dtype=torch.float64)
    axis[0, int(built.options["width"])] = 1.0

    def wanted(base: Tensor, source: Tensor) -> Tensor:
        changed = inputs[base].clone()
        changed[:, target] = inputs[source, target]
        return Xor.labels(changed)

    return _Problem(
        "xor",
        "target bit",
        built,
        inputs,
        "blocks.0.hook_resid_pre",
        target,
        Xor.cls,
        (inputs[:, target] > 0).long(),
        axis,
        wanted,
        lambda output, wanted: (output[:, 0] - wanted).square().mean(),
        lambda output, wanted: float((output[:, 0] * wanted > 0).double().mean()),
    )


def _retrieval() -> _Problem:
    family, inputs = Retrieval.family, Retrieval.draw(96, 1).double()
    minima = family.minima(inputs)
    built = head_per_coordinate(Retrieval, beta=200.0, dtype="float64")
    axis = torch.zeros(1, built.model.cfg.d_model, dtype=torch.float64)
    axis[0, int(built.architecture.parts["unembed"]["first"])] = 1.0

    def wanted(base: Tensor, source: Tensor) -> Tensor:
        return family.outer(torch.cat([minima[source, :1], minima[base, 1:]], 1))

    def explained(output: Tensor, wanted: Tensor) -> float:
        return float(1 - (output[:, 0] - wanted).square().mean() / wanted.var(correction=0))

    return _Problem(
        "retrieval",
        "coordinate's minimum",
        built,
        inputs,
        "blocks.0.hook_resid_post",
        Retrieval.cls,
        Retrieval.cls,
        minima[:, 0],
        axis,
        wanted,
        lambda output, wanted: (output[:, 0] - wanted).square().mean(),
        explained,
        continuous=True,
    )


PROBLEMS: dict[str, Callable[[], _Problem]] = {"esp": _esp, "tree": _tree, "xor": _xor, "retrieval": _retrieval}


@dataclass(frozen=True)
class Located:
    """How one method did: the largest principal angle to the true subspace in degrees, and the mean cosine, then the
    interchange accuracy on held-out pairs (for a continuous variable the share of variance explained)."""

    task: str
    variable: str
    rung: str
    method: str
    seed: int
    angle: float
    cosine: float
    accuracy: float


def _set_up(problem: _Problem, rung: str, seed: int) -> tuple[Variable, Tensor, Callable[[Tensor], float]]:
    """The view, the true subspace (orthonormal rows), and the held-out interchange accuracy of a subspace."""
    size, tells, noise = RUNGS[rung]
    generator = torch.Generator().manual_seed(seed)
    model, design = enlarged(problem.built.model, problem.built.architecture, width=UNREAD if size else 0)
    own = problem.built.model.cfg.d_model
    rotate(model, design, seed)
    turn = rotation(design, seed)
    for parameter in model.parameters():
        scale = noise * float(parameter.detach().square().mean().sqrt())
        drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.add_(scale * drawn)
        parameter.requires_grad_(False)
    with untouched(model):
        held = activations(model, problem.inputs, [problem.hook])[1][problem.hook][:, problem.position]
    count = len(held)
    if size:
        held = held + _features(problem, size, tells, generator) @ turn[own:]
    base, source = (torch.randperm(count, generator=generator) for _ in range(2))
    half = count // 2

    def put(value: Tensor, hook: Any, *, vectors: Tensor) -> Tensor:
        value = value.clone()
        value[:, problem.position] = vectors
        return value

    def run(rows: Tensor, vectors: Tensor) -> Tensor:
        hooks: list[Any] = [(problem.hook, partial(put, vectors=vectors))]
        return model.run_with_hooks(problem.inputs[rows], fwd_hooks=hooks)[:, problem.read]

    def loss(output: Tensor, rows: Tensor, others: Tensor) -> Tensor:
        return problem.loss(output, problem.wanted(rows, others))

    truth = torch.linalg.qr((torch.nn.functional.pad(problem.axes, (0, len(turn) - own)) @ turn).T).Q.T
    view = Variable(held, problem.values, problem.continuous, len(truth), base[:half], source[:half], run, loss, seed)

    def accuracy(basis: Tensor) -> float:
        with torch.no_grad():
            output = run(base[half:], view.interchanged(basis, base[half:], source[half:]))
        return problem.score(output, problem.wanted(base[half:], source[half:]))

    return view, truth, accuracy


def _features(problem: _Problem, size: float, tells: bool, generator: torch.Generator) -> Tensor:
    """What the unread axes hold, per example."""

    def drawn(*shape: int) -> Tensor:
        return size * torch.randn(*shape, UNREAD, generator=generator, dtype=torch.float64)

    count = len(problem.values)
    if not tells:
        return drawn(8)[torch.randint(8, (count,), generator=generator)]
    if problem.continuous:
        standard = (problem.values - problem.values.mean()) / problem.values.std()
        return standard[:, None] * drawn(1)
    return drawn(int(problem.values.max()) + 1)[problem.values]


def orthonormal(rows: Float[Tensor, "row model"], size: int) -> Float[Tensor, "size model"]:
    """The `size` directions in which rows are largest, as orthonormal rows."""
    return torch.linalg.svd(rows, full_matrices=False).Vh[:size]


def mean_difference(view: Variable) -> Tensor:
    """The span of the class means' differences; of a number, the means of its upper and its lower half."""
    values = (view.values > view.values.median()).long() if view.continuous else view.values
    means = torch.stack([view.held[values == value].mean(0) for value in values.unique()])
    return orthonormal(means - means.mean(0), view.size)


def linear_probe(view: Variable) -> Tensor:
    """The span of a linear classifier's (ridge regression's) coefficients."""
    probe = Ridge(alpha=1e-3) if view.continuous else LogisticRegression(max_iter=2000)
    fitted: Any = probe.fit(view.held.numpy(), view.values.numpy())
    return orthonormal(torch.as_tensor(np.atleast_2d(fitted.coef_), dtype=torch.float64), view.size)


def principal_components(view: Variable) -> Tensor:
    """The first principal components."""
    return orthonormal(view.held - view.held.mean(0), view.size)


def alignment_search(view: Variable) -> Tensor:
    """Distributed alignment search (Geiger et al. 2024): a rotation learned by gradient descent on the interchange
    loss, the best of a few starts by its loss on the training pairs."""
    generator = torch.Generator().manual_seed(view.seed)
    best, smallest = torch.zeros(0), float("inf")
    for _ in range(STARTS):
        free = torch.randn(view.held.shape[1], view.size, generator=generator, dtype=torch.float64).requires_grad_(True)
        optimiser = torch.optim.Adam([free], lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
        loss = free.sum()
        for _ in range(STEPS):
            optimiser.zero_grad()
            basis = torch.linalg.qr(free).Q.T
            output = view.run(view.base, view.interchanged(basis, view.base, view.source))
            loss = view.loss(output, view.base, view.source)
            loss.backward()
            optimiser.step()
            schedule.step()
        if float(loss.detach()) < smallest:
            best, smallest = torch.linalg.qr(free.detach()).Q.T, float(loss.detach())
    return best


def random_subspace(view: Variable) -> Tensor:
    """A random subspace: what chance reaches."""
    generator = torch.Generator().manual_seed(view.seed)
    drawn = torch.randn(view.size, view.held.shape[1], generator=generator, dtype=torch.float64)
    return orthonormal(drawn, view.size)


METHODS: dict[str, Locate] = {
    "mean difference": mean_difference,
    "linear probe": linear_probe,
    "PCA": principal_components,
    "DAS": alignment_search,
    "random": random_subspace,
}


def locate(
    methods: dict[str, Locate],
    *,
    tasks: Sequence[str] = tuple(PROBLEMS),
    rungs: Sequence[str] = tuple(RUNGS),
    seed: int,
) -> list[Located]:
    """Hold methods that return a subspace (orthonormal rows) to every rung of every task's variable."""
    torch.set_num_threads(1)
    rows = []
    for task in tasks:
        problem = PROBLEMS[task]()
        for rung in rungs:
            view, truth, accuracy = _set_up(problem, rung, seed)
            for name, method in {**methods, "truth": lambda view, own=truth: own}.items():
                basis = method(replace(view))
                angles = subspace_angles(basis.T.numpy(), truth.T.numpy())
                largest, cosine = float(np.degrees(angles.max())), float(np.cos(angles).mean())
                rows.append(Located(task, problem.name, rung, name, seed, largest, cosine, accuracy(basis)))
    return rows


def measure_all(*, seeds: Sequence[int], jobs: int = 1) -> list[dict[str, Any]]:
    """The means over the first three seeds, one row per task, rung and method; `random` is the chance level."""
    work = [(task, seed) for seed in list(seeds)[:SEEDS] for task in PROBLEMS]
    parts = Parallel(n_jobs=jobs)(delayed(locate)(METHODS, tasks=(task,), seed=seed) for task, seed in work)
    parts = cast("list[list[Located]]", parts)
    return averaged([row for part in parts for row in part])


def averaged(rows: Sequence[Located]) -> list[dict[str, Any]]:
    """The means over seeds, one row per task, rung and method."""
    found = []
    for key in dict.fromkeys((row.task, row.rung, row.method) for row in rows):
        own = [row for row in rows if (row.task, row.rung, row.method) == key]
        means = {name: float(np.mean([getattr(row, name) for row in own])) for name in ("angle", "cosine", "accuracy")}
        rounded = {name: float(f"{value:.4g}") for name, value in means.items()}
        names = dict(zip(("task", "rung", "method"), key, strict=True))
        found.append({**names, "variable": own[0].variable, "seeds": len(own), **rounded})
    return found
