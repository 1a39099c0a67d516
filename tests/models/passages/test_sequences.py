"""Frozen embeddings, and a question among passages as a sequence."""

import numpy as np
import pytest
import torch
import transformers

from headlab.models.passages import embeddings
from headlab.models.passages.embeddings import embed
from headlab.models.passages.sequences import sequences, similarity_accuracy

TEXTS = ["red green blue", "blue black white", "white pink red"]


def vectors(count, size=6, seed=0):
    made = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(made, dim=1)


def made(length=4, train=5, seed=0):
    questions, passages = vectors(8), vectors(20, seed=1)
    answers = np.arange(8)
    negatives = np.array([[(row + 1 + k) % 20 for k in range(6)] for row in range(8)])
    return (
        questions,
        passages,
        negatives,
        sequences(questions, passages, answers, negatives, length=length, train=train, seed=seed),
    )


def test_the_answer_is_at_its_place_among_the_first_negatives_and_the_question_last():
    questions, passages, negatives, data = made()
    tokens = torch.cat([data.train, data.held]) / 6**0.5
    places = torch.cat([data.targets, data.held_targets])
    assert data.train.shape == (5, 5, 6)
    for row in range(8):
        torch.testing.assert_close(tokens[row, -1], questions[row])
        torch.testing.assert_close(tokens[row, places[row]], passages[row])
        shown = {int((passages - token).square().sum(1).argmin()) for token in tokens[row, :-1]}
        assert shown == {row, *negatives[row, :3].tolist()}


def test_places_depend_on_the_seed_and_use_the_whole_length():
    questions, passages = vectors(200), vectors(200, seed=1)
    negatives = (np.arange(200)[:, None] + np.arange(1, 4)) % 200
    places = [
        sequences(questions, passages, np.arange(200), negatives, length=4, train=100, seed=seed).targets.tolist()
        for seed in (0, 0, 1)
    ]
    assert places[0] == places[1] != places[2]
    assert set(places[0]) == {0, 1, 2, 3}


@pytest.mark.parametrize(("change", "said"), [({"length": 8}, "it can be 2 to 7"), ({"train": 8}, "between 1 and 7")])
def test_what_cannot_be_made_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        made(**change)


def test_the_most_similar_passage_is_counted():
    questions = vectors(8)
    negatives = (np.arange(8)[:, None] + np.arange(1, 4)) % 8
    data = sequences(questions, questions, np.arange(8), negatives, length=4, train=5)
    assert similarity_accuracy(data) == (1.0, 1.0)
    wrong = sequences(questions, -questions, np.arange(8), negatives, length=4, train=5)
    assert similarity_accuracy(wrong) == (0.0, 0.0)


def test_words_on_their_axes_put_like_texts_together_and_repeat():
    texts = ["the cat sat on the mat", "a cat sat on a mat", "stocks fell sharply today", "stocks rose sharply today"]
    found = embed(texts, "tfidf")
    torch.testing.assert_close(found.norm(dim=1), torch.ones(4))
    likeness = found @ found.T
    assert likeness[0, 1] > 0.5 > abs(float(likeness[0, 2]))
    assert torch.equal(found, embed(texts, "tfidf"))


def test_the_encoder_is_the_one_at_hand(monkeypatch):
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    assert embeddings.encoder_at_hand() == "tfidf"
    assert torch.equal(embed(TEXTS), embed(TEXTS, "tfidf"))
    with pytest.raises(ValueError, match=r"headlab\[passages\]"):
        embed(["a"], "minilm")
    with pytest.raises(KeyError, match="unknown encoder 'bert': choose one of auto, minilm, tfidf"):
        embed(["a"], "bert")


def test_texts_without_enough_words_are_refused():
    with pytest.raises(ValueError, match="too few for an embedding"):
        embed(["word", "word"], "tfidf")


def test_a_wheels_model_is_the_mean_over_the_tokens_that_a_text_has(monkeypatch, tmp_path):
    """A tiny model of the same kind in the wheel's place: padding does not count, and no network is asked."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "sky"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(tmp_path)
    transformers.BertTokenizerFast(vocab_file=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    monkeypatch.setattr(embeddings, "wheel_folder", lambda: tmp_path)
    before = torch.random.get_rng_state()
    together = embed(["red", "blue sky red sky"], "minilm")
    assert torch.equal(before, torch.random.get_rng_state())
    alone = torch.cat([embed(["red"], "minilm"), embed(["blue sky red sky"], "minilm")])
    assert together.shape == (2, 8)
    torch.testing.assert_close(together, alone, atol=0.02, rtol=0)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(2))
