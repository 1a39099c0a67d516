"""A model's own attention scores, to hold QK circuits against."""

import torch

from headlab.interp.model import activations
from headlab.interp.weights import qk_circuit


def own_scores(model, inputs, layer):
    """The model's scores before the softmax [example, head, query, key], up to a constant of each row."""
    names = [f"blocks.{layer}.attn.hook_{name}" for name in ("attn_scores", "pattern")]
    cache = activations(model, inputs, names)[1]
    scores, pattern = (cache[name] for name in names)
    return pattern.log() if torch.equal(scores, pattern) else scores


def require_own_scores(model, inputs, layer, tolerance):
    """QK circuits of the rows that stand before the layer are the scores there, at the offset that they stand at."""
    rotary = model.cfg.positional_embedding_type == "rotary"
    name = f"blocks.{layer}.hook_resid_pre"
    rows = activations(model, inputs, [name])[1][name]
    expected = own_scores(model, inputs, layer)
    count = rows.shape[1]
    found = torch.full_like(expected, torch.nan)
    for example in range(len(rows)):
        for offset in range(count) if rotary else [None]:
            scores = qk_circuit(model, layer, rows[example], rows[example], offset=offset)
            for query in range(count):
                for key in range(query + 1) if offset is None else [query - offset] * (query >= offset):
                    found[example, :, query, key] = scores[:, query, key]
    below = torch.ones(count, count).tril().bool()
    difference = (found - expected)[:, :, below]
    first = (found - expected)[:, :, :, :1].expand_as(found)[:, :, below]  # what a softmax does not feel
    assert float((difference - first).abs().max()) < tolerance
    assert float(expected[:, :, below].std()) > 100 * tolerance
