import pytest
import torch

from headlab.interp.ablation import ablate_heads
from headlab.interp.circuits import Edge, Node
from headlab.interp.discovery import fidelity, greedy_circuit
from headlab.interp.interactions import edges_in_context, interactions
from headlab.interp.interventions import Intervention
from headlab.interp.paths import patch_edges
from headlab.interp.recovery import recovery
from headlab.models.esp.backup import backup
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from tests.interp.hand_built import arcs, random_model, tokens, two_heads


def first_token(logits):
    return logits[:, -1, 0] - 0.3 * logits[:, 0, 1]


def with_backup(kind):
    task = EspTask(read_graph("complete:4"))
    examples = task.examples()
    built = backup(task, dtype="float64")
    put = Intervention(kind, None if kind == "zero" else examples.inputs)
    return built, examples, task.metrics(examples)["logit_difference"], put


@pytest.mark.parametrize("kind", ["zero", "positional_mean"])
def test_a_backup_is_missed_singly_and_found_as_a_pair(kind):
    built, examples, metric, put = with_backup(kind)
    found = interactions(built.model, examples.inputs, metric, put)
    names = list(found.names)
    one, two, spare = (names.index(name) for name in ("0.0", "0.1", "1.0"))
    alone = found.single.mean(1)
    assert float(alone[[one, spare]].abs().max()) < 1e-3
    assert float(alone[two]) == pytest.approx(0.25, abs=1e-3)
    assert float(found.pair[one, spare].mean()) == pytest.approx(0.25, abs=1e-3)
    assert float(found.beyond[one, spare]) == pytest.approx(0.25, abs=1e-3)
    assert set(found.missed(above=0.05)) == {"0.0", "1.0"}
    sentence = found.statement(above=0.05)
    assert "Single ablation misses what pairs find" in sentence
    assert "1.0 loses" in sentence
    assert "once 0.0 is silent" in sentence
    frame = found.to_frame()
    assert frame.loc[frame.beyond.idxmax(), ["first", "second"]].tolist() == ["0.0", "1.0"]


@pytest.mark.parametrize("kind", ["zero", "positional_mean"])
def test_edges_of_a_backup_show_once_the_first_head_is_silent(kind):
    built, examples, metric, put = with_backup(kind)
    truth = built.circuit(kind)
    singly = recovery(patch_edges(built.model, examples.inputs, metric, put), truth)
    found = edges_in_context(built.model, examples.inputs, metric, put)
    assert found.contexts == ("nothing", "0.0", "0.1", "1.0", "1.1")
    together = recovery(found.strongest(), truth)
    assert singly.smallest_true < 1e-3
    assert together.auroc == 1.0
    assert together.separation > 10
    missed = {str(edge): context for edge, (context, _, _) in found.missed(above=0.05).items()}
    assert missed["1.0 -> end@3"] == missed["start -> 1.0.v@0"] == "0.0"
    assert set(map(str, truth.edges)) >= set(missed)
    assert "1.0 -> end@3" in found.statement(above=0.05)


def test_a_greedy_circuit_leaves_the_backup_out_and_says_so():
    built, examples, metric, put = with_backup("zero")
    greedy = greedy_circuit(built.model, examples.inputs, metric, put, tolerance=0.05)
    found = fidelity(built.model, examples.inputs, metric, put, greedy.circuit)
    assert found.distance < 1e-3
    assert found.left == pytest.approx(0.5, abs=0.01)
    whole = fidelity(built.model, examples.inputs, metric, put, built.circuit("zero"))
    assert whole.distance < 1e-3
    assert whole.left == pytest.approx(0.0, abs=0.01)


def test_heads_without_a_backup_act_independently():
    inputs, target, other, _ = arcs()
    rows = torch.arange(len(inputs))
    found = interactions(
        two_heads(), inputs, lambda logits: logits[rows, 3, target] - logits[rows, 3, other], Intervention("zero")
    )
    assert float(found.beyond.abs().max()) < 1e-12
    assert "No group hides" in found.statement(above=0.01)


def test_silencing_all_that_a_head_writes_is_ablating_the_head():
    for config in ({"normalization_type": "LN", "attn_only": False}, {"n_layers": 3}):
        model, inputs = random_model(**config), tokens(3)
        put = Intervention("resample", tokens(5, seed=1), seed=2)
        found = interactions(model, inputs, first_token, put)
        heads = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(2)]
        pairs = [[(0, 0), (1, 1)]]
        ablated = ablate_heads(
            model,
            inputs,
            first_token,
            kind="resample",
            reference=put.reference,
            seed=2,
            groups=[*([each] for each in heads), *pairs],
        )
        rows = [found.names.index(f"{layer}.{head}") for layer, head in heads]
        assert torch.allclose(found.single[rows], ablated.effect[: len(heads)], atol=1e-11)
        pair = found.pair[found.names.index("0.0"), found.names.index("1.1")]
        assert torch.allclose(pair, ablated.effect[len(heads)], atol=1e-11)
        assert torch.equal(found.pair, found.pair.transpose(0, 1))


def test_pairs_of_single_edges():
    built, examples, metric, put = with_backup("zero")
    wake = Edge(Node("head", 0, 0), Node("head", 1, 0), "q", 3)
    groups = {str(edge): [edge] for edge in (wake, Edge(Node("head", 1, 0), Node("end"), "end", 3))}
    found = interactions(built.model, examples.inputs, metric, put, groups=groups)
    # Cutting only the signal wakes the backup while the first head still acts: performance is gained.
    assert float(found.single[0].mean()) < -0.2
    assert abs(float(found.pair[0, 1].mean())) < 1e-3
    with pytest.raises(ValueError, match="at least two"):
        interactions(built.model, examples.inputs, metric, put, groups={"one": [wake]})
