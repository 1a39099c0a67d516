"""The ladder: each construction as it is, then with one difficulty at a time, each a transformation with a lemma."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from headlab.analyses.calibrate.rung import Rung, Truth, renamed, rotate
from headlab.analyses.calibrate.tasks import SETTINGS, Setting
from headlab.interp.circuits import END, START, Edge, Node
from headlab.models.enlarged import enlarged

SHAKE = 0.01  # of each tensor's root mean square: 0.03 makes many cells void, 0.1 nearly all
NORM = 1000.0  # size of the constant axis under RMSNorm
SHARE = 0.5  # of what the heads write, that the MLP takes back
Q_K_V = ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V")


def _generator(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _normal(shape: Any, generator: Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def shaken(rung: Rung, seed: int, size: float = SHAKE) -> Rung:
    """Every weight tensor plus Gaussian noise of `size` times its own root mean square.

    Without a noise floor false edges have effects of exactly 0, and any trace of a true one outranks them. The truth is
    that of the rung below where enumeration upholds it.
    """
    model, generator = copy.deepcopy(rung.model), _generator(1000 + seed)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = float(parameter.double().square().mean().sqrt())
            if scale > 0:
                parameter.add_((size * scale * _normal(parameter.shape, generator)).to(parameter))
    return replace(rung, model=model, basis="enumerated")


def unread_heads(setting: Setting, seed: int) -> Rung:
    """Four heads more that nobody reads: two look where true heads look, two anywhere, and write to axes of their own.

    Lemma: no weight reads those axes, so that no edge of theirs acts.
    """
    rung = setting.rung("unread heads")
    count, width = rung.model.cfg.n_heads, rung.model.cfg.d_model
    model, design = enlarged(rung.model, rung.architecture, heads=4, width=8)
    attention, generator = model.blocks[0].attn, _generator(seed)
    rank = attention.W_Q.shape[-1]
    with torch.no_grad():
        for index in range(4):
            head = count + index
            if index < 2:
                for name in Q_K_V:
                    getattr(attention, name)[head] = getattr(attention, name)[index % count]
            else:
                for name in ("W_Q", "W_K", "W_V"):
                    factor = 1.0 if name == "W_V" else 2.0
                    getattr(attention, name)[head, :width] = factor * _normal((width, rank), generator)
            attention.W_O[head, :, width:] = _normal((rank, 8), generator)
    return replace(rung, model=rotate(model, design, seed + 1), architecture=design)


def negative_heads(setting: Setting, seed: int) -> Rung:
    """Every head split in two that look alike and write 1.5 and -0.5 of what it wrote, and two heads nobody reads.

    Lemma: the copies' weights sum to 1, so that outputs stay, and an edge of a copy acts by |weight| times the
    original's effect.
    """
    rung = setting.rung("negative heads")
    count, width = rung.model.cfg.n_heads, rung.model.cfg.d_model
    model, design = enlarged(rung.model, rung.architecture, heads=count + 2, width=8)
    attention, generator = model.blocks[0].attn, _generator(seed)
    rank = attention.W_Q.shape[-1]
    with torch.no_grad():
        for head in range(count):
            _look_alike(attention, head, count + head)
            attention.W_O[count + head] = -0.5 * attention.W_O[head]
            attention.W_O[head] *= 1.5
        for head in (2 * count, 2 * count + 1):
            for name in ("W_Q", "W_K", "W_V"):
                getattr(attention, name)[head, :width] = _normal((width, rank), generator)
            attention.W_O[head, :, width:] = _normal((rank, 8), generator)
    copies = renamed(rung.truth, {head: count + head for head in range(count)})
    truth = {kind: edges | copies[kind] for kind, edges in rung.truth.items()}
    return replace(rung, model=rotate(model, design, seed + 1), architecture=design, truth=truth)


def _look_alike(attention: Any, head: int, other: int) -> None:
    for name in Q_K_V:
        getattr(attention, name)[other] = getattr(attention, name)[head]


def cancelling_pair(setting: Setting, seed: int) -> Rung:
    """Two heads that look as head 0 does and write +1.5 and -1.5 of what it writes: each acts alone."""
    rung = setting.rung("cancelling pair")
    count = rung.model.cfg.n_heads
    model, design = enlarged(rung.model, rung.architecture, heads=2)
    attention = model.blocks[0].attn
    with torch.no_grad():
        for head, factor in ((count, 1.5), (count + 1, -1.5)):
            _look_alike(attention, 0, head)
            attention.W_O[head] = factor * attention.W_O[0]
    first, second = (renamed(rung.truth, {0: count + index}) for index in range(2))
    return replace(
        rung,
        model=rotate(model, design, seed + 1),
        architecture=design,
        contested={kind: (first[kind] | second[kind]) - edges for kind, edges in rung.truth.items()},
        note="the pair's edges act singly and are needed by nothing: contested, not scored",
    )


def mlp_undoes_half(setting: Setting, seed: int) -> Rung:
    """An MLP that takes half of what the heads wrote away, an unembedding that makes up for it, and unread neurons.

    Lemma: with P the projector on the span of W_O, the MLP adds -P x / 2 (as ReLU pairs), so that what heads wrote is
    halved and what the embedding wrote elsewhere stays; the unembedding takes twice as much. Where a head was read by
    the end it is now read by the MLP too, and the MLP by the end.
    """
    rung = setting.rung("MLP undoes half")
    width = rung.model.cfg.d_model
    model, design = enlarged(rung.model, rung.architecture, width=8, neurons=2 * width + 6)
    block, generator = model.blocks[0], _generator(seed)
    written = block.attn.W_O.detach().reshape(-1, width + 8)
    projector = torch.linalg.pinv(written) @ written
    with torch.no_grad():
        block.mlp.W_in[:, :width], block.mlp.W_in[:, width : 2 * width] = projector[:, :width], -projector[:, :width]
        block.mlp.W_out[:width], block.mlp.W_out[width : 2 * width] = (
            -SHARE * projector[:width],
            SHARE * projector[:width],
        )
        block.mlp.W_in[:width, 2 * width :] = _normal((width, 6), generator)
        block.mlp.W_out[2 * width :, width:] = 3 * _normal((6, 8), generator)
    _rescale(model, 1 / (1 - SHARE))
    mlp, truth = Node("mlp", 0), {}
    for kind, edges in rung.truth.items():
        ends = [edge for edge in edges if edge.destination == END]
        more = {Edge(edge.source, mlp, "mlp", edge.position) for edge in ends}
        truth[kind] = edges | more | {Edge(mlp, END, "end", edge.position) for edge in ends}
    return replace(rung, model=rotate(model, design, seed + 1), architecture=design, truth=truth)


def _rescale(model: Any, factor: float) -> None:
    """The unembedding takes `factor` times what it took."""
    part = model.unembed
    if hasattr(part, "W_U"):
        part.W_U.data.mul_(factor)
    elif hasattr(part, "outer"):
        assert part.outer.is_linear
        scaled = zip(part.outer.coefficients, part.outer.exponents, strict=True)
        part.outer = replace(part.outer, coefficients=tuple(c * factor if any(e) else c for c, e in scaled))
    else:
        part.sign = part.sign * factor**part.count


def rms_norm(setting: Setting, seed: int) -> Rung:
    """RMSNorm before every layer, and an axis that holds C = 1000 at every position; weights make up for it.

    Lemma: every norm is then C / sqrt(d) up to |x|^2 / 2 C^2. Under `zero` the embedding's own edge into the end takes
    the norm away: it carries no information and is true all the same. The noise is that of `shaken`, put on the
    construction before the axis comes, whose tensors it would drown.
    """
    rung = shaken(setting.rung("RMSNorm"), seed)
    model, design = enlarged(rung.model, rung.architecture, width=1, norm="RMSPre")
    factor = NORM / math.sqrt(model.cfg.d_model)
    where = "embed.W_T" if "types" in design.parts.get("embed", {}) else "pos_embed.W_pos"
    with torch.no_grad():
        dict(model.named_parameters())[where][:, -1] = NORM
        for block in model.blocks:
            for name in ("W_Q", "W_K", "W_V"):
                getattr(block.attn, name).mul_(factor)
    _rescale(model, factor)
    truth: Truth = rung.truth
    if "zero" in truth:
        norm = frozenset(Edge(START, END, "end", position) for position in rung.read)
        truth = {**truth, "zero": truth["zero"] | norm}
    return replace(
        rung,
        model=rotate(model, design, 3),
        architecture=design,
        truth=truth,
        note="zero: what the embedding leaves at the end sets the norm, so that edge acts although it carries nothing",
    )


Maker = Callable[[Setting, int], Rung]
NAMES: dict[str, Maker] = {
    "as built": lambda setting, seed: setting.rung(),
    "shaken": lambda setting, seed: shaken(setting.rung("shaken"), seed),
    "unread heads": lambda setting, seed: shaken(unread_heads(setting, seed), seed),
    "negative heads": lambda setting, seed: shaken(negative_heads(setting, seed), seed),
    "cancelling pair": lambda setting, seed: shaken(cancelling_pair(setting, seed), seed),
    "MLP undoes half": lambda setting, seed: shaken(mlp_undoes_half(setting, seed), seed),
    "RMSNorm": rms_norm,
    "backup head": lambda setting, seed: shaken(setting.backup_rung(), seed),
    "constant carrier": lambda setting, seed: shaken(setting.carrier_rung(), seed),
    "saturated": lambda setting, seed: shaken(setting.rung("saturated", scale=setting.saturated), seed),
}
PROVED: dict[str, Callable[[Setting], Rung]] = {
    "as built": lambda setting: setting.rung(),
    "unread heads": lambda setting: unread_heads(setting, 0),
    "negative heads": lambda setting: negative_heads(setting, 0),
    "cancelling pair": lambda setting: cancelling_pair(setting, 0),
    "MLP undoes half": lambda setting: mlp_undoes_half(setting, 0),
    "backup head": lambda setting: setting.backup_rung(),
    "constant carrier": lambda setting: setting.carrier_rung(),
    "saturated": lambda setting: setting.rung("saturated", scale=setting.saturated),
}
QUICK = ("as built", "shaken", "unread heads", "backup head")


def rung(task: str, name: str, seed: int = 0) -> Rung:
    """The rung `name` of one task, with `seed` for its noise and random weights.

    Raises KeyError for an unknown task or rung, listing those there are.
    """
    if task not in SETTINGS:
        raise KeyError(f"no task '{task}' on the ladder: there are {', '.join(SETTINGS)}")
    if name not in NAMES:
        raise KeyError(f"no rung '{name}' on the ladder: there are {', '.join(NAMES)}")
    return NAMES[name](SETTINGS[task](), seed)
