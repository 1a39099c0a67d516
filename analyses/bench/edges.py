"""The case `edges` of `headlab bench patching`: every edge of a small transformer, beside auto-circuit.

auto-circuit is optional (`pip install --no-deps auto-circuit plotly ordered-set blobfile`); without it the peer is one
transformer-lens forward per edge with a hook at the reader's split input, and the record says so. The peer runs a
sample of the edges, the same for every pair, and its time is scaled up; its mask is set edge by edge, which is its
fastest way.
"""

from __future__ import annotations

import copy
import importlib
import resource
import sys
import time
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transformer_lens
from jaxtyping import Float
from torch import Tensor

from headlab.interp.circuits import Edge
from headlab.interp.interventions import Intervention
from headlab.interp.metrics import Metric
from headlab.interp.paths import patch_edges
from headlab.models.hooked import Architecture, HookedTransformer, build, initialise

CONFIG: dict[str, Any] = {
    "n_layers": 4,
    "n_heads": 4,
    "d_model": 64,
    "d_head": 16,
    "d_mlp": 256,
    "act_fn": "gelu",
    "d_vocab": 64,
    "attn_only": False,
    "normalization_type": "LN",
}


def edges_case(pairs: int, *, sample: int = 200, length: int = 32, batch: int = 8) -> dict[str, Any]:
    """The record of the case: all edges by position of 4 layers 4 heads with MLP, the metric at the last position."""
    model = build(Architecture({**CONFIG, "n_ctx": length}))
    initialise(model, scale=0.8 / CONFIG["d_model"] ** 0.5, seed=0)
    generator = torch.Generator().manual_seed(1)
    inputs, source = torch.randint(CONFIG["d_vocab"], (2, batch, length), generator=generator)
    right, wrong = torch.randint(CONFIG["d_vocab"], (2, batch), generator=generator)
    rows = torch.arange(batch)

    def metric(logits: Tensor) -> Tensor:
        return logits[rows, -1, right] - logits[rows, -1, wrong]

    put, peer = Intervention("patch", source), _peer(model)
    ratios: list[float] = []
    worst, engine = 0.0, ""
    for pair in range(pairs):
        start = time.process_time()
        edge_effects = patch_edges(model, inputs, metric, put, read=(-1,))
        ours = time.process_time() - start
        chosen = (
            np.random.default_rng(0)
            .choice(len(edge_effects.edges), min(sample, len(edge_effects.edges)), replace=False)
            .tolist()
        )
        start = time.process_time()
        expected = peer.effects(inputs, source, metric, [edge_effects.edges[row] for row in chosen])
        theirs = (time.process_time() - start) * len(edge_effects.edges) / len(chosen)
        ratios.append(theirs / ours)
        size = max(float(expected.abs().max()), float(edge_effects.baseline.abs().max()))
        worst = max(worst, float((edge_effects.effect[chosen] - expected).abs().max()) / size)
        engine = edge_effects.engine
        if theirs * len(chosen) / len(edge_effects.edges) + ours > 20 and pair == 0:
            break
    done = f"{len(ratios)} pair{'s' if len(ratios) > 1 else ''}"
    return {
        "case": f"edges: 4 layers 4 heads d=64 with MLP, T={length} B={batch}, read last, float32, {done}; "
        f"{len(edge_effects.edges)} edges ({engine}), the peer on {len(chosen)} of them, its time scaled up",
        "peer": peer.name,
        "ratio": {"min": min(ratios), "median": float(np.median(ratios)), "max": max(ratios)},
        "max_difference": worst,
        "work": None,
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _peer(model: HookedTransformer) -> AutoCircuit | HookLoop:
    try:
        return AutoCircuit(model)
    except ImportError:
        return HookLoop(model)


def _split(model: HookedTransformer) -> HookedTransformer:
    """A copy whose readers have inputs of their own."""
    model = copy.deepcopy(model)
    model.cfg.use_attn_result = True
    model.cfg.use_split_qkv_input = True
    model.cfg.use_hook_mlp_in = True
    return model


class HookLoop:
    """One forward pass per edge, with a hook that edits what the reader alone sees."""

    name = "a loop of transformer-lens forwards with a hook per edge (auto-circuit is not installed)"

    def __init__(self, model: HookedTransformer) -> None:
        self.model = _split(model)

    def effects(
        self, inputs: Tensor, source: Tensor, metric: Metric, edges: Sequence[Edge]
    ) -> Float[Tensor, "edge example"]:
        """baseline - patched, per edge and example."""
        model, last = self.model, self.model.cfg.n_layers - 1
        with torch.no_grad():
            clean, now = model(inputs), model.run_with_cache(inputs)[1]
            other = model.run_with_cache(source)[1]
            effects = []
            for edge in edges:
                layer, node, at = edge.destination.layer, edge.source, edge.position
                name = {
                    "start": "blocks.0.hook_resid_pre",
                    "head": f"blocks.{node.layer}.attn.hook_result",
                    "mlp": f"blocks.{node.layer}.hook_mlp_out",
                }[node.kind]
                delta = other[name][:, at] - now[name][:, at]
                if node.kind == "head":
                    delta = delta[:, node.head]
                place = (slice(None), at, edge.destination.head) if edge.port in ("q", "k", "v") else (slice(None), at)

                def add(value: Tensor, hook: Any, place: Any = place, delta: Tensor = delta) -> Tensor:
                    value = value.clone()
                    value[place] += delta
                    return value

                reader = {"mlp": f"blocks.{layer}.hook_mlp_in", "end": f"blocks.{last}.hook_resid_post"}.get(
                    edge.port, f"blocks.{layer}.hook_{edge.port}_input"
                )
                effects.append(metric(clean) - metric(model.run_with_hooks(inputs, fwd_hooks=[(reader, add)])))
            return torch.stack(effects)


class AutoCircuit:
    """auto-circuit's patchable model, its mask set for one edge at a time."""

    def __init__(self, model: HookedTransformer) -> None:
        """Raises ImportError where auto-circuit, or something it needs, is not installed."""
        with warnings.catch_warnings(), _names_of_older_versions():
            warnings.simplefilter("ignore")
            self.graph: Any = importlib.import_module("auto_circuit.utils.graph_utils")
            self.ablations: Any = importlib.import_module("auto_circuit.utils.ablation_activations")
        self.model = _split(model)
        self.name = "auto-circuit"
        self.patchable: Any = None

    def effects(
        self, inputs: Tensor, source: Tensor, metric: Metric, edges: Sequence[Edge]
    ) -> Float[Tensor, "edge example"]:
        """baseline - patched, per edge and example."""
        if self.patchable is None:
            self.patchable = self.graph.patchable_model(
                self.model, factorized=True, seq_len=inputs.shape[1], separate_qkv=True
            )
        model = self.patchable
        names = {(edge.name, edge.seq_idx): edge for edge in model.edges}
        with torch.no_grad():
            clean = metric(model(inputs))
            outputs = self.ablations.src_ablations(model, source)
            effects = []
            with self.graph.patch_mode(model, outputs, edges=[]):
                for edge in edges:
                    theirs = names[(self._name(edge), edge.position)]
                    mask = theirs.patch_mask(model).data
                    mask[theirs.patch_idx] = 1.0
                    effects.append(clean - metric(model(inputs)))
                    mask[theirs.patch_idx] = 0.0
            return torch.stack(effects)

    def _name(self, edge: Edge) -> str:
        node = edge.source
        source = {"start": "Resid Start", "head": f"A{node.layer}.{node.head}", "mlp": f"MLP {node.layer}"}[node.kind]
        to = edge.destination
        reader = {"end": "Resid End", "mlp": f"MLP {to.layer}"}.get(
            edge.port, f"A{to.layer}.{to.head}.{edge.port.upper()}"
        )
        return f"{source}->{reader}"


@contextmanager
def _names_of_older_versions() -> Iterator[None]:
    """While auto-circuit is imported, transformer-lens has the two names that it had when auto-circuit was written."""
    cache: Any = transformer_lens.TransformerLensKeyValueCache
    module = types.ModuleType("transformer_lens.past_key_value_caching")
    module.__dict__["HookedTransformerKeyValueCache"] = cache
    package: Any = transformer_lens
    sys.modules[module.__name__] = module
    package.HookedTransformerKeyValueCache = cache
    try:
        yield
    finally:
        del sys.modules[module.__name__]
        del package.HookedTransformerKeyValueCache
