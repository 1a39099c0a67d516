"""Two heads: no error on any graph, margins by the formulas, in float32, over all tokens."""

import math

import numpy as np
import pytest
import torch

from headlab.models.esp.evaluation import evaluate, read_logits
from headlab.models.esp.graphs import Digraph, read_graph
from headlab.models.esp.task import EspTask
from headlab.models.esp.two_heads import attention, two_head, two_head_narrow
from headlab.models.task import Examples


def narrow_formula(n: int) -> float:
    """(1 - cos(2 pi/n))/2, or 1/2 where tokens that are no vertex come nearer (n <= 4)."""
    return min((1 - math.cos(2 * math.pi / n)) / 2, 0.5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n", range(3, 21))
def test_complete_digraphs(n, tied):
    task = EspTask(read_graph(f"complete:{n}"))
    wide, narrow = two_head(task, tied=tied), two_head_narrow(task, tied=tied)
    found = evaluate(wide.model, task)
    assert found.errors == wide.errors == 0
    assert found.min_margin == pytest.approx(0.490 if tied else 0.4993, rel=2e-3)
    assert found.min_margin == pytest.approx(wide.margin, rel=1e-5)
    found = evaluate(narrow.model, task)
    assert found.errors == narrow.errors == 0
    assert found.min_margin == pytest.approx(narrow_formula(n), rel=0.02 if not tied or n > 4 else 0.04)
    assert narrow.margin * (1 - 1e-5) <= found.min_margin <= narrow.margin * 1.01
    assert (wide.model.cfg.d_model, narrow.model.cfg.d_model, narrow.model.cfg.d_head) == (n + 3, 5, 2)


@pytest.mark.parametrize("build", [two_head, two_head_narrow])
def test_random_multigraphs(build):
    for number in range(25):
        generator = np.random.default_rng(number)
        n = int(generator.integers(2, 15))
        arcs = tuple((int(u), int(v)) for u, v in generator.integers(0, n, (int(generator.integers(1, 4 * n)), 2)))
        task = EspTask(Digraph("drawn", tuple(f"v{k}" for k in range(n)), arcs))
        for tied in (False, True):
            made = build(task, tied=tied)
            found = evaluate(made.model, task)
            assert found.errors == 0
            assert found.min_margin >= made.margin * (1 - 1e-5)
            if made.margin_is_exact:
                assert found.min_margin == pytest.approx(made.margin, rel=1e-5)


@pytest.mark.parametrize("name", ["click", "httpx", "jinja2", "rich"])
def test_the_real_graphs(name):
    task = EspTask(read_graph(name))
    assert evaluate(two_head(task).model, task).errors == 0
    assert evaluate(two_head_narrow(task).model, task).errors == 0


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("build", [two_head, two_head_narrow])
def test_induction_form(build, tied):
    plain, task = (EspTask(read_graph("complete:10"), induction) for induction in (False, True))
    made, reference = build(task, tied=tied), build(plain, tied=tied)
    found = evaluate(made.model, task)
    assert (found.samples, found.errors) == (180, 0)
    assert found.min_margin == pytest.approx(reference.margin, rel=0.02)
    assert found.min_margin == pytest.approx(made.margin, rel=1e-5)


@pytest.mark.parametrize("induction", [False, True])
@torch.no_grad()
def test_each_head_reads_its_end_and_is_sunk_by_the_other_selector(induction):
    task = EspTask(read_graph("complete:10"), induction)
    made = two_head(task, dtype="float64")
    examples = task.examples()
    _, cache = made.model.run_with_cache(examples.inputs)
    pattern = cache["blocks.0.attn.hook_pattern"][:, :, -1]
    under = examples.factors["selector"]
    at = [task.position(name) for name in ("u", "v", "selector", "query")]
    first, second = (pattern[under == level][0][:, at] for level in (0, 1))
    resting, sunk = [0.4998, 0.0002, 0.0002, 0.4998], [0.0003, 0.0000, 0.9993, 0.0003]
    assert first[0].tolist() == pytest.approx(resting, abs=1e-4)
    assert second[0].tolist() == pytest.approx(sunk, abs=1e-4)
    assert first[1, [1, 0, 2, 3]].tolist() == pytest.approx(sunk, abs=1e-4)
    assert second[1, [1, 0, 2, 3]].tolist() == pytest.approx(resting, abs=1e-4)
    target, other = attention(8.0, induction=induction)
    ends = pattern[:, :, at[:2]].sum(1)
    assert ends[under == 0].T[0].tolist() == pytest.approx([target] * 90)
    assert ends[under == 0].T[1].tolist() == pytest.approx([other] * 90)


@torch.no_grad()
def test_without_a_head_its_selector_is_lost_and_the_other_untouched():
    task = EspTask(read_graph("complete:6"))
    examples: Examples = task.examples()
    accuracy = task.metrics(examples)["accuracy"]
    model = two_head(task).model
    for head in (0, 1):

        def silence(z, hook, head=head):
            z = z.clone()
            z[:, :, head] = 0
            return z

        right = accuracy(model.run_with_hooks(examples.inputs, fwd_hooks=[("blocks.0.attn.hook_z", silence)]))
        by_selector = [float(right[examples.factors["selector"] == level].mean()) for level in (0, 1)]
        assert by_selector == ([0.0, 1.0] if head == 0 else [1.0, 0.0])


def test_weaker_sinks_and_honest_margins():
    task = EspTask(read_graph("complete:7"))
    for sink in (1, 3.0, 16):
        made = two_head(task, sink=sink, dtype="float64")
        assert evaluate(made.model, task).min_margin == pytest.approx(made.margin, rel=1e-12)
        assert made.notes["sink"] == made.options["sink"] == sink
    weak = two_head_narrow(task, sink=0.5)
    assert (weak.errors, weak.margin) == (None, None)
    with pytest.raises(ValueError, match="the sink is 0: it must be a positive"):
        two_head(task, sink=0)


@pytest.mark.parametrize(("dtype", "n"), [("float32", 400), ("float16", 128), ("bfloat16", 64)])
def test_width_5_holds_many_vertices_even_in_half_precision(dtype, n):
    """As many as the docstring says; on a cycle, whose arcs join neighbours on the circle, and random arcs."""
    arcs = {(k, (k + 1) % n) for k in range(n)} | {(k, (7 * k + 3) % n) for k in range(n)}
    task = EspTask(Digraph("wheel", tuple(map(str, range(n))), tuple(sorted(arcs))))
    assert evaluate(two_head_narrow(task, dtype=dtype).model, task).errors == 0


@torch.no_grad()
def test_tokens_that_are_no_vertex_never_win_and_tied_weights_are_one_tensor():
    task = EspTask(read_graph("complete:5"))
    model = two_head(task, tied=True).model
    assert model.unembed.W_U.data_ptr() == model.embed.W_E.data_ptr()
    assert "unembed.W_U" not in model.state_dict()
    logits = read_logits(model, task)
    assert torch.allclose(logits[:, 5:7], torch.zeros(40, 2))
    assert torch.allclose(logits[:, 7], torch.full((40,), 0.01))
