import pytest

from headlab.interp.circuit_picture import draw_circuit
from headlab.interp.circuits import END, START, Circuit, Edge, Node
from headlab.interp.render.figure import Figure

HEAD, LATER, MLP = Node("head", 0, 1), Node("head", 1, 0), Node("mlp", 0)


def test_every_node_and_name_is_in_the_picture():
    edges = {
        Edge(START, HEAD, "v", 0): 0.5,
        Edge(START, HEAD, "k", 0): 0.25,
        Edge(HEAD, MLP, "mlp", 2): 0.1,
        Edge(MLP, LATER, "q", 2): 0.2,
        Edge(LATER, END, "end", 2): -0.4,
    }
    circuit = Circuit(frozenset(edges), "zero", {(0, 1): "<copy>"}, edges, ranking="above 0.05")
    figure = draw_circuit(circuit, positions=("first & only", "b", "c"), badges=[((0, 1), "A")])
    assert isinstance(figure, Figure)
    drawn = figure.standalone_svg()
    for words in ("first &amp; only", "0.1", "mlp0", "1.0", "end", "&lt;copy&gt;"):
        assert words in drawn
    assert "<copy>" not in drawn
    assert "start@0000 to 0.1 through k, v" in figure.description
    assert "k, v +0.8" in drawn
    assert "above 0.05" in str(figure.caption)


def test_positions_without_a_name_are_numbered_and_nothing_is_refused():
    circuit = Circuit(frozenset({Edge(START, END, "end", 11)}), "zero")
    assert "position 11" in draw_circuit(circuit).standalone_svg()
    with pytest.raises(ValueError, match="no edges"):
        draw_circuit(Circuit(frozenset(), "zero"))


def test_an_unmeasured_edge_shows_its_input_and_no_number():
    drawn = draw_circuit(Circuit(frozenset({Edge(START, HEAD, "k", 0), Edge(HEAD, END, "end", 0)}), "zero")).svg
    assert ">k</text>" in drawn
    assert "+1.0</text>" not in drawn
