import pytest
import torch

from headlab.interp.ablation import ablate_heads
from headlab.interp.errors import RequestError
from headlab.interp.interventions import Intervention
from headlab.interp.padding import seen_padding
from headlab.interp.patching import patch_sweep
from tests.interp import oracle
from tests.interp.hand_built import random_model, tokens

LEFT = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
RIGHT = LEFT.flip(1)


def score(logits):
    return logits[:, -1, 2] - logits[:, -1, 4]


@pytest.mark.parametrize("config", [{}, {"positional_embedding_type": "rotary", "rotary_dim": 4}])
@pytest.mark.parametrize("component", ["z", "k", "pattern", "resid_mid"])
def test_sweeps_under_a_mask_equal_hooks_set_by_hand(config, component):
    model = random_model(attn_only=False, **config)
    source, destination = tokens(3, seed=1), tokens(3)
    result = patch_sweep(model, source, destination, score, component=component, read=[-1], attention_mask=LEFT)
    assert result.engine == "expand"
    assert "an attention mask" in result.notes[0]
    names = [oracle.HOOKS[component].format(layer) for layer in range(2)]
    held = oracle.recorded(model, source, names, attention_mask=LEFT)[1]
    new = {layer: held[name] for layer, name in enumerate(names)}
    cells = oracle.patched_cells(
        model, destination, component, new, result.axes, labels_of(result), [4], attention_mask=LEFT
    )
    expected = torch.stack([score(logits) for logits in cells])
    assert torch.allclose(result.values.flatten(0, -2), expected, atol=1e-11)


def labels_of(result):
    every = {"source": range(5)} if result.component == "pattern" else {}
    return {**result.labels, **every}


def test_padding_after_the_tokens_of_a_causal_model_needs_no_mask_to_run():
    model, runs = random_model(), (tokens(3, seed=1), tokens(3))
    plain = patch_sweep(model, *runs, score, component="z", read=[2])
    masked = patch_sweep(model, *runs, score, component="z", read=[2], attention_mask=RIGHT)
    assert masked.engine == "cone"
    assert torch.equal(plain.values, masked.values)


@pytest.mark.parametrize("mask", [LEFT, RIGHT])
def test_means_leave_padding_out(mask):
    model, inputs = random_model(n_layers=1), tokens(3)
    name = oracle.HOOKS["z"].format(0)
    options = {"attention_mask": mask} if mask is LEFT else {}
    z = oracle.recorded(model, inputs, [name], **options)[1][name]
    read = [4] if mask is LEFT else [2]
    real = [(e, p) for e in range(3) for p in range(5) if mask[e, p]]
    means = {
        "mean": torch.stack([z[e, p] for e, p in real]).mean(0).expand_as(z),
        "positional_mean": torch.stack(
            [torch.stack([z[e, p] for e in range(3) if mask[e, p]]).mean(0) for p in range(5)]
        ).expand_as(z),
    }
    plain = oracle.ablated_group(model, inputs, [], {}, [], read, **options)
    for kind, mean in means.items():
        found = ablate_heads(
            model, inputs, score, kind=kind, reference=inputs, attention_mask=mask, read=read, groups=[[(0, 1)]]
        )
        edited = oracle.ablated_group(model, inputs, [(0, 1)], {0: mean}, list(range(5)), read, **options)
        assert torch.allclose(found.effect[0], score(plain) - score(edited), atol=1e-11)
        blind = ablate_heads(model, inputs, score, kind=kind, reference=inputs, read=read, groups=[[(0, 1)]])
        # The position that is read last has a token in every example, so that its own mean is the same.
        same = kind == "positional_mean" and mask is RIGHT
        assert torch.allclose(found.effect, blind.effect) == same


def test_a_donor_is_padded_as_the_example_is():
    mask = torch.cat([LEFT, LEFT])
    inputs = tokens(6)
    drawn = Intervention("resample", inputs, seed=3).drawn(inputs, mask.bool())
    assert torch.equal(mask[drawn], mask)
    assert (drawn != torch.arange(6)).all()
    with pytest.raises(RequestError, match="example 1 alone has its length"):
        Intervention("resample", inputs[:3]).drawn(inputs[:3], LEFT.bool())
    with pytest.raises(RequestError, match="no reference example"):
        Intervention("resample", tokens(4, seed=2)).drawn(inputs, mask.bool())


def test_a_model_that_sees_marked_padding_is_refused():
    model, inputs = random_model(attention_dir="bidirectional"), tokens(3)
    with pytest.raises(RequestError, match="attends to padding although the attention_mask marks it"):
        ablate_heads(model, inputs, score, kind="zero", attention_mask=LEFT)
    with pytest.raises(RequestError, match=r"attention_mask has shape \[3, 4\], the inputs \[3, 5\]"):
        ablate_heads(model, inputs, score, kind="zero", attention_mask=LEFT[:, 1:])
    with pytest.raises(RequestError, match="example 2 of the attention_mask has no token"):
        ablate_heads(model, inputs, score, kind="zero", attention_mask=LEFT * torch.tensor([[1], [1], [0]]))


class Tokenizer:
    """What `seen_padding` asks of a tokenizer."""

    pad_token_id, bos_token_id, padding_side = 6, 0, "right"


def test_padding_that_nobody_marked_is_noticed():
    model = random_model()
    inputs = tokens(3, vocabulary=6)
    padded = inputs.clone()
    padded[1, :2] = 6
    assert seen_padding(model, padded, [4]) is None  # without a tokenizer nothing says what padding is
    model.tokenizer = Tokenizer()
    assert seen_padding(model, inputs, [4]) is None
    assert "example 1 begins with padding that the model sees" in seen_padding(model, padded, [4])
    assert "example 1" in ablate_heads(model, padded, score, kind="zero").notes[-1]
    assert "example 1" in patch_sweep(model, inputs, padded, score, component="z").notes[-1]
    assert seen_padding(model, padded.flip(1), [2]) is None
    assert "a read position is padding in example 1" in seen_padding(model, padded.flip(1), [2, 4])
    model.cfg.attention_dir = "bidirectional"
    assert "example 1 ends in padding" in seen_padding(model, padded.flip(1), [2])
