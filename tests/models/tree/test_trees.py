import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headlab.models.tree.trees import (
    PAD,
    Forest,
    capacity,
    caterpillar_forest,
    given_forest,
    join,
    path_forest,
    perfect_forest,
    random_forest,
)


def graph_of(forest: Forest, row: int) -> nx.DiGraph:
    parent = forest.parent[row].tolist()
    graph = nx.DiGraph()
    graph.add_nodes_from(node for node, above in enumerate(parent) if above != PAD)
    graph.add_edges_from((above, node) for node, above in enumerate(parent) if above >= 0)
    return graph


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), data=st.data())
def test_random_trees_are_trees_of_the_depth_size_and_branching_asked_for(seed, data):
    branching = data.draw(st.integers(2, 4))
    depths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    nodes = [data.draw(st.integers(d + 1, min(capacity(d, branching), 20))) for d in depths]
    generator = torch.Generator().manual_seed(seed)
    forest = random_forest(torch.tensor(depths), torch.tensor(nodes), branching, generator)
    for row, (depth, size) in enumerate(zip(depths, nodes, strict=True)):
        graph = graph_of(forest, row)
        assert nx.is_arborescence(graph)
        assert len(graph) == size
        assert max(out for _, out in graph.out_degree()) <= branching
        lengths = nx.single_source_shortest_path_length(graph, 0)
        assert max(lengths.values()) == lengths[int(forest.goal[row])] == depth
        assert forest.depth()[row, :size].tolist() == [lengths[node] for node in range(size)]


def test_random_trees_differ_and_repeat_with_their_seed():
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return random_forest(torch.full((50,), 3), torch.full((50,), 12), 3, generator).parent

    assert torch.equal(draw(0), draw(0))
    assert len(draw(0).unique(dim=0)) > 40


def test_no_global_generator_moves():
    before = torch.get_rng_state()
    random_forest(torch.full((5,), 3), torch.full((5,), 9), 3, torch.Generator().manual_seed(0))
    perfect_forest(5, 3, 2, torch.Generator().manual_seed(0))
    assert torch.equal(before, torch.get_rng_state())


def test_perfect_binary_trees_ask_for_leaves():
    forest = perfect_forest(200, 3, 2, torch.Generator().manual_seed(0))
    graph = graph_of(forest, 0)
    assert len(graph) == 15
    assert sorted(out for _, out in graph.out_degree()) == [0] * 8 + [2] * 7
    assert sorted(set(forest.goal.tolist())) == list(range(7, 15))
    assert set(forest.depth()[0].tolist()) == {0, 1, 2, 3}


def test_paths_and_caterpillars():
    chain = graph_of(path_forest(1, 4), 0)
    assert len(chain) == 5
    assert nx.dag_longest_path_length(chain) == 4
    crawling = graph_of(caterpillar_forest(1, 4, legs=1), 0)
    assert len(crawling) == 9
    assert nx.dag_longest_path_length(crawling) == 4
    assert sorted(out for _, out in crawling.out_degree()) == [0] * 5 + [2] * 4


def test_ancestors_by_hand():
    forest = Forest(torch.tensor([[-1, 0, 1, 0], [-1, 0, PAD, PAD]]), torch.tensor([2, 1]))
    path, depth = forest.ancestors()
    assert depth.tolist() == [2, 1]
    assert path.tolist() == [[2, 1, 0], [1, 0, 0]]
    assert forest.nodes.tolist() == [4, 2]


def test_a_given_tree_keeps_its_shape_and_never_asks_for_its_root():
    forest = given_forest((-1, 0, 0, 2), 100, torch.Generator().manual_seed(0))
    assert sorted(set(forest.goal.tolist())) == [1, 2, 3]
    assert given_forest((-1, 0, 0, 2), 3, torch.Generator(), goal=3).goal.tolist() == [3, 3, 3]


def test_joined_batches_are_padded():
    forest = join([path_forest(1, 1), path_forest(1, 3)])
    assert forest.parent.tolist() == [[-1, 0, PAD, PAD], [-1, 0, 1, 2]]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: path_forest(1, 0), "one node"),
        (lambda: perfect_forest(1, 0, 2, torch.Generator()), "one node"),
        (lambda: given_forest((-1,), 1, torch.Generator()), "one node"),
        (lambda: random_forest(torch.tensor([2]), torch.tensor([8]), 2, torch.Generator()), "3 to 7 nodes, not 8"),
        (lambda: random_forest(torch.tensor([2]), torch.tensor([2]), 2, torch.Generator()), "3 to 7 nodes, not 2"),
        (lambda: random_forest(torch.tensor([2]), torch.tensor([3]), 0, torch.Generator()), "no node a child"),
    ],
)
def test_bad_sizes_are_one_sentence(make, words):
    with pytest.raises(ValueError, match=words) as raised:
        make()
    assert "\n" not in str(raised.value)
