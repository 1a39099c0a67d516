"""The trainable models: their parts against the formula, the start, and the shapes that are refused."""

import math

import pytest
import torch

from headlab.interp.model import run
from headlab.models.hooked import Architecture, build
from headlab.models.retrieval.architecture import architecture, start, summary
from headlab.models.retrieval.family import nearest_points, sum_of_maxima


@pytest.mark.parametrize("encoder", ["linear", "mlp"])
@pytest.mark.parametrize("sets", [None, ((0, 1, 2), (2, 4))])
def test_the_model_is_the_formula(encoder: str, sets: tuple[tuple[int, ...], ...] | None) -> None:
    family = nearest_points(2, 5, sets=sets)
    model = start(architecture(family, 3, encoder=encoder, width=2), seed=1, dtype="float64")
    tokens = family.draw(4, torch.Generator().manual_seed(0)).double()
    embed, attention, readout = model.embed, model.blocks[0].attn, model.unembed
    features = tokens if encoder == "linear" else torch.relu(tokens @ embed.W_in + embed.b_in)
    encoded = features @ embed.W_E + embed.b_E + model.pos_embed.W_pos[:5]
    c0 = embed.c0 + model.pos_embed.W_pos[5]
    total = c0.expand(4, -1)
    for head in range(3):
        query = c0 @ attention.W_Q[head]
        weights = (encoded @ attention.W_K[head] @ query / math.sqrt(2)).softmax(dim=1)
        total = total + torch.einsum("bt,bte->be", weights, encoded @ attention.W_V[head]) @ attention.W_O[head]
    hidden = torch.nn.functional.gelu(total @ readout.W_0 + readout.b_0)
    answers = (hidden @ readout.W_1 + readout.b_1)[:, 0]
    assert torch.allclose(run(model, tokens)[:, -1, 0], answers, rtol=0, atol=1e-12)


def test_order_shows_only_where_sets_need_it() -> None:
    whole, parted = sum_of_maxima(2, 6), nearest_points(2, 6, sets=((0, 1), (2, 3)))
    for family, matters in ((whole, False), (parted, True)):
        model = start(architecture(family, 2), seed=0, dtype="float64")
        tokens = family.draw(3, torch.Generator().manual_seed(0))
        answers, turned = (run(model, each)[:, -1] for each in (tokens, tokens.flip(1)))
        assert torch.allclose(answers, turned, atol=1e-12) != matters


@pytest.mark.parametrize("layers", [1, 2])
def test_what_trains_and_how_it_starts(layers: int) -> None:
    before = torch.get_rng_state()
    design = architecture(sum_of_maxima(4, 8), 4, encoder="mlp", layers=layers)
    model, again, other = (start(design, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert not {name for name in trained if "attn.b_" in name or "pos_embed" in name}
    for name in trained:
        value = model.state_dict()[name]
        assert torch.equal(value, again.state_dict()[name])
        assert bool(value.any()) != name.rsplit(".", 1)[-1].startswith("b_")
    assert not torch.equal(model.embed.c0, other.embed.c0)
    assert model.cfg.n_layers == layers
    rebuilt = build(Architecture.from_json(design.to_json()))
    assert {n: p.shape for n, p in rebuilt.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}


def test_fixed_width_per_head_and_fixed_total_width() -> None:
    family = sum_of_maxima(4, 8)
    assert summary(architecture(family, 3)) == {
        "heads": 3,
        "width": 8,
        "d_model": 24,
        "layers": 1,
        "encoder": "linear",
    }
    fixed = summary(architecture(family, 4, total_width=32, encoder="mlp", layers=2))
    assert (fixed["width"], fixed["d_model"], fixed["layers"], fixed["encoder"]) == (8, 32, 2, "mlp")
    with pytest.raises(ValueError, match="3 heads do not divide a total width of 32: use 33"):
        architecture(family, 3, total_width=32)


def test_bad_requests_are_named() -> None:
    family = sum_of_maxima(2, 4)
    for options in ({"heads": 0}, {"heads": 1, "width": 0}, {"heads": 1, "layers": 0}, {"heads": 1, "readout": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            architecture(family, **options)
    with pytest.raises(ValueError, match="choose linear or mlp"):
        architecture(family, 2, encoder="convolution")
    misfit = Architecture(
        {**architecture(family, 1).config, "d_model": 10}, {"embed": {"part": "PlacedEmbed", "size": 3}}
    )
    with pytest.raises(ValueError, match="not 4 tokens of 3 features each"):
        build(misfit)
