from dataclasses import replace

import pytest
import torch

from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.interventions import Intervention
from headlab.interp.model import activations, run
from headlab.interp.paths import patch_edges
from headlab.interp.roles import score
from headlab.models.tree.circuits import KINDS, true_circuit
from headlab.models.tree.constructed import bound, construct, label_vectors
from headlab.models.tree.evaluation import answer, evaluate
from headlab.models.tree.generation import agreement
from headlab.models.tree.source import TreeSource, stream
from headlab.models.tree.task import TreeTask


@pytest.mark.parametrize("direction", ["backward", "forward"])
@pytest.mark.parametrize("depth", [3, 5, 7, 10])
def test_exact_on_unseen_trees_with_the_theorems_margin(direction, depth):
    task = TreeTask(TreeSource(depths=(depth,)), direction)
    made = construct(task, direction, dtype=torch.float64)
    found = evaluate(made.model, task, count=200)
    assert found.errors == made.errors == 0
    assert found.min_margin >= made.margin
    assert found.loss < 2e-7
    assert made.model.cfg.n_heads == {"backward": 1, "forward": 2}[direction]
    assert made.model.cfg.d_model == 3 * 66 + 4


@pytest.mark.parametrize("beta", [5, 8, 12])
def test_the_margin_is_a_bound_for_weak_scores_too(beta):
    task = TreeTask(TreeSource(depths=(4,), nodes=10, labels=12))
    made = construct(task, "forward", beta=beta, dtype=torch.float64)
    margin = evaluate(made.model, task, count=300).min_margin
    assert margin >= made.margin == bound(beta, task.layout.length)
    assert margin < beta


def test_a_weak_score_claims_nothing():
    task = TreeTask()
    made = construct(task, "forward", beta=1)
    assert made.errors is None
    assert made.margin is None
    assert evaluate(made.model, task, count=50).path_accuracy < 0.5


@pytest.mark.parametrize("depth", [50, 200])
def test_deep_trees_with_near_orthogonal_labels_generated(depth):
    task = TreeTask(TreeSource(depths=(depth,), labels=512, split="none"))
    made = construct(task, "forward", label_width=66)
    assert made.model.cfg.d_model == 3 * 66 + 4
    assert made.margin is None
    found = agreement(made.model, task, task.examples(count=2))
    assert (found.paths, found.generated, found.teacher_forced, found.disagreements) == (2, 2, 2, 0)


@pytest.mark.parametrize("depth", [3, 6, 9])
def test_perfect_binary_trees(depth):
    task = TreeTask(TreeSource(depths=(depth,), shape="binary", labels=1024))
    assert evaluate(construct(task, "forward", label_width=66).model, task, count=20).errors == 0


@pytest.mark.parametrize("shape", ["path", "caterpillar"])
def test_mixed_depths_of_other_shapes(shape):
    task = TreeTask(TreeSource(depths=(1, 2, 9), shape=shape))
    assert evaluate(construct(task, "forward").model, task, count=50).errors == 0


def test_padding_cannot_be_seen():
    task = TreeTask(TreeSource(depths=(1, 6)))
    examples = task.examples(count=20)
    model = construct(task, "forward", dtype=torch.float64).model
    together = answer(model, task, examples)
    shortest = examples[examples.factors["depth"] == 0]
    cut = int(shortest.read.max()) + 1
    garbage = shortest.inputs.clone()
    garbage[:, cut:] = torch.tensor([2, 5, 6])
    with torch.no_grad():
        assert torch.equal(model(garbage)[:, :cut], model(shortest.inputs)[:, :cut])
    assert together.right.all()
    assert together.loss[examples.read < 0].eq(0).all()


def test_heads_play_the_roles_that_the_theorem_gives_them():
    task = TreeTask(TreeSource(depths=(5,)))
    made = construct(task, "forward")
    found = score(made.model, task.roles(count=64))
    assert found.specialisation is not None
    assert found.specialisation > 0.995
    assert {(0, head): found.roles[int(found.usage[head].argmax())] for head in (0, 1)} == made.roles


def test_label_vectors_are_units_and_keep_turn_and_end_apart():
    vectors = label_vectors(512, 66, 0)
    assert torch.allclose(vectors[:-1].norm(dim=1), torch.ones(514, dtype=torch.float64))
    assert vectors[-1].eq(0).all()
    overlap = (vectors @ vectors.T - torch.eye(515, dtype=torch.float64)).abs()
    assert overlap[512:514, :512].max() == 0
    assert 0.3 < overlap[:512, :512].max() < 0.8
    assert torch.equal(label_vectors(512, 66, 0), vectors)
    assert not torch.equal(label_vectors(512, 66, 1), vectors)


@pytest.mark.parametrize(
    ("task", "variant", "options", "error", "words"),
    [
        (TreeTask(), "sideways", {}, KeyError, "there are backward, forward"),
        (TreeTask(), "backward", {}, ValueError, "give it that task"),
        (TreeTask(direction="backward"), "forward", {}, ValueError, "give it that task"),
        (TreeTask(chain_of_thought=False), "forward", {}, ValueError, "give it that task"),
        (TreeTask(form="plain"), "forward", {}, ValueError, "give it that task"),
        (TreeTask(), "forward", {"beta": 0}, ValueError, "beta is 0"),
        (TreeTask(), "forward", {"label_width": 2}, ValueError, "use 3 or more"),
        (TreeTask(TreeSource(depths=(700,), labels=2100)), "forward", {"label_width": 9}, ValueError, "the context of"),
    ],
)
def test_bad_requests_are_one_sentence(task, variant, options, error, words):
    with pytest.raises(error, match=words):
        construct(task, variant, **options)


def effects(model, task, ablation: str) -> dict[Edge, float]:
    """What the answers move when one edge alone is replaced: mean over trees of the largest change of a target's logit.

    The trees and those that replace them share no label, so that no match comes about by coincidence.
    """
    generator = stream(5)
    half = replace(task.trees, labels=task.trees.labels // 2)
    forest, labels = half.draw(16, generator, test=True)
    examples = task.as_examples(task.sequences(forest, labels, generator))
    forest, labels = half.draw(16, generator, test=True)
    shown = task.sequences(forest, labels + half.labels, generator).tokens
    names = ["hook_q", "hook_k", "hook_v", "hook_z"]
    _, own = activations(model, examples.inputs, [f"blocks.0.attn.{name}" for name in names])
    _, put = activations(model, shown, list(own))
    if ablation == "positional_mean":
        put = {name: value.mean(0, keepdim=True).expand_as(value) for name, value in put.items()}
    index = examples.read[..., None].expand(-1, -1, len(task.vocabulary))

    def targets(hooks):
        logits = run(model, examples.inputs, hooks).gather(1, index)
        return logits.gather(-1, examples.targets[..., None])[..., 0]

    baseline, found = targets({}), {}
    for name in names:
        full = f"blocks.0.attn.{name}"
        for head in range(model.cfg.n_heads):
            for position in range(examples.inputs.shape[1]):

                def edit(activation, hook, head=head, position=position, full=full):
                    activation[:, position, head] = put[full][:, position, head]
                    return activation

                node, port = Node("head", 0, head), name[-1]
                edge = Edge(node, END, "end", position) if port == "z" else Edge(START, node, port, position)
                with torch.no_grad():
                    change = (targets({full: edit}) - baseline).abs()
                found[edge] = float(change.max(1).values.mean())
    return found


@pytest.mark.parametrize("ablation", ["resample", "positional_mean"])
@pytest.mark.parametrize("direction", ["backward", "forward"])
def test_the_true_circuit_is_what_moves_the_answers(direction, ablation):
    task = TreeTask(TreeSource(depths=(2,), nodes=4, labels=32, split="none"), direction)
    true = task.circuit(direction, ablation)
    found = effects(construct(task, direction, dtype=torch.float64).model, task, ablation)
    inside = {edge: value for edge, value in found.items() if edge in true.edges}
    outside = {edge: value for edge, value in found.items() if edge not in true.edges}
    assert set(inside) == set(true.edges)
    assert min(inside.values()) > 1.0, min(inside, key=lambda edge: inside[edge])
    assert max(outside.values()) < 1e-3, max(outside, key=lambda edge: outside[edge])


@pytest.mark.parametrize("name", ["goal", "edge", "predecessor"])
@pytest.mark.parametrize("generic", [True, False])
def test_the_circuit_of_one_answer(name, generic):
    """At the one position that a contrast reads: other trees put in, or the contrast's own altered runs."""
    task = TreeTask(TreeSource(depths=(3,), labels=64, nodes=8))
    contrast = task.contrasts(count=80)[name]
    put = Intervention("positional_mean", contrast.source) if generic else Intervention("patch", contrast.destination)
    model = construct(task, "forward", dtype=torch.float64).model
    metric = contrast.metrics["log_probability"]
    found = patch_edges(model, contrast.source, metric, put, read=contrast.read)
    effect = dict(zip(found.edges, found.scores().tolist(), strict=True))
    true = task.circuit("forward", "positional_mean" if generic else f"resample:{name}", read=contrast.read).edges
    assert true <= set(effect)
    assert min(effect[edge] for edge in true) > 0.05, min(true, key=lambda edge: effect[edge])
    assert max(value for edge, value in effect.items() if edge not in true) < 1e-3


def test_circuits_of_parts_of_the_answers_make_up_the_whole():
    layout = TreeTask(TreeSource(depths=(3,), nodes=8)).layout
    parts = [true_circuit(layout, "forward", "resample", [position]).edges for position in layout.read]
    assert frozenset().union(*parts) == true_circuit(layout, "forward", "resample").edges
    assert not true_circuit(layout, "forward", "resample:goal", [layout.goal + 1]).edges
    assert set(construct(TreeTask(), "forward").circuits) == set(KINDS)
    assert "resample:predecessor" not in construct(TreeTask(direction="backward"), "backward").circuits
