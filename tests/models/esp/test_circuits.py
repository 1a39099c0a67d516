"""The true circuits against brute force: each edge alone is replaced, by hooks of this file's own."""

import pytest
import torch

from headlab.interp.circuits import END, START, Edge, Node
from headlab.models.esp.circuits import KINDS, VARIANTS, true_circuit
from headlab.models.esp.constructed import construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask


def effects(task, model, kind):
    """Edge -> mean |change of the logit difference| where it alone carries what `kind` puts there."""
    examples = task.examples()
    inputs, (u, v) = examples.inputs, task.endpoints(examples)
    generator = torch.Generator().manual_seed(0)
    slots = {"u": u, "v": v, "selector": examples.factors["selector"]}
    redrawn = {
        "u": torch.randint(task.n, (len(inputs),), generator=generator),
        "v": torch.randint(task.n, (len(inputs),), generator=generator),
        "selector": 1 - slots["selector"],
    }
    changed = kind.partition(":")[2]
    metric = task.metrics(examples)["logit_difference"]
    own, attention = model.run_with_cache(inputs)[1], model.blocks[0].attn
    if kind.startswith("resample"):
        other = task.sequences(*(redrawn[slot] if changed in ("", slot) else slots[slot] for slot in slots))
        cache = model.run_with_cache(other)[1]
    elif kind == "zero":
        cache = {name: torch.zeros_like(value) for name, value in own.items()}
    else:
        cache = {name: value.mean(0, keepdim=True).expand_as(value) for name, value in own.items()}
    baseline = metric(model(inputs))
    residual, query = cache["blocks.0.hook_resid_pre"], inputs.shape[1] - 1
    moved = {}

    def measure(edge, name, index, value):
        def put(activation, hook):
            activation = activation.clone()
            activation[index] = value
            return activation

        logits = model.run_with_hooks(inputs, fwd_hooks=[(name, put)])
        moved[edge] = float((metric(logits) - baseline).abs().mean())

    final = own["blocks.0.hook_resid_post"][:, query]
    for head in range(model.cfg.n_heads):
        node = Node("head", 0, head)
        for port in ("q", "k", "v"):
            weight = getattr(attention, f"W_{port.upper()}")[head]
            for position in range(inputs.shape[1]) if port != "q" else (query,):
                where = f"blocks.0.attn.hook_{port}", (slice(None), position, head)
                measure(Edge(START, node, port, position), *where, residual[:, position] @ weight)
        change = (cache["blocks.0.attn.hook_z"] - own["blocks.0.attn.hook_z"])[:, query, head] @ attention.W_O[head]
        measure(Edge(node, END, "end", query), "blocks.0.hook_resid_post", (slice(None), query), final + change)
    change = (residual - own["blocks.0.hook_resid_pre"])[:, query]
    measure(Edge(START, END, "end", query), "blocks.0.hook_resid_post", (slice(None), query), final + change)
    return moved


CASES = [
    *(("one-head-dag", "tournament:6", False), ("one-head", "complete:6", False)),
    *((variant, "random:8:0.4:1", induction) for variant in VARIANTS[2:] for induction in (False, True)),
]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("variant", "spec", "induction"), CASES)
@torch.no_grad()
def test_true_edges_act_and_no_others(variant, spec, induction, tied):
    task = EspTask(read_graph(spec), induction)
    made = construct(task, variant, tied=tied, dtype="float64")
    assert tuple(made.circuits) == KINDS
    for kind, circuit in made.circuits.items():
        moved = effects(task, made.model, kind)
        assert circuit.edges <= set(moved)
        smallest = min(moved[edge] for edge in circuit.edges)
        largest = max(moved[edge] for edge in set(moved) - circuit.edges)
        if variant.startswith("one-head"):  # no sink is involved: false edges carry nothing at all
            assert largest < 1e-12
            assert smallest > 3e-4
        else:
            assert largest < 5e-4
            assert smallest > 0.05
        assert circuit.ablation == kind
        assert circuit.roles == made.roles


@torch.no_grad()
def test_the_zero_circuit_of_one_head_has_the_effects_computed_elsewhere():
    task = EspTask(read_graph("complete:6"))
    moved = effects(task, construct(task, "one-head", dtype="float64").model, "zero")
    head = Node("head", 0, 0)
    found = [moved[Edge(START, head, port, position)] for port, position in (("q", 3), ("k", 0), ("k", 3))]
    assert found == pytest.approx([0.025, 0.024, 0.011], abs=6e-4)


def test_sizes_and_words():
    assert [len(true_circuit("two-head", kind).edges) for kind in KINDS] == [2, 2, 4, 6, 6, 10]
    assert [len(true_circuit("one-head", kind).edges) for kind in KINDS] == [2, 2, 2, 4, 4, 7]
    expected = {"0.0.v@0", "0.1.v@1", "0.0.k@2", "0.1.k@2"}
    edges = {str(edge).removeprefix("start -> ") for edge in true_circuit("two-head", "resample").edges}
    assert edges == expected | {"0.0 -> end@3", "0.1 -> end@3"}
    assert true_circuit("two-head", "zero").roles == {(0, 0): "endpoint 1", (0, 1): "endpoint 2"}
    assert true_circuit("one-head", "zero").roles == {}


def test_unknown_requests_list_what_is_known():
    with pytest.raises(KeyError, match="no construction 'three-head': there are one-head-dag, one-head, two-head"):
        true_circuit("three-head", "zero")
    with pytest.raises(KeyError, match="'mean' ablation is not known; known: resample:u"):
        true_circuit("two-head", "mean")
    with pytest.raises(KeyError, match="no induction form"):
        true_circuit("one-head", "zero", induction=True)
    made = construct(EspTask(read_graph("cycle:3")), "two-head")
    assert made.circuit("zero") == made.circuits["zero"]
    with pytest.raises(KeyError, match="'two-head' under 'mean' ablation is not known; known: resample:u"):
        made.circuit("mean")
