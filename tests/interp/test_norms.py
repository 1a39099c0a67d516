"""What a norm is, asked of modules whose class is known."""

import pytest
import torch
from torch import nn

from headlab.interp.errors import RequestError
from headlab.interp.norms import norm_of
from tests.interp.bridges import ARCHITECTURES, bridge
from tests.interp.hand_built import random_model

ROWS = torch.randn(3, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64) - 1.0


@pytest.mark.parametrize("final_rms", [False, True])
@pytest.mark.parametrize("kind", ["LN", "LNPre", "RMS", "RMSPre"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_hooked_transformer_s_norms_by_what_they_do(kind, final_rms, dtype):
    model = random_model(normalization_type=kind, final_rms=final_rms, d_model=16, dtype=dtype)
    for module, rms in ((model.blocks[0].ln1, kind.startswith("RMS")), (model.ln_final, None)):
        norm = norm_of(model, module)
        assert norm is not None
        assert norm.centres is not (type(module).__name__.startswith("RMS") if rms is None else rms)
        rows = ROWS.to(dtype)
        expected = module(rows[None])[0]
        tolerance = {torch.float64: 1e-9, torch.float32: 1e-5}.get(dtype, 3e-2)
        torch.testing.assert_close(norm(rows).to(expected), expected, rtol=tolerance, atol=tolerance)
        # The frozen norm is the norm where its own scale is put in, and affine elsewhere.
        torch.testing.assert_close(norm.frozen(rows, norm.scale(rows)), norm(rows))
        matrix = torch.randn(16, 5, generator=torch.Generator().manual_seed(1)).double()
        one = torch.ones(3, 1, dtype=torch.float64)
        bias = norm.bias.double() @ matrix
        torch.testing.assert_close(norm.frozen(rows.double(), one) @ matrix - bias, rows.double() @ norm.folded(matrix))
        leaf = rows.to(norm.weight.dtype).requires_grad_(True)
        upstream = matrix[:, :3].T.to(leaf)
        expected = torch.autograd.grad((norm(leaf) * upstream).sum(), leaf)[0]
        torch.testing.assert_close(norm.pulled_back(upstream, leaf.detach()), expected)
    if final_rms:
        assert not norm_of(model, model.ln_final).centres


def test_a_final_norm_may_be_of_another_kind_than_the_blocks():
    model = random_model(normalization_type="LN", final_rms=True)
    assert norm_of(model, model.blocks[1].ln1).centres
    assert not norm_of(model, model.ln_final).centres


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_bridge_s_norms_by_what_they_do(architecture):
    model = bridge(architecture)
    norm = norm_of(model, model.ln_final)
    assert norm is not None
    assert norm.centres is (architecture in ("native", "gpt2"))
    torch.testing.assert_close(norm(ROWS), model.ln_final(ROWS[None])[0], rtol=1e-6, atol=1e-6)


def test_no_norm_and_another_norm():
    model = random_model()
    assert norm_of(model, None) is None
    assert norm_of(model, nn.Identity()) is None
    with pytest.raises(RequestError, match="Tanh is neither a LayerNorm nor an RMSNorm"):
        norm_of(model, nn.Tanh())
