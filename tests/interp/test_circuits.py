"""A circuit as data: its nodes in model order, and the same circuit where heads stand elsewhere."""

import pytest

from headlab.interp.circuits import END, START, Circuit, Edge, Node

A, B = Node("head", 0, 0), Node("head", 0, 1)
CIRCUIT = Circuit(
    frozenset({Edge(START, A, "v", 0), Edge(A, B, "k", 1), Edge(B, END, "end", 1)}),
    "zero",
    {(0, 0): "first", (0, 1): "second"},
    {Edge(A, B, "k", 1): 2.0},
)


def test_heads_that_stand_elsewhere_take_their_edges_roles_and_weights_along():
    moved = CIRCUIT.with_heads({(0, 0): (0, 1), (0, 1): (0, 0)})
    assert moved.edges == {Edge(START, B, "v", 0), Edge(B, A, "k", 1), Edge(A, END, "end", 1)}
    assert moved.roles == {(0, 1): "first", (0, 0): "second"}
    assert moved.weights == {Edge(B, A, "k", 1): 2.0}
    assert moved.with_heads({(0, 0): (0, 1), (0, 1): (0, 0)}) == CIRCUIT
    assert CIRCUIT.with_heads({}) == CIRCUIT


def test_two_heads_do_not_become_one():
    with pytest.raises(ValueError, match="two heads of the circuit would become one"):
        CIRCUIT.with_heads({(0, 0): (0, 1)})


def test_nodes_are_in_model_order():
    assert CIRCUIT.nodes == (START, A, B, END)
