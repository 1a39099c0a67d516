"""Endpoint selection with a backup: a third head that takes over where the first one is silent (an OR of two heads)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.interp.errors import RequestError, UnknownName
from headlab.models.basis import Basis, Direction
from headlab.models.constructed import Constructed
from headlab.models.esp.task import EspTask
from headlab.models.hooked import Architecture, build

ETA = 0.1
KINDS = ("positional_mean", "zero")


def backup(
    task: EspTask, *, sink: float | int = 8.0, dtype: torch.dtype | str = torch.float32, device: str = "cpu"
) -> Constructed:
    """Three heads in two layers: 0.0 and 0.1 as in `two_head`, and 1.0, which replaces 0.0 where that is silent.

    Residual axes: `read k` and `write k` per vertex (heads read the first, the unembedding the second, so no head
    reads what another wrote), `first`, `second`, `query` as in `two_head`, `done`, and `selector`, which marks the
    selector's position. Proof sketch, M the sink. 0.0 and 0.1 are the two heads of `two_head`; 0.0 also writes its
    attention on vertices into `done`: a = 1/(2 + 2e^-M) + ... at '#' under '1', about e^-M under '2'. Head 1.0 asks at
    '#' for 3M `first` + (12M done - 2M) `selector`, and so scores
        u and '#': 0;  v: -3M;  the selector: -5M + 12M done under '1', +M + 12M done under '2'.
    With 0.0 alive, done is about 1/2 under '1': the selector has +M, and under '2' too, so that 1.0 rests on a token of
    zero value and writes nothing. With 0.0 silent by `zero`, done is 0: under '1' 1.0 rests on u and '#', 1/2 each,
    just as 0.0 did; by its mean over samples, done is about 1/4 and the scores are -2M under '1' and 4M under '2',
    which does the same. So silencing 0.0 or 1.0 alone costs of the order of e^-M, and both cost 1/2 a logit under '1'.
    Where 0.0 carries another sample's output that also has selector '1' (resample matched on the selector), done stays
    and the backup does not act.

    circuits: the edges that act in the model or once 0.0 is silent. Untied; the induction form has no backup.
    Raises ValueError for a sink that is not positive or a task in the induction form.
    """
    if not sink > 0:
        raise RequestError(f"the sink is {sink}: it must be a positive attention score, e.g. 8")
    if task.induction:
        raise RequestError("the backup is written for (u, v, i, #): take a task without the induction form")
    n = task.n
    reads, writes = [f"read {k}" for k in range(n)], [f"write {k}" for k in range(n)]
    residual = Basis("residual", (*reads, *writes, "first", "second", "query", "done", "selector"))
    head = Basis("head", (*range(n), "done"))
    first, second, query = residual["first"], residual["second"], residual["query"]
    tokens = [*(residual[name] for name in reads), second - first, first - second, ETA * query]
    positions = [-second, -first, residual["selector"], residual.zero]
    match, done = head[0], head["done"]
    ask = residual.linear({"query": match / ETA}, into=head)
    value = residual.linear({name: head[k] for k, name in enumerate(reads)}, into=head)
    telling = residual.linear({name: head[k] + done for k, name in enumerate(reads)}, into=head)
    write = head.linear({k: residual[name] for k, name in enumerate(writes)}, into=residual)
    tell = head.linear(
        {**{k: residual[name] for k, name in enumerate(writes)}, "done": residual["done"]}, into=residual
    )
    keys = [residual.linear({axis: sink * match}, into=head) for axis in ("first", "second")]
    # Two axes of the backup's own space: what it always looks for, and what it avoids once the first head has acted.
    always, enough = head[0], done
    asks = residual.linear({"query": (always + enough * (-2.0)) / ETA, "done": 12.0 * enough}, into=head)
    finds = residual.linear({"first": 3 * sink * always, "selector": sink * enough}, into=head)
    zero_in, zero_out = torch.zeros_like(ask), torch.zeros_like(write)
    state = {
        "embed.W_E": residual.rows(tokens),
        "pos_embed.W_pos": residual.rows(positions),
        "unembed.W_U": _unembedding(residual, writes, n + 3),
        "blocks.0.attn.W_Q": torch.stack([ask, ask]),
        "blocks.0.attn.W_K": torch.stack(keys),
        "blocks.0.attn.W_V": torch.stack([telling, value]),
        "blocks.0.attn.W_O": torch.stack([tell, write]),
        "blocks.1.attn.W_Q": torch.stack([asks, zero_in]),
        "blocks.1.attn.W_K": torch.stack([finds, zero_in]),
        "blocks.1.attn.W_V": torch.stack([value, zero_in]),
        "blocks.1.attn.W_O": torch.stack([write, zero_out]),
    }
    plan = Architecture(
        {
            "n_layers": 2,
            "n_heads": 2,
            "d_model": len(residual),
            "d_head": len(head),
            "n_ctx": 4,
            "d_vocab": n + 3,
            "attn_only": True,
            "normalization_type": None,
            "use_attn_scale": False,
        },
        frozen=("unembed.b_U",),
    )
    model = build(plan, device=device, dtype=dtype)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in state.items():
            parameters[name].copy_(weight)
    return Constructed(
        model,
        plan,
        "two-head-backup",
        {kind: backup_circuit(kind) for kind in KINDS},
        {(0, 0): "endpoint 1", (0, 1): "endpoint 2", (1, 0): "endpoint 1"},
        options={"sink": float(sink)},
        errors=0,
        notes={"sink": float(sink), "missed singly": ["1.0"], "backs up": ["0.0"]},
    )


def backup_circuit(ablation: str) -> Circuit:
    """The edges of `backup` that act in the model, or once head 0.0 is silent. KeyError for an unknown kind."""
    if ablation not in KINDS:
        raise UnknownName(f"the backup's circuit under '{ablation}' is not known; known: {', '.join(KINDS)}")
    one, two, spare = Node("head", 0, 0), Node("head", 0, 1), Node("head", 1, 0)
    edges = {Edge(START, head, "v", at) for head, at in ((one, 0), (two, 1), (spare, 0))}
    edges |= {Edge(START, head, "k", 2) for head in (one, two, spare)}
    edges |= {Edge(head, END, "end", 3) for head in (one, two, spare)}
    edges.add(Edge(one, spare, "q", 3))
    if ablation == "zero":
        edges |= {Edge(START, head, "q", 3) for head in (one, two, spare)}
        edges |= {Edge(START, one, "k", 1), Edge(START, two, "k", 0), Edge(START, spare, "k", 1)}
    roles = {(0, 0): "endpoint 1", (0, 1): "endpoint 2", (1, 0): "endpoint 1"}
    return Circuit(frozenset(edges), ablation, roles)


def _unembedding(residual: Basis, axes: list[str], vocabulary: int) -> Float[Tensor, "model token"]:
    rows: list[Direction] = [residual[name] for name in axes]
    return residual.rows([*rows, *[residual.zero] * (vocabulary - len(rows))]).T
