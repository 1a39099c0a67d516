import networkx as nx
import pytest
import torch

from headlab.models.tree.given import from_graph
from headlab.models.tree.source import TreeSource, stream
from headlab.models.tree.split import labelled_key, shape_key
from headlab.models.tree.trees import Forest


def renumbered(forest: Forest, labels: torch.Tensor, seed: int) -> tuple[Forest, torch.Tensor]:
    """The same labelled tree with its nodes numbered in another order that keeps parents first."""
    generator = torch.Generator().manual_seed(seed)
    depth = forest.depth()[0]
    order = (depth + torch.rand(depth.shape, generator=generator)).argsort()
    place = order.argsort()
    parent = forest.parent[0][order]
    parent = torch.where(parent >= 0, place[parent.clamp(min=0)], parent)
    return Forest(parent[None], place[forest.goal]), labels[:, order]


def test_keys_are_blind_to_numbering_and_see_edges_goal_and_labels():
    source = TreeSource(depths=(3,), nodes=10)
    forest, labels = source.draw(1, stream(0), test=False)
    other, relabelled = renumbered(forest, labels, 1)
    assert not torch.equal(other.parent, forest.parent) or not torch.equal(relabelled, labels)
    assert labelled_key(forest, labels) == labelled_key(other, relabelled)
    assert shape_key(forest) == shape_key(other)
    swapped = labels.clone()
    swapped[0, [1, 2]] = labels[0, [2, 1]]
    assert labelled_key(forest, labels) != labelled_key(forest, swapped)
    elsewhere = Forest(forest.parent, torch.tensor([1]))
    assert labelled_key(forest, labels) != labelled_key(elsewhere, labels)
    assert shape_key(forest) != shape_key(elsewhere)


def test_shape_keys_tell_exactly_the_isomorphic_trees_apart():
    forest = TreeSource(depths=(2,), nodes=6, branching=3).forest(60, stream(0))
    keys = shape_key(forest).tolist()
    graphs = []
    for row in range(len(forest)):
        graph = nx.DiGraph((above, node) for node, above in enumerate(forest.parent[row].tolist()) if above >= 0)
        nx.set_node_attributes(graph, {node: node == int(forest.goal[row]) for node in graph}, "goal")
        graphs.append(graph)
    for i in range(len(graphs)):
        for j in range(i):
            same = nx.is_isomorphic(graphs[i], graphs[j], node_match=lambda a, b: a["goal"] == b["goal"])
            assert same == (keys[i] == keys[j])


@pytest.mark.parametrize("split", ["labelling", "shape"])
def test_no_held_out_tree_is_ever_trained_on(split):
    source = TreeSource(depths=(2,), nodes=6, labels=7, split=split)
    key = labelled_key if split == "labelling" else lambda forest, labels: shape_key(forest)
    trained, held = source.draw(3000, stream(0), test=False), source.draw(300, stream(1), test=True)
    assert not set(key(*trained).tolist()) & set(key(*held).tolist())
    assert len(trained[0]) == 3000


def test_without_a_split_the_two_sides_do_meet():
    source = TreeSource(depths=(1,), nodes=2, labels=3, split="none")
    trained, held = source.draw(100, stream(0), test=False), source.draw(100, stream(1), test=True)
    assert set(labelled_key(*trained).tolist()) & set(labelled_key(*held).tolist())


def test_a_split_by_labels_shares_no_label():
    source = TreeSource(depths=(2,), nodes=6, labels=64, split="labels")
    _, trained = source.draw(200, stream(0), test=False)
    _, held = source.draw(200, stream(1), test=True)
    assert trained.max() < 56 <= held.min()


def test_distinct_trees_are_distinct_and_end_where_there_are_no_more():
    source = TreeSource(depths=(1,), nodes=2, labels=3, split="none")
    forest, labels = source.draw(100, stream(0), test=True, distinct=True)
    assert len(forest) == 6  # ordered pairs of three labels
    assert len(set(labelled_key(forest, labels).tolist())) == 6


def test_mixed_depths_are_all_drawn_evenly():
    forest = TreeSource(depths=(4, 1, 2)).forest(600, stream(0))
    depth = forest.ancestors()[1]
    assert [int((depth == d).sum()) for d in (1, 2, 4)] == pytest.approx([200, 200, 200], abs=60)
    for shape in ("binary", "caterpillar", "path"):
        mixed = TreeSource(depths=(3, 1), shape=shape).forest(50, stream(0))
        assert set(mixed.ancestors()[1].tolist()) == {1, 3}


def test_labels_within_a_tree_differ():
    _, labels = TreeSource(depths=(3,), labels=12, nodes=12).draw(50, stream(0), test=False)
    assert torch.equal(labels.sort(1).values, torch.arange(12).expand(50, 12))


TREE = from_graph(nx.DiGraph([("a", "b"), ("b", "c")]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depths": (0,)}, "one node has no path"),
        ({"depths": ()}, "one node has no path"),
        ({"labels": 8, "nodes": 9}, "9 nodes needs as many labels, but there are 8"),
        ({"labels": 64, "nodes": 9, "split": "labels"}, "there are 8 .the eighth of 64"),
        ({"shape": "binary", "depths": (6,)}, "127 nodes needs as many labels"),
        ({"nodes": 41, "depths": (3,)}, "use 4 to 40"),
        ({"shape": "star"}, "no shape 'star': choose one of random"),
        ({"split": "half"}, "no split 'half'"),
        ({"shape": "given"}, "give both or neither"),
        ({"goal": "a"}, "leave it out, or give the tree"),
        ({"shape": "given", "given": TREE, "goal": "z"}, "the goal 'z' is not in the tree"),
        ({"shape": "given", "given": TREE, "goal": "a"}, "the goal 'a' is the root"),
        ({"shape": "given", "given": TREE, "labels": 2}, "3 nodes needs as many labels"),
    ],
)
def test_bad_requests_are_one_sentence(options, words):
    with pytest.raises(ValueError, match=words) as raised:
        TreeSource(**({"nodes": None} | options))
    assert "\n" not in str(raised.value)


def test_a_split_that_leaves_nothing_says_so():
    one_shape = TreeSource(depths=(3,), shape="path", split="shape")
    sides = []
    for test in (False, True):
        try:
            one_shape.draw(5, stream(0), test=test)
        except ValueError as error:
            sides.append(str(error))
    assert len(sides) == 1
    assert "use another split" in sides[0]
