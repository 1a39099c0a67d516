"""A checkpoint whose heads are asked about."""

from __future__ import annotations

from pathlib import Path

from headlab.interp.errors import RequestError
from headlab.models.checkpoints import Checkpoint, load


def load_with_heads(directory: Path, device: str) -> Checkpoint:
    """The checkpoint in `directory`. Errors as for models.checkpoints.load, and ValueError where it is a model of one
    position, which has nothing to attend to: a feed-forward network."""
    checkpoint = load(directory, device=device)
    if checkpoint.architecture.config["n_ctx"] == 1:
        raise RequestError(f"'{directory}' is a feed-forward network without heads: only evaluate and info take it")
    return checkpoint
