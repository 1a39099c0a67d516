"""Endpoint selection by hand with a known mechanism: switching heads, leaks, defaults, unread and loud heads."""

import torch

from headlab.models.hooked import Architecture, HookedTransformer, build
from tests.interp.hand_built import two_heads

N = 5
FAR = 60.0  # an attention score that nothing is left of


def endpoint_model(
    *,
    leak: float | None = None,
    default: bool = False,
    loudness: tuple[float, ...] = (1.0, 1.0),
    third: str | None = None,
    read: bool = True,
) -> HookedTransformer:
    """Head 0 reads u under selector 1, head 1 reads v under selector 2, both from '#', exactly.

    Axes: n vertices, the selector's `first` and `second`, query, `at u`, `at v`, and two that nothing reads. A head
    rests on its own end and '#' (score 0, half each) when it is asked for, and on the selector (score FAR, value zero)
    when it is not; the other end has score -FAR.

    leak: the attention of head 0 on u under selector 2, by that under 1; default: head 0 reads u alone, whatever is
    asked. loudness: of what each head writes. third: a third head, "u" reads u always, "unread" does so 100 times as
    loud on an axis that nothing reads, "uniform" attends evenly at .3. read: whether the unembedding reads vertices.
    """
    first, second, query, at_u, at_v, lost = range(N, N + 6)
    width, heads = N + 6, 2 + (third is not None)
    config = {"n_layers": 1, "n_heads": heads, "d_model": width, "d_head": N, "n_ctx": 4, "d_vocab": N + 3}
    config |= {"attn_only": True, "normalization_type": None, "use_attn_scale": False}
    model = build(Architecture(config), dtype=torch.float64)
    attention = model.blocks[0].attn
    with torch.no_grad():
        model.embed.W_E[:N, :N] = torch.eye(N)
        model.embed.W_E[N, first] = model.embed.W_E[N + 1, second] = model.embed.W_E[N + 2, query] = 1.0
        model.pos_embed.W_pos[0, at_u] = model.pos_embed.W_pos[1, at_v] = 1.0
        attention.W_Q[:, query, 0] = 1.0
        for head, (other, asked, not_asked) in enumerate(((at_v, first, second), (at_u, second, first))):
            attention.W_K[head, other, 0] = attention.W_K[head, asked, 0] = -FAR
            attention.W_K[head, not_asked, 0] = FAR
        if leak is not None:  # under selector 2: weight 1 on u and on '#', e^s on the selector; under 1: a half
            attention.W_K[0, second, 0] = torch.tensor(2 / leak - 2).log()
        if default:
            attention.W_K[0, :, 0] = 0.0
            attention.W_K[0, at_u, 0] = FAR
        attention.W_V[:, :N] = torch.eye(N)
        attention.W_O[:2, :, :N] = torch.eye(N) * torch.tensor(loudness)[:, None, None]
        if third is not None:
            attention.W_O[2, :, :N] = torch.eye(N)
            attention.W_K[2, at_u, 0] = FAR
        if third == "unread":
            attention.W_O[2] = 0.0
            attention.W_O[2, :, lost] = 100.0
        if third == "uniform":
            attention.W_K[2] = 0.0
            attention.W_O[2] *= 0.3
        if read:
            model.unembed.W_U[:N, :N] = torch.eye(N)
        else:
            model.unembed.W_U[query, 0] = 1.0
    return model


def overridden(loudness: float) -> HookedTransformer:
    """Head 0 always says u; head 1 says v, `loudness` times as loud, where it is asked for. Right in every question."""
    return endpoint_model(default=True, loudness=(1.0, 2 * loudness))


def doubled(model: HookedTransformer | None = None) -> HookedTransformer:
    """Two switching heads, each twice."""
    single = two_heads() if model is None else model
    config = {key: getattr(single.cfg, key) for key in ("d_model", "d_head", "n_ctx", "d_vocab")}
    config |= {"n_heads": 4, "n_layers": 1, "attn_only": True, "normalization_type": None, "use_attn_scale": False}
    model = build(Architecture(config), dtype=torch.float64)
    own = dict(single.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            copies = 2 if ".attn." in name and "b_O" not in name else 1
            parameter.copy_(own[name].repeat(copies, *[1] * (parameter.ndim - 1)))
    return model
