import pytest
import torch

from headlab.interp.model import activations
from headlab.interp.sites import COMPONENTS, Site, components_of, grid, head_count, hook_name, require_positions
from tests.interp.hand_built import random_model, tokens


@pytest.fixture(scope="module")
def model():
    return random_model(attn_only=False)


@pytest.fixture(scope="module")
def grouped():
    return random_model(n_heads=4, n_key_value_heads=2, d_head=2)


def test_every_component_fires_with_the_stated_axes(model):
    inputs = tokens(3)
    sizes = {"head": 2, "position": 5, "destination": 5, "source": 5}
    for name, component in COMPONENTS.items():
        hook = hook_name(name, 1)
        value = activations(model, inputs, [hook])[1][hook]
        axes = ("position", "head") if component.axes == ("head", "position") else component.axes
        assert value.shape[1 : 1 + len(axes)] == tuple(sizes[axis] for axis in axes), name


def test_unknown_component_lists_those_there_are():
    with pytest.raises(KeyError, match=r"unknown component 'zz'.*resid_pre.*pattern"):
        hook_name("zz", 0)


def test_result_says_that_z_is_meant():
    with pytest.raises(KeyError, match=r"edit z.*use_attn_result"):
        hook_name("result", 0)


def test_attention_only_model_names_the_sites_it_has():
    model = random_model()
    assert components_of(model) == tuple(c for c in COMPONENTS if c not in ("resid_mid", "mlp_out"))
    for absent in ("resid_mid", "mlp_out"):
        with pytest.raises(KeyError, match=f"no {absent}.*resid_pre, resid_post, attn_out, z"):
            grid(model, absent, position_count=5)


def test_parallel_attention_and_mlp_has_no_resid_mid():
    model = random_model(attn_only=False, parallel_attn_mlp=True)
    assert "resid_mid" not in components_of(model)
    assert "mlp_out" in components_of(model)


def test_key_value_heads_are_the_ones_swept(grouped):
    assert [head_count(grouped, name) for name in ("q", "z", "pattern", "k", "v")] == [4, 4, 4, 2, 2]
    assert grid(grouped, "k", position_count=5).shape == (2, 2, 5)
    with pytest.raises(IndexError, match="key-value head 3 does not exist: there are key-value heads 0 to 1"):
        grid(grouped, "v", position_count=5, heads=[3])


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"layers": [2]}, IndexError, "layer 2 does not exist: there are layers 0 to 1"),
        ({"heads": [-1]}, IndexError, "head -1 does not exist: there are heads 0 to 1"),
        ({"positions": [5]}, IndexError, "position 5 does not exist: there are positions 0 to 4"),
        ({"positions": [-6]}, IndexError, "position -6 does not exist"),
        ({"positions": []}, ValueError, "no position was given"),
        ({"positions": [4, -1]}, ValueError, "name one twice"),
        ({"by": ("layer", "source")}, KeyError, "z has no axis 'source': its axes are layer, head, position"),
        ({"by": ("head",)}, ValueError, "must name layer"),
        ({"by": ("layer", "head", "head")}, ValueError, "each axis once"),
        ({"sources": [0]}, ValueError, "no source positions"),
    ],
)
def test_what_does_not_exist_is_named(model, options, error, told):
    with pytest.raises(error, match=told):
        grid(model, "z", position_count=5, **options)


def test_residual_has_no_heads(model):
    with pytest.raises(ValueError, match="resid_pre has no heads"):
        grid(model, "resid_pre", position_count=5, heads=[0])


def test_positions_count_from_either_end():
    assert require_positions([-1, 0], 5) == (4, 0)
    assert require_positions(None, 3) == (0, 1, 2)


def test_sites_come_in_the_order_of_the_axes(model):
    cells = grid(
        model, "z", position_count=5, layers=[1], heads=[1, 0], positions=[3, 4], by=("position", "layer", "head")
    )
    assert cells.shape == (2, 1, 2)
    assert [str(site) for site in cells.sites()] == ["z 1.1@3", "z 1.0@3", "z 1.1@4", "z 1.0@4"]


def test_site_selects_its_own_entries():
    z = torch.arange(2 * 5 * 3 * 4).reshape(2, 5, 3, 4)
    assert torch.equal(z[Site("z", 0, head=2, position=4).index()], z[:, 4, 2])
    assert torch.equal(z[Site("z", 0, head=2).index()], z[:, :, 2])
    pattern = torch.arange(2 * 3 * 5 * 5).reshape(2, 3, 5, 5)
    assert torch.equal(pattern[Site("pattern", 1, head=1, position=4, source=2).index()], pattern[:, 1, 4, 2])
    assert Site("pattern", 1).hook == "blocks.1.attn.hook_pattern"
