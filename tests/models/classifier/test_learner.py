"""Seeds trained together: equal to the HookedTransformers, to a plain formula, and to trainings one at a time."""

import math

import pytest
import torch
from torch.nn import functional

from headlab.models.classifier.architecture import class_reader, place_reader, start
from headlab.models.classifier.learner import Data, EncoderLearner
from headlab.models.learner import ModelLearner
from headlab.models.recipe import Recipe
from headlab.models.training import fit

RECIPE = Recipe(steps=12, lr=1e-2, warmup=2, schedule="cosine", record=1)


def data(places: bool, count: int = 48, length: int = 5, size: int = 3, answers: int = 4) -> Data:
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(count + 16, length + places, size, generator=generator)
    right = torch.randint(length if places else answers, (count + 16,), generator=generator)
    return Data(rows[:count], right[:count], rows[count:], right[count:])


def design(places: bool):
    shape = {"size": 3, "length": 5, "heads": 3, "width": 4, "layers": 2}
    return place_reader(**shape) if places else class_reader(**shape, classes=4)


def read(model, tokens, places: bool):
    logits = model(tokens)
    return logits[:, :-1, 0] if places else logits[:, -1]


@pytest.mark.parametrize("places", [False, True])
def test_each_seed_answers_as_its_hooked_transformer_after_training(places):
    given = data(places)
    learner = EncoderLearner(design(places), given, seeds=[4, 7], batch=16)
    fit(learner, RECIPE)
    for index in range(2):
        with torch.no_grad():
            expected = read(learner.export(index), given.held, places)
            torch.testing.assert_close(learner.outputs(given.held[None])[index], expected, atol=2e-6, rtol=1e-5)


def test_a_layer_is_the_plain_formula():
    """Pre-norm attention of every head and a ReLU network, written out for one sequence in float64."""
    model = start(class_reader(size=3, length=4, classes=2, heads=2, width=3, layers=1), seed=5, dtype="float64")
    w = {name: value.detach() for name, value in model.named_parameters()}
    for name, value in w.items():
        if name.rsplit(".", 1)[-1].startswith("b") or name.endswith(".w"):
            value += 0.1 * torch.arange(value.numel(), dtype=torch.float64).view(value.shape)
    tokens = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def norm(x, name):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[name + ".w"] + w[name + ".b"]

    x = torch.cat([tokens @ w["embed.W_E"] + w["embed.b_E"], w["embed.c0"][None]]) + w["pos_embed.W_pos"]
    n, b = norm(x, "blocks.0.ln1"), "blocks.0.attn."
    after = x + w[b + "b_O"]
    for head in range(2):
        q, k, v = (n @ w[f"{b}W_{c}"][head] + w[f"{b}b_{c}"][head] for c in "QKV")
        after = after + (q @ k.T / math.sqrt(3)).softmax(-1) @ v @ w[b + "W_O"][head]
    m = "blocks.0.mlp."
    hidden = (norm(after, "blocks.0.ln2") @ w[m + "W_in"] + w[m + "b_in"]).relu()
    final = norm(after + hidden @ w[m + "W_out"] + w[m + "b_out"], "ln_final")
    expected = final[-1] @ w["unembed.W_U"] + w["unembed.b_U"]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens[None])[0, -1], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("places", [False, True])
def test_seeds_together_train_as_each_hooked_transformer_alone(places):
    given = data(places)
    together = EncoderLearner(design(places), given, seeds=[0, 1], batch=16)
    run = fit(together, RECIPE)

    for index, seed in enumerate(together.seeds):
        model = start(design(places), seed=seed)

        def draw(_, step, index=index):
            return together.rows(step)[index]

        def loss(model, rows):
            return functional.cross_entropy(read(model, given.train[rows], places), given.targets[rows])

        alone = ModelLearner(model, seed=seed, draw=draw, loss=loss)
        fit(alone, RECIPE)
        with torch.no_grad():
            one, other = (read(model, given.held, places), together.outputs(given.held[None])[index])
            # a constant added to all scores changes no loss, and Adam moves it by rounding errors
            torch.testing.assert_close(one.log_softmax(-1), other.log_softmax(-1), atol=1e-3, rtol=0)
    assert run.history[-1]["loss"][0] < run.history[0]["loss"][0]


def test_every_sequence_comes_once_before_any_comes_again_and_seeds_differ():
    learner = EncoderLearner(design(False), data(False), seeds=[0, 1], batch=16)
    first, second = (torch.cat([learner.rows(step) for step in steps], 1) for steps in ((0, 1, 2), (3, 4, 5)))
    assert [sorted(row) for row in first.tolist()] == [list(range(48))] * 2
    assert first.tolist() != second.tolist()
    assert first[0].tolist() != first[1].tolist()


def test_accuracy_and_rank_are_counted_by_hand():
    given = data(True)
    learner = EncoderLearner(design(True), given, seeds=[2], batch=16)
    with torch.no_grad():
        scores = learner.outputs(given.held[None])[0]
    ranks = [1 + sum(s > row[right] for s in row) for row, right in zip(scores.tolist(), given.held_targets.tolist())]
    found = learner.measure()
    assert found["held_accuracy"].item() == pytest.approx(sum(rank == 1 for rank in ranks) / len(ranks))
    assert found["held_rank"].item() == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks))


def test_a_tie_is_no_right_answer():
    given = data(True)
    learner = EncoderLearner(design(True), given, seeds=[0], batch=16)
    with torch.no_grad():
        learner.leaves["unembed.W_U"].zero_()
    assert learner.measure()["accuracy"].item() == 0


def test_half_precision_stays_near_single_precision():
    given = data(False)
    single, half = (
        EncoderLearner(design(False), given, seeds=[0], batch=16, precision=precision)
        for precision in (torch.float32, torch.bfloat16)
    )
    with torch.no_grad():
        one, other = (each.outputs(given.held.to(each.precision)[None]) for each in (single, half))
    assert one.dtype == other.dtype == torch.float32
    assert float((one - other).abs().max()) < 0.05 * float(one.abs().max())


@pytest.mark.parametrize("batch", [0, 49])
def test_a_batch_that_cannot_be_drawn_is_refused(batch):
    with pytest.raises(ValueError, match="1 to 48 of the training sequences"):
        EncoderLearner(design(False), data(False), seeds=[0], batch=batch)
