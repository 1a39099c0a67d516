"""Attention and circuit of one example of any task's model, as figures."""

from __future__ import annotations

import numpy as np
import torch

from headlab.interp.attribution import direct_logit_attribution
from headlab.interp.model import activations, untouched
from headlab.interp.movement import movement
from headlab.interp.render import Figure, Head, Node, attention_viewer, circuit_diagram, signed, token_head_logit
from headlab.interp.roles import score
from headlab.interp.sites import hook_name
from headlab.models.checkpoints import Checkpoint
from headlab.models.task import Examples, Task

MOST_TOKENS = 16
ALPHABET = "ABCDEFGHIJKL"


def head_badges(checkpoint: Checkpoint, task: Task, seed: int) -> list[Head | str]:
    """A badge per head in model order: the letter of the role that the head serves most, ink where it serves none."""
    result = score(checkpoint.model, task.roles(seed=seed))
    badges: list[Head | str] = []
    for (layer, head), usage in zip(result.heads, result.usage, strict=True):
        key = ALPHABET[int(usage.argmax())] if usage.max() >= 0.5 and usage.argmax() < len(ALPHABET) else "ink"
        badges.append(Head(key, f"{layer}.{head}"))
    return badges


def attention_figure(checkpoint: Checkpoint, task: Task, example: Examples, badges: list[Head | str]) -> Figure:
    """Every head's whole attention pattern on one example: interactive, and static where scripts do not run."""
    names = [hook_name("pattern", layer) for layer in range(checkpoint.model.cfg.n_layers)]
    with untouched(checkpoint.model):
        _, kept = activations(checkpoint.model, example.inputs, names)
    patterns = torch.cat([kept[name][0] for name in names]).abs().clamp(max=1).cpu().numpy()
    labels = list(task.token_labels(example.inputs[0]))
    return attention_viewer(
        patterns,
        labels,
        heads=badges,
        title="Attention patterns",
        description=f"{len(patterns)} heads over {len(labels)} positions of one example.",
        caption="One example. Rows are queries, columns keys. A badge names layer and head, its colour the role.",
    )


def circuit_figure(checkpoint: Checkpoint, task: Task, example: Examples, badges: list[Head | str]) -> Figure:
    """Token -> head -> logit at the first position read; what heads move where the unembedding is not a matrix."""
    query = int(example.read[0][example.read[0] >= 0][0])
    labels = list(task.token_labels(example.inputs[0]))
    try:
        return _by_logits(checkpoint, task, example, badges, labels, query)
    except ValueError:
        return _by_movement(checkpoint, task, example, badges, labels, query)


def _shown(weights: np.ndarray) -> list[int]:
    """The positions that matter most, in sequence order."""
    return sorted(np.argsort(-np.abs(weights).max(1), kind="stable")[:MOST_TOKENS].tolist())


def _places(task: Task, count: int) -> list[str]:
    """The names of the positions, or their numbers where sequences differ in length."""
    return list(task.positions) if len(task.positions) == count else [str(k) for k in range(count)]


def _by_logits(
    checkpoint: Checkpoint, task: Task, example: Examples, badges: list[Head | str], labels: list[str], query: int
) -> Figure:
    target = int(example.targets[0][example.read[0] >= 0][0])
    with untouched(checkpoint.model):
        logits = checkpoint.model(example.inputs)[0, query].double()
    outputs = len(logits)
    rivals = [token for token in logits.argsort(descending=True).tolist() if token != target][:2]
    shown = [target, *rivals]
    centred = torch.eye(outputs, dtype=checkpoint.model.cfg.dtype) - 1 / outputs
    device = example.inputs.device
    parts = []
    for token in shown:
        attribution = direct_logit_attribution(
            checkpoint.model, example.inputs, centred[token : token + 1].to(device), position=query
        )
        parts.append(attribution.heads[0].flatten(0, 1).double().cpu().numpy())  # [head, source]
    by_token = (parts[0] - parts[1]).T  # [source, head]: the right logit minus the strongest other
    rows = _shown(by_token)
    to_logit = np.stack([part.sum(1) for part in parts], axis=1)
    names = task.vocabulary if len(task.vocabulary) == outputs else tuple(str(k) for k in range(outputs))
    places = _places(task, len(labels))
    right = bool(logits[target] > logits[rivals[0]])
    panel = token_head_logit(
        [Node(labels[i], places[i]) for i in rows],
        badges,
        [
            Node(
                names[token],
                f"{signed(float(logits[token]))}{' ✓' if right and token == target else ''}",
                strong=token == target,
            )
            for token in shown
        ],
        by_token[rows],
        to_logit,
    )
    return circuit_diagram(
        [panel],
        threshold=0.02 * float(np.abs(by_token).max()),
        title="Attention circuit",
        description=f"What each head carries from each token to the logits at position {query}.",
        caption=f"One example, read at position {query}. Token to head: contribution to the right logit minus the "
        "strongest other. Head to logit: contribution to that logit, mean over the vocabulary removed.",
    )


def _by_movement(
    checkpoint: Checkpoint, task: Task, example: Examples, badges: list[Head | str], labels: list[str], query: int
) -> Figure:
    positions = len(labels)
    queries = torch.zeros(1, positions, dtype=torch.bool)
    queries[0, query] = True
    columns = []
    for source in range(positions):
        targets = torch.zeros(1, positions, positions, dtype=torch.bool)
        targets[0, query, source] = True
        (moved,) = movement(checkpoint.model, example.inputs, [(queries, targets)])
        columns.append(moved.from_targets[0])
    by_token = np.stack(columns)  # [source, head]
    rows, places = _shown(by_token), _places(task, positions)
    panel = token_head_logit(
        [Node(labels[i], places[i]) for i in rows],
        badges,
        [Node("read-out", f"position {query}", strong=True)],
        by_token[rows],
        by_token.sum(0)[:, None],
    )
    return circuit_diagram(
        [panel],
        headings=("token", "head", "read-out"),
        unit="units of the residual stream",
        size="width: size of what is moved",
        threshold=0.05 * float(by_token.max()),
        title="Attention circuit",
        description=f"What each head moves from each token to position {query}.",
        caption=f"One example, read at position {query}. The unembedding is not a matrix, so widths are what is moved: "
        "attention times the size of the value that is written.",
    )
