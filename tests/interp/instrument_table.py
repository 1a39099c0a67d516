"""The table instrument x architecture of the guide, produced by asking every instrument on a small model of each.

Write it again: python tests/interp/instrument_table.py
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from headlab.interp.ablation import ablate_heads
from headlab.interp.attribution import direct_logit_attribution
from headlab.interp.attribution_patching import estimate_patches
from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.errors import RequestError
from headlab.interp.gradients import estimate_edges
from headlab.interp.interventions import Intervention
from headlab.interp.patching import patch_sweep
from headlab.interp.paths import patch_edges
from headlab.interp.roles import Role, score
from headlab.interp.weights import ov_circuit, qk_circuit
from tests.interp import bridges
from tests.interp.hand_built import random_model, tokens

PAGE = Path(__file__).parents[2] / "notebooks" / "guide" / "instruments.md"
COMMAND = "python tests/interp/instrument_table.py"

GATED = {"attn_only": False, "gated_mlp": True, "normalization_type": "RMS"}
ARCHITECTURES = {
    "attention only, no norm": {},
    "MLP, LayerNorm": {"attn_only": False, "normalization_type": "LN"},
    "LayerNorm, final RMSNorm": {"attn_only": False, "normalization_type": "LN", "final_rms": True},
    "gated MLP, RMSNorm, rotary, grouped heads": {
        **GATED,
        "n_heads": 4,
        "n_key_value_heads": 2,
        "positional_embedding_type": "rotary",
        "rotary_dim": 4,
    },
    "bidirectional": {"attention_dir": "bidirectional", "normalization_type": "LNPre"},
    "ALiBi": {"positional_embedding_type": "alibi"},
    "MLP beside attention": {"attn_only": False, "parallel_attn_mlp": True},
    "norms after heads and MLP": {**GATED, "use_normalization_before_and_after": True},
    "clipped q, k, v": {"clip_qkv": 0.5},
    "soft-capped scores": {"attn_scores_soft_cap": 2.0},
    "soft-capped logits": {"output_logits_soft_cap": 3.0},
    "norms of q and k": {"use_qk_norm": True, "normalization_type": "RMS"},
    "local attention": {"use_local_attn": True, "window_size": 2, "attn_types": ["global", "local"]},
    "attention sinks": {"use_attention_sinks": True},
    "bfloat16": {"normalization_type": "LN", "dtype": torch.bfloat16},
}


def metric(logits):
    """A logit difference at the last position."""
    return logits[:, -1, 2] - logits[:, -1, 4]


def some_edges(model):
    """An edge into a value, one between the layers, one out of a head."""
    last = int(model.cfg.n_layers) - 1
    return [
        Edge(START, Node("head", 0, 1), "v", 1),
        Edge(Node("head", 0, 0), Node("head", last, 1), "q", 4),
        Edge(Node("head", last, 0), END, "end", 4),
    ]


def of_roles(model, inputs):
    """The score of one role: the last position attends to the first but one."""
    size = inputs.shape[1]
    queries, targets = torch.zeros(len(inputs), size).bool(), torch.zeros(len(inputs), size, size).bool()
    queries[:, -1], targets[:, -1, 1] = True, True
    return score(model, [Role("second", inputs, queries, targets)])


def rows(model):
    """A few rows of the residual stream."""
    generator = torch.Generator().manual_seed(0)
    parameter = next(model.parameters())
    return torch.randn(3, int(model.cfg.d_model), generator=generator).to(parameter)


def qk(model):
    """Scores at offset 1 where positions are rotary, else from the rows alone."""
    rotary = getattr(model.cfg, "positional_embedding_type", "") == "rotary"
    return qk_circuit(model, 0, rows(model), rows(model), offset=1 if rotary else None)


# name -> (model, source, destination) -> a result; those that only estimate say so.
INSTRUMENTS = {
    "patch z": lambda m, s, d: patch_sweep(m, s, d, metric, component="z", layers=[1], read=[-1]),
    "patch pattern": lambda m, s, d: patch_sweep(m, s, d, metric, component="pattern", layers=[1], read=[-1]),
    "ablate heads": lambda m, s, d: ablate_heads(m, d, metric, kind="zero", layers=[1], read=[-1]),
    "patch edges": lambda m, s, d: patch_edges(m, d, metric, Intervention("patch", s), edges=some_edges(m)),
    "estimate patches": lambda m, s, d: estimate_patches(m, s, d, metric, component="z", layers=[1]),
    "estimate edges": lambda m, s, d: estimate_edges(m, d, metric, Intervention("patch", s), edges=some_edges(m)),
    "logit attribution": lambda m, s, d: direct_logit_attribution(m, d, torch.tensor([2] * len(d))),
    "QK circuit": lambda m, s, d: qk(m),
    "OV circuit": lambda m, s, d: ov_circuit(m, 0, rows(m)),
    "score of roles": lambda m, s, d: of_roles(m, d),
}


def models():
    """(name, model, source, destination) of every architecture."""
    for name, config in ARCHITECTURES.items():
        config = dict(config)
        dtype = config.pop("dtype", torch.float64)
        yield name, random_model(dtype=dtype, scale=0.3, **config), tokens(2, seed=1), tokens(2)
    for name in bridges.ARCHITECTURES:
        runs = (bridges.tokens(2, seed=seed, positions=5) for seed in (1, 2))
        yield f"TransformerBridge, {name}", bridges.bridge(name), *runs


def answer(instrument, model, source, destination):
    """`exact`, `estimate`, `falls back` or `refused`, and the reason of the last."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = INSTRUMENTS[instrument](model, source, destination)
    except RequestError as refusal:
        return f"refused: {re.sub(r' [(]?[0-9.e+-]+ away.*', '', str(refusal))}"
    notes = getattr(result, "notes", ())
    if any("the cone does not model" in note for note in notes):
        return "falls back"
    return "estimate" if instrument.startswith("estimate") else "exact"


def page():
    """The text of the guide's page."""
    reasons: dict[str, int] = {}
    lines = []
    for name, model, source, destination in models():
        cells = []
        for instrument in INSTRUMENTS:
            found = answer(instrument, model, source, destination)
            if found.startswith("refused: "):
                number = reasons.setdefault(found.removeprefix("refused: "), len(reasons) + 1)
                found = f"refused: {number}"
            cells.append(found)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    head = ["architecture", *INSTRUMENTS]
    text = f"""# Which instrument answers on which architecture

Every cell is what the instrument does on a small random model of the architecture.

- **exact**: the numbers are those of running the model with hooks, by arithmetic on what can change where that is
  known (the cone), or by the instrument's own formula. Random sweeps are compared with hooks set by hand
  (`tests/interp/battery.py`), and each sweep rechecks two of its cells by running the model.
- **falls back**: the same numbers, by running the model cell by cell: slower. The result's notes say why.
- **estimate**: gradients, not exact effects, as everywhere for this instrument.
- **refused**: the instrument would be wrong there and says so; the numbers refer to the sentences below.

| {" | ".join(head)} |
|{" --- |" * len(head)}
"""
    text += "\n".join(lines) + "\n"
    if reasons:
        text += "\n## Refusals\n\n" + "".join(f"{number}. {reason}\n" for reason, number in reasons.items())
    return text + f"\nThis page is written by `{COMMAND}`, and a test compares.\n"


if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
