"""Shapes are checked in every test: jaxtyping annotations become beartype checks before the packages are imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import warnings

from jaxtyping import install_import_hook

# circuitsvis, torch and others may warn while they are imported; what our own code does is held to the rule.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    import transformer_lens  # noqa: F401

install_import_hook(["headlab"], "beartype.beartype")

torch.set_num_threads(1)
