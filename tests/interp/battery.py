"""Random models, sweeps and ablations, each cell compared with the oracle.

A long run: python tests/interp/battery.py --cells 200000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count as counting
from math import prod
from pathlib import Path
from random import Random

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from headlab.interp.ablation import ablate_heads
from headlab.interp.interventions import Intervention
from headlab.interp.patching import patch_sweep
from tests.interp import oracle
from tests.interp.hand_built import random_model, tokens

# Largest difference that counts as equal, relative to the largest value (or 1): rounding of the arithmetic, no more.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
VOCABULARY = 7


@dataclass
class Report:
    """What a battery found. worst: the largest difference per dtype; failures: one line each."""

    cells: int = 0
    models: int = 0
    engines: Counter = field(default_factory=Counter)
    worst: dict = field(default_factory=dict)
    failures: list = field(default_factory=list)

    def compare(self, found, expected, dtype, what):
        """Count the cells of `found` [cell, metric, example], and what differs."""
        self.cells += len(expected)
        scale = max(1.0, float(expected.abs().max()))
        off = float((found - expected).abs().max()) / scale
        self.worst[dtype] = max(self.worst.get(dtype, 0.0), off)
        if not off <= TOLERANCE[dtype]:
            self.failures.append(f"{what}: {off:.2e} away")


def random_config(random):
    """A random architecture: (dtype, options of `random_model`)."""
    chance = lambda p: random.random() < p  # noqa: E731
    config = {
        "n_layers": random.choice((1, 1, 2, 3)),
        "n_heads": 4,
        "attn_only": chance(0.4),
        "normalization_type": random.choice((None, "LN", "LNPre", "RMS", "RMSPre")),
        "final_rms": chance(0.3),
        "positional_embedding_type": random.choice(("standard", "rotary")),
        "attention_dir": "bidirectional" if chance(0.2) else "causal",
    }
    if config["positional_embedding_type"] == "rotary":
        config |= {"rotary_dim": random.choice((2, 4)), "rotary_adjacent_pairs": chance(0.5)}
    if chance(0.4):
        config |= {"n_key_value_heads": random.choice((1, 2)), "ungroup_grouped_query_attention": chance(0.2)}
    if not config["attn_only"]:
        config |= {"gated_mlp": chance(0.4), "act_fn": random.choice(("gelu", "silu", "relu"))}
    if chance(0.2):
        config |= random.choice(({"use_attn_scale": False}, {"scale_attn_by_inverse_layer_idx": True},
                                 {"use_split_qkv_input": True}, {"use_attn_result": True}))  # fmt: skip
    if chance(0.3):  # what the cone does not model
        config |= random.choice(unusual(config))
    dtype = random.choices(list(TOLERANCE), (18, 3, 1, 1))[0]
    return dtype, config


def unusual(config):
    """Options that change the arithmetic of a block or of the unembedding."""
    local = {
        "use_local_attn": True,
        "window_size": 2,
        "attn_types": ["global", "local", "global"][: config["n_layers"]],
    }
    options = [
        {"clip_qkv": 0.5},
        {"attn_scores_soft_cap": 2.0},
        {"output_logits_soft_cap": 3.0},
        {"use_attention_sinks": True},
        {"use_qk_norm": True},
        local,
    ]
    if config["attention_dir"] == "causal":
        options.append({"positional_embedding_type": "alibi"})
    if not config["attn_only"]:
        options.append({"parallel_attn_mlp": True})
        if config["normalization_type"] in ("LN", "RMS"):
            options.append({"use_normalization_before_and_after": True})
    return options


def some(random, count, *, negative=False):
    """Some of 0..count-1 in random order; some of them counted from the end."""
    chosen = random.sample(range(count), random.randint(1, count))
    return [i - count if negative and random.random() < 0.3 else i for i in chosen]


def metrics_of(random, read):
    """Two metrics that tell read positions and tokens apart, one of them not linear."""
    generator = torch.Generator().manual_seed(random.randrange(2**31))
    weights = torch.randn(2, read, VOCABULARY, generator=generator, dtype=torch.float64)

    def linear(logits):
        return (logits.double() * weights[0]).sum((-2, -1))

    def curved(logits):
        return (torch.tanh(logits.double() / 4) * weights[1]).sum((-2, -1))

    return {"linear": linear, "curved": curved}


def intervention_of(random, destination):
    """A random intervention, and its `drawn` donors."""
    kind = random.choice(("patch", "patch", "patch", "patch", "zero", "mean", "positional_mean", "resample"))
    length = destination.shape[1]
    rows = len(destination) if kind == "patch" else random.randint(2, 5)
    reference = tokens(rows, seed=random.randrange(2**31), positions=length, vocabulary=VOCABULARY)
    intervention = Intervention(kind, None if kind == "zero" else reference, seed=random.randrange(100))
    return intervention, intervention.drawn(destination)


def what_is_put(model, component, layers, intervention, destination, drawn):
    """layer -> the oracle's replacement."""
    names = {layer: oracle.HOOKS[component].format(layer) for layer in layers}
    held = oracle.recorded(model, destination, names.values())[1]
    other = {} if intervention.reference is None else oracle.recorded(model, intervention.reference, names.values())[1]
    kind = intervention.kind
    if component == "pattern" and kind == "mean":
        kind = "positional_mean"  # a pattern has no position to average over
    return {
        layer: oracle.replacements(kind, held[name], other.get(name), drawn).to(held[name].dtype)
        for layer, name in names.items()
    }


def check_sweep(random, model, config, dtype, report, most):
    """One random sweep against the oracle."""
    length, examples = random.randint(2, 5), random.randint(1, 3)
    destination = tokens(examples, seed=random.randrange(2**31), positions=length, vocabulary=VOCABULARY)
    absent = {"resid_mid", "mlp_out"} if config["attn_only"] else set()
    absent |= {"resid_mid"} if config.get("parallel_attn_mlp") else set()
    # Patterns have the most axes, and so the most ways to go wrong.
    component = random.choice([*(name for name in oracle.HOOKS if name not in absent), "pattern", "pattern"])
    ungrouped = component not in ("k", "v") or config.get("ungroup_grouped_query_attention")
    heads = 4 if ungrouped else config.get("n_key_value_heads", 4)
    sizes = {"layer": config["n_layers"], "head": heads}
    axes = ["layer", *oracle.dimensions(component)]
    given, labels = {}, {}
    for axis in axes:
        size = sizes.get(axis, length)
        chosen = some(random, size, negative=axis in ("position", "destination", "source"))
        if random.random() < 0.5:
            chosen = None
        given[axis] = chosen
        labels[axis] = list(range(size)) if chosen is None else [label % size for label in chosen]
    by = None
    if random.random() < 0.7:
        by = ["layer", *(axis for axis in axes[1:] if random.random() < 0.75)]
        random.shuffle(by)
    order = by
    if order is None:
        order = ["layer", "head", "destination"] if component == "pattern" else ["layer", "head", "position"]
        order = [axis for axis in order if axis in axes]
    if prod(len(labels[axis]) for axis in order) > most:
        return
    read = None if random.random() < 0.2 else some(random, length, negative=True)
    seen = list(range(length)) if read is None else [position % length for position in read]
    metrics = metrics_of(random, len(seen))
    intervention, drawn = intervention_of(random, destination)
    new = what_is_put(model, component, labels["layer"], intervention, destination, drawn)
    source = intervention.reference if intervention.kind == "patch" and random.random() < 0.8 else intervention
    what = f"{component} by {by} labels {given} read {read} {intervention.kind} {dtype} {config}"
    options = {
        "layers": given["layer"],
        "heads": given.get("head"),
        "positions": given.get("destination", given.get("position")),
        "sources": given.get("source"),
    }
    engine = "expand" if random.random() < 0.1 else "auto"
    result = patch_sweep(
        model, source, destination, metrics, component=component, by=by, read=read, engine=engine, **options
    )
    report.engines[result.engine] += 1
    expected = torch.stack(
        [
            torch.stack([metric(logits) for metric in metrics.values()])
            for logits in oracle.patched_cells(model, destination, component, new, order, labels, seen)
        ]
    )
    found = result.values.double().reshape(len(metrics), -1, examples).transpose(0, 1)
    report.compare(found, expected, dtype, what)


def check_ablation(random, model, config, dtype, report):
    """A few groups of heads against the oracle."""
    length, examples = random.randint(2, 5), random.randint(1, 3)
    destination = tokens(examples, seed=random.randrange(2**31), positions=length, vocabulary=VOCABULARY)
    every = [(layer, head) for layer in range(config["n_layers"]) for head in range(4)]
    groups = None
    if random.random() < 0.7:
        groups = [random.sample(every, random.choice((1, 1, 2, 3))) for _ in range(random.randint(1, 6))]
    intervention, drawn = intervention_of(random, destination)
    if intervention.kind == "patch":
        return
    new = what_is_put(model, "z", range(config["n_layers"]), intervention, destination, drawn)
    read = None if random.random() < 0.2 else some(random, length, negative=True)
    positions = None if random.random() < 0.6 else some(random, length, negative=True)
    seen = list(range(length)) if read is None else [position % length for position in read]
    edited = list(range(length)) if positions is None else [position % length for position in positions]
    metric = metrics_of(random, len(seen))["curved"]
    result = ablate_heads(
        model,
        destination,
        metric,
        kind=intervention.kind,
        reference=intervention.reference,
        seed=intervention.seed,
        groups=groups,
        read=read,
        positions=positions,
    )
    report.engines[f"ablation by {result.engine}"] += 1
    before = metric(oracle.ablated_group(model, destination, [], new, edited, seen))
    expected = torch.stack(
        [
            before - metric(oracle.ablated_group(model, destination, group, new, edited, seen))
            for group in groups or [[head] for head in every]
        ]
    )
    what = f"ablation of {groups} {intervention.kind} read {read} positions {positions} {dtype} {config}"
    report.compare(result.effect.double()[:, None], expected[:, None], dtype, what)


def battery(cells, seed, *, most=150, sweeps=14):
    """Random models until `cells` cells were compared."""
    report = Report()
    for number in counting():
        random = Random(f"{seed} {number}")
        dtype, config = random_config(random)
        scale = random.choice((0.3, 0.6, 1.5) if dtype in (torch.float64, torch.float32) else (0.2, 0.3))
        model = random_model(seed=number, dtype=dtype, scale=scale, **config)
        report.models += 1
        for _ in range(sweeps):
            check_sweep(random, model, config, dtype, report, most)
        for _ in range(2):
            check_ablation(random, model, config, dtype, report)
        if report.cells >= cells:
            return report


def main():
    """Run the battery from the command line; exit status 1 where a cell differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.process_time()
    report = battery(options.cells, options.seed)
    for failure in report.failures:
        print(failure)
    worst = ", ".join(f"{str(dtype)[6:]} {off:.1e}" for dtype, off in report.worst.items())
    print(
        f"{report.cells} cells of {report.models} models, {time.process_time() - start:.0f} s, {dict(report.engines)}"
    )
    print(
        f"largest difference from the oracle, relative to the largest value: {worst}; {len(report.failures)} failures"
    )
    sys.exit(bool(report.failures))


if __name__ == "__main__":
    main()
