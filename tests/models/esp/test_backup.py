import pytest
import torch

from headlab.models.esp.backup import backup, backup_circuit
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask


@pytest.mark.parametrize("spec", ["complete:3", "complete:9", "cycle:5", "random:10:0.3:1"])
def test_no_errors_with_and_without_the_first_head(spec):
    task = EspTask(read_graph(spec))
    examples = task.examples()
    model = backup(task).model
    right = task.metrics(examples)["accuracy"]

    def silent(head):
        def hook(z, hook):
            z = z.clone()
            z[:, :, head] = 0.0
            return z

        return hook

    def accuracy(*heads):
        hooks = [(f"blocks.{layer}.attn.hook_z", silent(head)) for layer, head in heads]
        return float(right(model.run_with_hooks(examples.inputs, fwd_hooks=hooks)).mean())

    assert accuracy() == accuracy((0, 0)) == accuracy((1, 0)) == 1.0
    assert accuracy((0, 0), (1, 0)) == accuracy((0, 1)) == 0.5
    assert accuracy((0, 0), (1, 0), (0, 1)) == 0.0


def test_attention_is_what_the_proof_says():
    task = EspTask(read_graph("complete:4"))
    examples = task.examples()
    sink = 8.0
    model = backup(task, sink=sink, dtype="float64").model
    first = examples.factors["selector"] == 0
    _, cache = model.run_with_cache(examples.inputs, names_filter=lambda name: name.endswith("attn_scores"))
    scores = cache["blocks.1.attn.hook_attn_scores"][:, 0, 3]
    done = (1 + torch.tensor(-sink).exp()) / (2 + 2 * torch.tensor(-sink).exp())
    assert torch.allclose(scores[first][:, 2], torch.tensor(-5 * sink + 12 * sink * float(done)).double(), atol=1e-9)
    assert torch.allclose(scores[~first][:, 2], torch.tensor(sink).double(), atol=0.1)
    assert torch.allclose(scores[:, 0], torch.tensor(0.0).double(), atol=1e-9)
    assert torch.allclose(scores[:, 1], torch.tensor(-3 * sink).double(), atol=1e-9)


def test_bad_requests_are_one_sentence():
    task = EspTask(read_graph("complete:4"))
    with pytest.raises(ValueError, match="sink is 0"):
        backup(task, sink=0)
    with pytest.raises(ValueError, match="without the induction form"):
        backup(EspTask(task.graph, induction=True))
    with pytest.raises(KeyError, match="positional_mean, zero"):
        backup_circuit("resample")
