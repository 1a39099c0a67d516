"""Prompts to contrasts: on a model with a word tokenizer, against values computed by hand."""

import pytest
import torch

from headlab.interp.errors import RequestError
from headlab.interp.patching import patch_contrast
from headlab.interp.prompts import prompt_contrast, token_table
from headlab.models.hooked import Architecture, build, initialise

WORDS = ["<bos>", "The", "capital", "of", "France", "Italy", "is", "Paris", "Rome", "In", "short", "a", "b"]


def tokenizer(split=True):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<bos>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<bos>", pad_token="<bos>", unk_token="<bos>")


@pytest.fixture
def model():
    config = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "n_ctx": 10, "d_vocab": len(WORDS)}
    made = build(Architecture({**config, "attn_only": True, "normalization_type": "LN", "act_fn": "relu"}))
    initialise(made, scale=0.6, seed=3)
    made.tokenizer, made.cfg.tokenizer_prepends_bos, made.cfg.default_prepend_bos = tokenizer(), False, True
    return made


PAIR = ("The capital of France is", "The capital of Italy is")


def test_a_pair_of_strings(model):
    contrast = prompt_contrast(model, *PAIR, "Paris", "Rome")
    assert contrast.source.tolist() == [[0, 1, 2, 3, 4, 6]]
    assert contrast.destination.tolist() == [[0, 1, 2, 3, 5, 6]]
    assert contrast.differ == ((4,),)
    assert contrast.read == (5,)
    assert contrast.positions == ("0 <bos>", "1 The", "2 capital", "3 of", "4 France/Italy", "5 is")
    assert prompt_contrast(model, *PAIR, "Paris", "Rome", prepend_bos=False).source.shape == (1, 5)


def test_ids_need_no_tokenizer(model):
    model.tokenizer = None
    contrast = prompt_contrast(model, [[1, 2, 3]], [[1, 4, 3]], 7, 8)
    assert contrast.positions == ("0 1", "1 2/4", "2 3")
    with pytest.raises(RequestError, match="no tokenizer: give token ids"):
        prompt_contrast(model, *PAIR, 7, 8)


def test_metrics_by_hand(model):
    contrast = prompt_contrast(model, *PAIR, "Paris", "Rome")
    with torch.no_grad():
        logits = {name: model(run)[0, -1].double() for name, run in
                  (("clean", contrast.source), ("corrupted", contrast.destination))}  # fmt: skip
    p = {name: values.softmax(-1) for name, values in logits.items()}
    bad = logits["corrupted"]
    expected = {
        "logit difference": bad[7] - bad[8],
        "log probability": p["corrupted"][7].log(),
        "probability": p["corrupted"][7],
        "negative rank": -(bad > bad[7]).sum(),
        "negative KL": -(p["clean"] * (p["clean"] / p["corrupted"]).log()).sum(),
    }
    with torch.no_grad():
        run = model(contrast.destination)[:, [5]]
        clean = model(contrast.source)[:, [5]]
    for name, metric in contrast.metrics.items():
        assert float(metric(run)) == pytest.approx(float(expected[name]), abs=1e-5)
    assert float(contrast.metrics["negative KL"](clean)) == pytest.approx(0, abs=1e-6)


def test_lengths_in_one_batch_are_what_each_prompt_gives_alone(model):
    short, long = PAIR, tuple(f"In short The {text.split(' ', 1)[1]}" for text in PAIR)
    both = prompt_contrast(model, [short[0], long[0]], [short[1], long[1]], "Paris", "Rome")
    assert both.last.tolist() == [5, 7]
    assert both.read == (5, 7)
    together = patch_contrast(model, both, component="z", by=("layer", "head"))
    for row, pair in enumerate((short, long)):
        alone = patch_contrast(
            model, prompt_contrast(model, *pair, "Paris", "Rome"), component="z", by=("layer", "head")
        )
        torch.testing.assert_close(together.effects[..., row], alone.effects[..., 0], atol=1e-5, rtol=1e-4)
        assert alone.effects.abs().max() > 1e-3


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ((PAIR[0], PAIR[0], "Paris", "Rome"), "are equal"),
        ((PAIR[0], "The capital of Italy", "Paris", "Rome"), "6 and 5 tokens"),
        ((PAIR[0], [*PAIR], "Paris", "Rome"), "1 clean prompts and 2"),
        ((*PAIR, "Paris France", "Rome"), "2 tokens"),
        ((*PAIR, ["Paris", "Rome"], "Rome"), "2 answers for 1"),
        (([PAIR[0], "a of b"], [PAIR[1], "b of b"], "Paris", "Rome"), "pair 0 differs at"),
        ((PAIR[0] + " a" * 9, PAIR[1] + " a" * 9, "Paris", "Rome"), "at most 10"),
        (([[1, 99]], [[1, 2]], 7, 8), "99 does not exist"),
        (([[1, 2]], [[1, 3]], 7, -1), "-1 does not exist"),
        (([[]], [[]], 7, 8), "without tokens"),
    ],
)
def test_bad_requests_are_one_sentence(model, request_, sentence):
    with pytest.raises(RequestError, match=sentence):
        prompt_contrast(model, *request_)


def test_pairs_that_differ_elsewhere_can_be_asked_for(model):
    contrast = prompt_contrast(
        model, [PAIR[0], "a of b a is"], [PAIR[1], "b of b a is"], "Paris", "Rome", same_places=False
    )
    assert contrast.differ == ((4,), (1,))


def test_padding_that_is_seen_is_refused(model):
    model.cfg.attention_dir = "bidirectional"
    with pytest.raises(RequestError, match="later positions"):
        prompt_contrast(model, [PAIR[0], "a is"], [PAIR[1], "b is"], "Paris", "Rome", same_places=False)


def test_the_table_shows_where_prompts_part(model):
    table = token_table(model, [1, 4, 6], [1, 5, 6, 7])
    assert [line.count("<>") for line in table.splitlines()] == [0, 0, 1, 0, 1]
