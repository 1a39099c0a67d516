import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.interp.circuits import Circuit
from headlab.models.tree.given import from_graph
from headlab.models.tree.layout import Layout
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask
from headlab.models.tree.tokens import BACK, BOS, EDGE, FWD, Labels, encode
from headlab.models.tree.trees import Forest

S = Labels(10)
FOREST = Forest(torch.tensor([[-1, 0, 1, 0]]), torch.tensor([2]))  # 0 -> 1 -> 2 and 0 -> 3
LABELS = torch.tensor([[7, 4, 9, 2]])
ORDER = torch.tensor([[2, 0, 3, 1]])
EDGES = [(EDGE, 4, 9), (EDGE, S.turn, 7), (EDGE, 7, 2), (EDGE, 7, 4)]


def sequence(direction, chain_of_thought=True, form="pair"):
    found = encode(FOREST, LABELS, ORDER, S, direction, chain_of_thought, form)
    return found.tokens[0].tolist(), found.read[0].tolist(), found.targets[0].tolist()


def test_forward_with_a_chain_by_hand():
    tokens, read, targets = sequence("forward")
    path = [(BACK, 9, S.end), (BACK, 4, 9), (BACK, 7, 4), (BACK, S.turn, 7)]
    path += [(FWD, 7, S.nul), (FWD, 4, S.nul), (FWD, 9, S.nul)]
    assert tokens == [list(t) for t in [(BOS, S.nul, S.nul), *EDGES, *path]]
    assert read == list(range(5, 12))
    assert targets == [4, 7, S.turn, 7, 4, 9, S.end]


def test_backward_by_hand():
    tokens, read, targets = sequence("backward")
    path = [(BACK, 9, S.end), (BACK, 4, 9), (BACK, 7, 4)]
    assert tokens == [list(t) for t in [(BOS, S.nul, S.nul), *EDGES, *path]]
    assert (read, targets) == ([5, 6, 7], [4, 7, S.turn])


def test_forward_without_a_chain_by_hand():
    tokens, read, targets = sequence("forward", chain_of_thought=False)
    path = [(BACK, 9, S.end), (FWD, 7, S.nul), (FWD, 4, S.nul), (FWD, 9, S.nul)]
    assert tokens == [list(t) for t in [(BOS, S.nul, S.nul), *EDGES, *path]]
    assert (read, targets) == ([5, 6, 7, 8], [7, 4, 9, S.end])


def test_plain_tokens_by_hand():
    tokens, read, targets = sequence("backward", form="plain")
    assert tokens == [S.bos, 4, 9, S.turn, 7, 7, 2, 7, 4, S.nul, 9, 4, 7]
    assert (read, targets) == ([10, 11, 12], [4, 7, S.turn])


@settings(max_examples=30, deadline=None)
@given(
    depth=st.integers(1, 5),
    direction=st.sampled_from(["backward", "forward"]),
    chain=st.booleans(),
    form=st.sampled_from(["pair", "plain"]),
    seed=st.integers(0, 100),
)
def test_every_sequence_spells_its_path(depth, direction, chain, form, seed):
    task = TreeTask(TreeSource(depths=(depth, 2), labels=20, split="none"), direction, chain, form)
    encoded = task.training_batch(5, seed=seed, index=0)
    label = encoded.tokens[..., 1] if form == "pair" else encoded.tokens
    for row in range(5):
        d = int(encoded.depth[row])
        layout = Layout(task.trees.nodes_at(d), d, direction, chain, form)
        read = encoded.read[row][encoded.read[row] >= 0].tolist()
        assert read == list(layout.read)
        if form == "pair":
            kind, a, b = encoded.tokens[row].T
            parent = {int(y): int(x) for t, x, y in zip(kind, a, b, strict=True) if t == EDGE}
        else:
            pairs = encoded.tokens[row][1 : layout.goal - 1].view(-1, 2).tolist()
            parent = {y: x for x, y in pairs}
        up = [int(label[row, layout.goal])]
        while up[-1] != task.tokens.turn:
            up.append(parent[up[-1]])
        right = {"backward": up[1:], "forward": [*up[1:], *up[-2::-1], task.tokens.end]}[direction]
        if direction == "forward" and not chain:
            right = [*up[-2::-1], task.tokens.end]
        assert encoded.targets[row, : len(read)].tolist() == right
        assert label[row, layout.goal + 1 : layout.length].tolist() == right[:-1]


def test_positions_have_names():
    task = TreeTask(TreeSource(depths=(2,), nodes=4))
    assert task.positions == (
        "bos", "edge 0", "edge 1", "edge 2", "edge 3", "goal", "back 1", "back 2", "turn", "fwd 0", "fwd 1", "fwd 2",
    )  # fmt: skip
    assert len(task.positions) == task.layout.length == task.examples(count=3).inputs.shape[1]
    assert TreeTask(TreeSource(depths=(2, 3))).positions[:2] == ("position 0", "position 1")
    plain = TreeTask(TreeSource(depths=(1,), nodes=2), "backward", form="plain")
    assert plain.positions[:4] == ("bos", "edge 0 parent", "edge 0 child", "edge 1 parent")
    assert len(plain.positions) == plain.layout.length


def test_roles_name_the_edge_and_the_token_that_hold_the_answer():
    task = TreeTask(TreeSource(depths=(3, 1)))
    backward, reverse = task.roles(count=40)
    kind, a, b = backward.inputs.unbind(-1)
    for role, source, answer in ((backward, EDGE, a), (reverse, BACK, b)):
        assert (role.targets.sum(-1) == role.queries).all()
        example, query, key = role.targets.nonzero(as_tuple=True)
        assert (key < query).all()
        assert (kind[example, key] == source).all()
        after = torch.where(query + 1 < a.shape[1], query + 1, 0)
        ends = (answer[example, key] == task.tokens.end) | (answer[example, key] == task.tokens.turn)
        assert (ends | (answer[example, key] == a[example, after])).all()
    turn = (kind == BACK) & (a == task.tokens.turn)
    assert not (backward.queries & turn).any()
    assert not (reverse.queries & turn).any()
    metrics = task.role_metrics([backward, reverse])
    examples = task.examples(count=40)
    right = one_hot(task, examples)
    assert {name: float(metric(right).mean()) for name, metric in metrics.items()} == {"backward": 1.0, "reverse": 1.0}
    assert float(metrics["backward"](right.roll(1, -1)).mean()) == 0.0


def one_hot(task, examples):
    logits = torch.zeros(*examples.inputs.shape[:2], len(task.vocabulary))
    row, column = (examples.read >= 0).nonzero(as_tuple=True)
    logits[row, examples.read[row, column], examples.targets[row, column]] = 1.0
    return logits


def test_metrics_on_hand_made_logits():
    task = TreeTask(TreeSource(depths=(2, 4)))
    examples = task.examples(count=20)
    logits = one_hot(task, examples)
    metrics = task.metrics(examples)
    assert next(iter(metrics)) == "path"
    assert all(float(metrics[name](logits).min()) == 1.0 for name in ("path", "token", "backward", "reverse", "margin"))
    ties = torch.zeros_like(logits)
    assert all(float(metrics[name](ties).max()) == 0.0 for name in ("path", "token", "backward", "reverse"))
    logits[torch.arange(20), examples.read[:, 0]] = 0.0  # the first prediction wrong, all others right
    predictions = (examples.read >= 0).sum(1).double()
    assert torch.equal(metrics["path"](logits), torch.zeros(20))
    assert torch.allclose(metrics["token"](logits).double(), 1 - 1 / predictions)
    assert torch.equal(metrics["reverse"](logits), torch.ones(20))
    assert (metrics["backward"](logits) < 1).all()


def test_contrasts_change_one_token_and_the_answer():
    task = TreeTask(TreeSource(depths=(4,)))
    found = task.contrasts(count=30)
    assert list(found) == ["goal", "edge", "predecessor"]
    for contrast in found.values():
        differ = (contrast.source != contrast.destination).any(-1)
        assert differ.sum(1).tolist() == [1] * 30
        assert (differ.long().argmax(1) <= contrast.read[0]).all()
        kind, a, b = contrast.destination.unbind(-1)
        current = a[:, contrast.read[0]]
        rows = torch.arange(30)
        if contrast.name == "predecessor":
            match = (kind == BACK) & (a == current[:, None])
            wrong = b[rows, match.long().argmax(1)]
        else:
            match = (kind == EDGE) & (b == current[:, None])
            wrong = a[rows, match.long().argmax(1)]
            parents = {tuple(x) for x in torch.stack([b, a], -1)[0][kind[0] == EDGE].tolist()}
            graph = nx.DiGraph((parent, child) for child, parent in parents)
            assert nx.is_arborescence(graph)
        logits = torch.zeros(30, 1, len(task.vocabulary))
        logits[rows, 0, wrong] = 1.0
        assert torch.equal(contrast.metrics["logit_difference"](logits), torch.full((30,), -1.0))
    assert list(TreeTask(TreeSource(depths=(4,)), "backward").contrasts(count=5)) == ["goal", "edge"]
    assert TreeTask(TreeSource(depths=(4,)), form="plain").contrasts() == {}


def test_contrasts_of_too_small_trees_say_so():
    with pytest.raises(ValueError, match="too small for a contrast"):
        TreeTask(TreeSource(depths=(1,), shape="path", split="none")).contrasts(count=4)


def test_options_make_an_equal_task():
    tree = from_graph(nx.DiGraph([("a", "b"), ("b", "c")]))
    for task in (
        TreeTask(TreeSource(depths=(3, 5), nodes=20, split="shape"), "backward"),
        TreeTask(TreeSource(depths=(2,), shape="given", given=tree, goal="c"), chain_of_thought=False),
    ):
        assert TreeTask.from_options(task.options()) == task
    with pytest.raises(ValueError, match="no option 'depth': it has branching"):
        TreeTask.from_options({"depth": 3})


def test_a_given_tree_has_the_layout_of_its_goal():
    tree = from_graph(nx.DiGraph([("a", "b"), ("b", "c"), ("a", "d")]))
    task = TreeTask(TreeSource(shape="given", given=tree, goal="c"))
    assert task.layout == Layout(4, 2)
    assert len(task.contrasts(count=3)["goal"].positions) == task.layout.length
    anywhere = TreeTask(TreeSource(shape="given", given=tree))
    assert set(anywhere.examples(count=50).levels["depth"]) == {"1", "2"}
    with pytest.raises(ValueError, match="name a goal in the given tree"):
        anywhere.contrasts()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: TreeTask(direction="up"), "no direction 'up': choose one of backward, forward"),
        (lambda: TreeTask(form="triple"), "no form 'triple'"),
        (lambda: TreeTask().examples(count=0), "at least 1"),
        (lambda: TreeTask().require_context(20), "beyond the context of 20"),
    ],
)
def test_bad_requests_are_one_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_batches_and_examples_repeat_with_their_seed_and_move_no_generator():
    task = TreeTask()
    before = torch.get_rng_state()
    first, again = task.training_batch(4, seed=1, index=2), task.training_batch(4, seed=1, index=2)
    other = task.training_batch(4, seed=1, index=3)
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    assert torch.equal(task.examples(count=3, seed=4).inputs, task.examples(count=3, seed=4).inputs)
    assert torch.equal(before, torch.get_rng_state())


def test_the_circuit_of_another_task_is_refused():
    task = TreeTask(TreeSource(depths=(2,), nodes=5))
    assert isinstance(task.circuit("forward", "resample"), Circuit)
    for variant, ablation, words in (
        ("sideways", "resample", "there are backward, forward"),
        ("forward", "zero", "known: resample, positional_mean, resample:goal"),
        ("backward", "resample", "another task"),
    ):
        with pytest.raises(KeyError, match=words):
            task.circuit(variant, ablation)
