"""Pointer doubling is exact in logarithmic depth, fails one layer below, and its circuit is what moves the answers."""

from itertools import permutations

import pytest
import torch

from headlab.interp.circuits import Edge
from headlab.interp.interventions import Intervention
from headlab.interp.paths import patch_edges
from headlab.interp.recovery import recovery
from headlab.interp.roles import score
from headlab.models.tree.circuits import POINTER_DOUBLING, POINTER_KINDS, doubling_circuit, layers_needed
from headlab.models.tree.constructed import construct
from headlab.models.tree.evaluation import answer, evaluate
from headlab.models.tree.generation import agreement
from headlab.models.tree.pointer_doubling import bound
from headlab.models.tree.source import TreeSource, stream
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import encode
from headlab.models.tree.trees import Forest, linear_extension


def task_of(depth: int, *, order: str = "parents-first", nodes: int | None = None, labels: int = 64) -> TreeTask:
    source = TreeSource(depths=(depth,), split="none", nodes=nodes, labels=labels)
    return TreeTask(source, chain_of_thought=False, order=order)


@pytest.mark.parametrize(("depth", "layers"), [(1, 2), (3, 3), (4, 4), (7, 4), (8, 5), (16, 6)])
def test_exact_in_logarithmic_depth_and_not_one_layer_below(depth: int, layers: int) -> None:
    task = task_of(depth, nodes=min(2 * depth + 2, 34), labels=34)
    assert layers_needed(depth) == layers
    made = construct(task, POINTER_DOUBLING, dtype=torch.float64)
    assert (made.model.cfg.n_layers, made.model.cfg.n_heads) == (layers, 1)
    found = evaluate(made.model, task, count=60)
    assert found.errors == made.errors == 0
    assert found.min_margin >= made.margin > 19.99
    if layers > 2:
        fewer = construct(task, POINTER_DOUBLING, layers=layers - 1, dtype=torch.float64)
        assert fewer.errors is fewer.margin is None
        assert not fewer.circuits
        forest, labels = task.trees.draw(60, stream(2), test=False)
        examples = task.as_examples(task.sequences(forest, labels, stream(2, 1)))
        right = answer(fewer.model, task, examples).margin.min(1).values > 1
        assert torch.equal(right, only_children_far_up(forest, 2 ** (layers - 2) - 1))
        assert right.float().mean() < 0.6


def only_children_far_up(forest: Forest, reach: int) -> torch.Tensor:
    """Whether all of the goal's ancestors from number `reach` on are only children: only then is there nothing to know.

    reach: how many nodes of the path, the goal first, the sets of a model with too few layers hold.
    """
    alone = []
    for parent, node in zip(forest.parent.tolist(), forest.goal.tolist(), strict=True):
        single, distance = True, 0
        while parent[node] >= 0:
            single &= distance < reach or parent.count(parent[node]) == 1
            node, distance = parent[node], distance + 1
        alone.append(single)
    return torch.tensor(alone)


@pytest.mark.parametrize("beta", [8, 12])
def test_the_margin_is_a_bound_for_weak_scores_too(beta: float) -> None:
    task = task_of(4, nodes=8, labels=12)
    made = construct(task, POINTER_DOUBLING, beta=beta, dtype=torch.float64)
    assert made.margin == bound(beta, task.layout.length, 3)
    assert made.margin <= evaluate(made.model, task, count=200).min_margin < beta


def test_weak_scores_and_low_precision_claim_nothing() -> None:
    task = task_of(4, nodes=8, labels=12)
    for options in ({"beta": 0.5}, {"dtype": "bfloat16"}):
        made = construct(task, POINTER_DOUBLING, **options)
        assert made.errors is made.margin is None
    deep = task_of(7)
    assert evaluate(construct(deep, POINTER_DOUBLING, beta=0.5).model, deep, count=50).path_accuracy < 0.9


def test_edges_in_any_order_take_at_most_a_jump_a_level() -> None:
    """The worst order, children first, in which no edge ever sees the one above it: D jumps do, and D - 1 do not."""
    task = task_of(5, order="random", nodes=12, labels=16)
    forest, labels = task.trees.draw(40, stream(1), test=False)
    worst = torch.arange(12).flip(0).expand(40, -1)
    encoded = encode(forest, labels, worst, task.tokens, task.direction, task.chain_of_thought, task.form)
    enough = construct(task, POINTER_DOUBLING, layers=6, dtype=torch.float64)
    fewer = construct(task, POINTER_DOUBLING, layers=5, dtype=torch.float64)
    assert enough.errors == 0
    assert not enough.circuits
    found = evaluate(enough.model, task, examples=task.as_examples(encoded))
    assert found.errors == 0
    assert found.min_margin >= enough.margin
    assert fewer.errors is None
    right = answer(fewer.model, task, task.as_examples(encoded)).margin.min(1).values > 1
    assert torch.equal(right, only_children_far_up(forest, 4))
    assert 0 < right.float().mean() < 0.6


def test_a_goal_with_children_below_it_ends_the_path() -> None:
    forest = Forest(torch.tensor([[-1, 0, 0, 1, 1, 3]]), torch.tensor([1]))
    task = task_of(2, nodes=6, labels=8)
    order = torch.arange(6)[None]
    encoded = encode(forest, torch.randperm(8)[None, :6], order, task.tokens, "forward", False, "pair")
    model = construct(task, POINTER_DOUBLING, dtype=torch.float64).model
    assert evaluate(model, task, examples=task.as_examples(encoded)).errors == 0


def test_it_writes_whole_paths_token_by_token() -> None:
    task = task_of(6)
    found = agreement(construct(task, POINTER_DOUBLING).model, task, task.examples(count=8))
    assert (found.generated, found.teacher_forced, found.disagreements) == (8, 8, 0)


def effects(task: TreeTask, ablation: str, count: int):  # type: ignore[no-untyped-def]
    """Every edge of the model patched exactly; the reference trees share no label with those that are patched."""
    generator = stream(7)
    half = task.trees.labels // 2
    source = TreeSource(task.trees.depths, labels=half, nodes=task.trees.nodes, split="none")
    forest, labels = source.draw(count, generator, test=True)
    shown = task.as_examples(task.sequences(forest, labels, generator))
    forest, labels = source.draw(count, generator, test=True)
    reference = task.sequences(forest, labels + half, generator).tokens
    model = construct(task, POINTER_DOUBLING, dtype=torch.float64).model
    return patch_edges(model, shown.inputs, task.metrics(shown)["margin"], Intervention(ablation, reference))


@pytest.mark.parametrize("ablation", POINTER_KINDS)
@pytest.mark.parametrize(("depth", "nodes"), [(3, 6), (5, 7)])
def test_the_true_circuit_is_what_moves_the_answers(depth: int, nodes: int, ablation: str) -> None:
    task = task_of(depth, nodes=nodes, labels=16)
    found = recovery(effects(task, ablation, 64), task.circuit(POINTER_DOUBLING, ablation), draws=1)
    assert found.auroc == 1.0
    assert found.smallest_true > 0.01
    assert found.largest_false < 1e-4


def test_circuits_of_parts_of_the_answers_make_up_the_whole() -> None:
    layout = task_of(7, nodes=12).layout
    whole = doubling_circuit(layout, "resample").edges
    assert frozenset().union(*(doubling_circuit(layout, "resample", [p]).edges for p in layout.read)) == whole
    assert not {edge for edge in whole if edge.destination.kind == "head" and edge.destination.layer > 3}
    first = doubling_circuit(layout, "resample", [layout.goal]).edges
    assert {(edge.port, edge.position) for edge in first} == {("v", 1), ("end", layout.goal)}
    assert all(isinstance(edge, Edge) for edge in first)


def test_heads_play_the_roles_that_the_construction_gives_them() -> None:
    task = task_of(7, nodes=16)
    made = construct(task, POINTER_DOUBLING)
    roles = task.roles(count=64)
    found = score(made.model, roles)
    assert tuple(role.name for role in roles) == ("jump 1", "jump 2", "jump 3", "answer")
    assert {head: found.roles[int(row.argmax())] for head, row in zip(found.heads, found.usage)} == made.roles
    assert found.usage.diagonal().min() > 0.99
    examples = task.examples(count=64)
    performance = task.role_metrics(roles)["jump 1"](made.model(examples.inputs))
    assert performance.eq(1).all()


def test_orders_with_parents_first_are_drawn_evenly() -> None:
    """A root with a leaf and a chain of two: three orders; absent nodes stand last."""
    count = 3000
    forest = Forest(torch.tensor([[-1, 0, 0, 2, -2]]).repeat(count, 1), torch.full((count,), 3))
    order = linear_extension(forest, torch.Generator().manual_seed(0))
    seen, times = order.unique(dim=0, return_counts=True)
    allowed = [row for row in permutations(range(4)) if row.index(0) < row.index(1) and row.index(2) < row.index(3)]
    allowed = [[*row, 4] for row in allowed if row[0] == 0]
    assert sorted(seen.tolist()) == sorted(allowed)
    assert (times / count - 1 / 3).abs().max() < 0.03


@pytest.mark.parametrize(
    ("task", "options", "words"),
    [
        (TreeTask(), {}, "give it that task"),
        (TreeTask(direction="backward"), {}, "give it that task"),
        (TreeTask(chain_of_thought=False, form="plain"), {}, "give it that task"),
        (task_of(3), {"layers": 1}, "2 or more"),
        (task_of(3), {"beta": 0}, "beta is 0"),
        (task_of(3), {"label_width": 9}, "leave the label width out"),
    ],
)
def test_bad_requests_are_one_sentence(task: TreeTask, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        construct(task, POINTER_DOUBLING, **options)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(KeyError, match="parents listed first"):
        task_of(3, order="random").circuit(POINTER_DOUBLING, "resample")
    with pytest.raises(KeyError, match="known: resample, positional_mean"):
        task_of(3).circuit(POINTER_DOUBLING, "zero")
    with pytest.raises(KeyError, match="no place in this layout"):
        TreeTask(order="parents-first").circuit(POINTER_DOUBLING, "resample")
    with pytest.raises(ValueError, match="no order 'sorted'"):
        TreeTask(order="sorted")
    with pytest.raises(ValueError, match="has one layer"):
        construct(TreeTask(), "forward", layers=2)
