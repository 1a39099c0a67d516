import pytest
import torch

from headlab.models.hooked import build, initialise
from headlab.models.tree.architecture import architecture
from headlab.models.tree.constructed import construct
from headlab.models.tree.evaluation import evaluate
from headlab.models.tree.generation import agreement, generate, generate_paths
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask

TASKS = (
    (TreeTask(TreeSource(depths=(1, 3), labels=12, nodes=None)), 1),
    (TreeTask(TreeSource(depths=(2,), labels=12), "backward"), 1),
    (TreeTask(TreeSource(depths=(2,), labels=12), chain_of_thought=False), 3),
    (TreeTask(TreeSource(depths=(2,), labels=12), form="plain"), 2),
)


def some_model(task, layers):
    model = build(architecture(task, heads=2, layers=layers, d_model=12, d_head=4), dtype=torch.float64)
    initialise(model, scale=0.8, seed=3)
    return model


@pytest.mark.parametrize(("task", "layers"), TASKS)
def test_every_generated_token_is_what_a_full_forward_says(task, layers):
    """Teacher-force what the model itself wrote: each label must be the full forward's argmax at its place."""
    model = some_model(task, layers)
    examples = task.examples(count=8)
    for row in range(8):
        goal = int(examples.read[row, 0])
        prompt = examples.inputs[row : row + 1, : goal + 1]
        written = generate(model, task, prompt, most=6)
        sequence, carried, forward = prompt, prompt[0, -1], not task.chain_of_thought
        for label in written.labels[0].tolist():
            assert label == int(model(sequence)[0, -1].argmax())
            if task.form == "plain":
                token = torch.tensor(label)
            else:
                before = task.tokens.nul if forward else int(carried[1])
                token = torch.tensor([3 if forward else 2, label, before])
            forward = forward or label == task.tokens.turn
            sequence, carried = torch.cat([sequence, token[None, None]], dim=1), token
            if label == {"forward": task.tokens.end, "backward": task.tokens.turn}[task.direction]:
                break


@pytest.mark.parametrize(("task", "layers"), TASKS)
def test_generation_is_right_exactly_where_teacher_forcing_is(task, layers):
    found = agreement(some_model(task, layers), task, task.examples(count=30))
    assert found.disagreements == 0
    assert found.generated == found.teacher_forced


def test_a_constructed_model_writes_whole_paths_and_stops():
    task = TreeTask(TreeSource(depths=(1, 4, 2)))
    model = construct(task, "forward").model
    examples = task.examples(count=25)
    assert torch.equal(generate_paths(model, task, examples), torch.where(examples.read >= 0, examples.targets, -1))
    goal = int(examples.read[0, 0])
    found = generate(model, task, examples.inputs[:1, : goal + 1])
    length = int((examples.read[0] >= 0).sum())
    assert found.finished.all()
    assert found.labels[0, length - 1] == task.tokens.end
    assert (found.labels[0, length:] == -1).all()


def test_what_does_not_finish_says_so():
    task = TreeTask(TreeSource(depths=(3,)))
    model = construct(task, "forward").model
    prompt = task.examples(count=2).inputs[:, : task.layout.goal + 1]
    found = generate(model, task, prompt, most=4)
    assert not found.finished.any()
    assert found.labels.shape == (2, 4)


def test_bad_requests_are_one_sentence():
    task = TreeTask(TreeSource(depths=(2,), labels=12))
    plan = architecture(task, heads=1, d_model=8, d_head=4, context=20)
    prompt = task.examples(count=1).inputs[:, : task.layout.goal + 1]
    with pytest.raises(ValueError, match="do not fit the model's context of 20"):
        generate(build(plan), task, prompt)
    normed = build(type(plan)({**plan.config, "normalization_type": "LNPre"}, plan.parts))
    with pytest.raises(ValueError, match="attention-only models without norm"):
        generate(normed, task, prompt)
    with pytest.raises(ValueError, match="give the model its own task"):
        evaluate(build(plan), TreeTask(TreeSource(depths=(2,), labels=13)))
    assert evaluate(normed, task, count=3).paths == 3
