import pytest
import torch

from headlab.interp.circuits import END, START, Edge, Node
from headlab.interp.errors import RequestError
from headlab.interp.interventions import Intervention
from headlab.interp.model import activations
from headlab.interp.paths import patch_edge_sets, patch_edges, patch_path
from headlab.interp.wiring import wire
from tests.interp.hand_built import arcs, random_model, tokens, two_heads


def first_token(logits):
    return logits[:, -1, 0] - 0.3 * logits[:, 0, 1]


def split_inputs_effect(model, inputs, source_inputs, edge, metric):
    """The effect by transformer-lens' own split inputs: nothing here is shared with the code under test."""
    model.set_use_split_qkv_input(True)
    if not model.cfg.attn_only:
        model.set_use_hook_mlp_in(True)
    try:
        delta = written_by(model, source_inputs, edge.source) - written_by(model, inputs, edge.source)
        layer, at = edge.destination.layer, edge.position

        def edit(value, hook):
            value = value.clone()
            if edge.port in ("q", "k", "v"):
                value[:, at, edge.destination.head] += delta[:, at]
            else:
                value[:, at] += delta[:, at]
            return value

        name = {
            "mlp": f"blocks.{layer}.hook_mlp_in",
            "end": f"blocks.{model.cfg.n_layers - 1}.hook_resid_post",
        }.get(edge.port, f"blocks.{layer}.hook_{edge.port}_input")
        return metric(model(inputs)) - metric(model.run_with_hooks(inputs, fwd_hooks=[(name, edit)]))
    finally:
        model.set_use_split_qkv_input(False)
        if not model.cfg.attn_only:
            model.set_use_hook_mlp_in(False)


def written_by(model, inputs, node):
    name = {
        "start": "blocks.0.hook_resid_pre",
        "mlp": f"blocks.{node.layer}.hook_mlp_out",
        "head": f"blocks.{node.layer}.attn.hook_z",
    }[node.kind]
    value = activations(model, inputs, [name])[1][name]
    return value[:, :, node.head] @ model.W_O[node.layer, node.head] if node.kind == "head" else value


def test_two_by_two_model_worked_by_hand():
    model = random_model(n_layers=1, n_heads=1, d_model=2, d_head=2, n_ctx=2, d_vocab=2)
    identity = torch.eye(2, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embed.W_E.copy_(identity)
        model.blocks[0].attn.W_V[0].copy_(identity)
        model.blocks[0].attn.W_O[0].copy_(2 * identity)
        model.unembed.W_U.copy_(identity)
    # Token 0, then token 1: the last position averages both and adds the double to its own.
    head = Node("head", 0, 0)
    found = patch_edges(
        model, torch.tensor([[0, 1]]), lambda logits: logits[:, -1, 1] - logits[:, -1, 0], Intervention("zero")
    )
    effects = {str(edge): float(effect) for edge, effect in found.weights("signed").items()}
    assert effects == {
        "start -> end@0": 0.0,
        "start -> end@1": 1.0,
        "start -> 0.0.q@0": 0.0,
        "start -> 0.0.q@1": 0.0,
        "start -> 0.0.k@0": 0.0,
        "start -> 0.0.k@1": 0.0,
        "start -> 0.0.v@0": -1.0,
        "start -> 0.0.v@1": 1.0,
        "0.0 -> end@0": 0.0,
        "0.0 -> end@1": 0.0,
    }
    assert found.baseline.tolist() == [1.0]
    assert len(found.edges) == len(effects)
    assert all(edge.source in (START, head) for edge in found.edges)


@pytest.mark.parametrize(
    "config",
    [
        {"normalization_type": "LN", "attn_only": False},
        {"normalization_type": "RMS", "n_layers": 3, "positional_embedding_type": "rotary", "rotary_dim": 4},
        {"normalization_type": "LNPre", "attention_dir": "bidirectional"},
        {"n_layers": 1, "attn_only": False},
    ],
)
@pytest.mark.parametrize("read", [None, (4, 0)])
def test_every_kind_of_edge_equals_split_inputs(config, read):
    model, inputs, source = random_model(**config), tokens(3), tokens(3, seed=1)

    def at_read(logits):
        return logits[:, -1, 0] - 0.3 * logits[:, 0, 1] if read is None else logits[:, 0, 0] - 0.3 * logits[:, 1, 1]

    every = wire(model, inputs).edges(end=read)
    picked = torch.randperm(len(every), generator=torch.Generator().manual_seed(3))[:24].tolist()
    edges = [every[index] for index in picked]
    put = Intervention("patch", source)
    found = {
        engine: patch_edges(model, inputs, at_read, put, edges=edges, read=read, engine=engine)
        for engine in ("cone", "expand")
    }
    assert {name: each.engine for name, each in found.items()} == {"cone": "cone", "expand": "expand"}
    for row, edge in enumerate(edges):
        expected = split_inputs_effect(model, inputs, source, edge, first_token)
        for each in found.values():
            assert torch.allclose(each.effect[row], expected, atol=1e-11), str(edge)
    assert int((found["cone"].effect != 0).any(1).sum()) > 6


def test_what_the_cone_does_not_model_is_run_and_said():
    model, inputs, put = random_model(output_logits_soft_cap=3.0), tokens(2), Intervention("patch", tokens(2, seed=1))
    edge = Edge(START, Node("head", 1, 0), "v", 1)
    found = patch_edges(model, inputs, first_token, put, edges=[edge])
    assert found.engine == "expand"
    assert "soft-capped" in found.notes[0]
    assert torch.allclose(found.effect[0], split_inputs_effect(model, inputs, put.reference, edge, first_token))
    with pytest.raises(KeyError, match="auto, cone or expand"):
        patch_edges(model, inputs, first_token, put, engine="fast")


def test_a_hook_of_the_readers_own_stays_and_acts():
    inputs, put = tokens(2), Intervention("patch", tokens(2, seed=1))
    edge = Edge(START, Node("head", 0, 1), "v", 1)
    plain, hooked = random_model(), random_model()
    hooked.blocks[1].attn.hook_z.add_hook(lambda z, hook: z * torch.tensor([1.0, 0.0]).view(2, 1, 1, 1))
    found = patch_edges(hooked, inputs, first_token, put, edges=[edge])
    assert found.engine == "expand"
    assert len(hooked.blocks[1].attn.hook_z.fwd_hooks) == 1
    assert torch.allclose(found.effect[0], split_inputs_effect(hooked, inputs, put.reference, edge, first_token))
    without = patch_edges(plain, inputs, first_token, put, edges=[edge]).effect[0]
    assert float(without[0]) == pytest.approx(float(found.effect[0, 0]), abs=1e-12)
    assert float(without[1]) != pytest.approx(float(found.effect[0, 1]), abs=1e-6)


def test_grouped_heads_are_ungrouped_for_the_run_and_grouped_again_afterwards():
    options = {"n_heads": 4, "n_key_value_heads": 2, "normalization_type": "RMS"}
    inputs, put = tokens(2), Intervention("patch", tokens(2, seed=1))
    model, plain = random_model(**options), random_model(**options, ungroup_grouped_query_attention=True)
    before = model(inputs)
    found = patch_edges(model, inputs, first_token, put)
    into = {edge.destination.head for edge, effect in found.weights().items() if edge.port == "v" and effect > 0}
    assert into == {0, 1, 2, 3}
    assert torch.equal(found.effect, patch_edges(plain, inputs, first_token, put).effect)
    for row in range(0, len(found.edges), 17):
        expected = split_inputs_effect(plain, inputs, put.reference, found.edges[row], first_token)
        assert torch.allclose(found.effect[row], expected, atol=1e-11), str(found.edges[row])

    def broken(logits):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        patch_edges(model, inputs, broken, put)
    assert not model.cfg.ungroup_grouped_query_attention
    assert torch.equal(model(inputs), before)


def test_all_edges_together_make_the_source_run():
    for config in ({"normalization_type": "LN", "attn_only": False}, {"n_layers": 3}):
        model, inputs, source = random_model(**config), tokens(3), tokens(3, seed=1)
        put = Intervention("patch", source)
        every = patch_edges(model, inputs, first_token, put).edges
        together = patch_edge_sets(model, inputs, first_token, put, [every, []])
        expected = first_token(model(inputs)) - first_token(model(source))
        assert torch.allclose(together.effect[0], expected, atol=1e-11)
        assert together.effect[1].tolist() == [0.0, 0.0, 0.0]


def test_a_set_sees_what_is_cut_above_it():
    """Two edges in a row: the second carries the reference whatever the first does; the rest of the node lives on."""
    model, inputs, source = random_model(n_layers=2, attn_only=False), tokens(3), tokens(3, seed=1)
    put = Intervention("patch", source)
    head = Node("head", 0, 1)
    above = [Edge(START, head, "v", position) for position in range(5)]
    below = [Edge(head, END, "end", position) for position in range(5)]
    found = patch_edge_sets(model, inputs, first_token, put, [above, below, above + below])

    stem, values = "blocks.0.attn.", {}
    for run_name, data in (("run", inputs), ("source", source)):
        values[run_name] = activations(model, data, [f"{stem}hook_v", f"{stem}hook_z"])[1]

    def new_values(v, hook):
        v = v.clone()
        v[:, :, 1] = values["source"][f"{stem}hook_v"][:, :, 1]
        return v

    live = {}

    def note(z, hook):
        live["z"] = z[:, :, 1].clone()

    def at_end(residual, hook):
        return residual + (values["source"][f"{stem}hook_z"][:, :, 1] - live["z"]) @ model.W_O[0, 1]

    hooks = [(f"{stem}hook_v", new_values), (f"{stem}hook_z", note), ("blocks.1.hook_resid_post", at_end)]
    expected = first_token(model(inputs)) - first_token(model.run_with_hooks(inputs, fwd_hooks=hooks))
    assert torch.allclose(found.effect[2], expected, atol=1e-11)
    assert float((found.effect[2] - found.effect[0] - found.effect[1]).abs().max()) > 1e-4


def test_effects_in_a_model_without_some_edges():
    model, inputs, put = random_model(), tokens(3), Intervention("patch", tokens(3, seed=1))
    cut, edge = Edge(START, Node("head", 1, 0), "v", 2), Edge(START, Node("head", 0, 1), "k", 1)
    alone = patch_edges(model, inputs, first_token, put, edges=[edge], cut=[cut])
    sets = patch_edge_sets(model, inputs, first_token, put, [[cut], [cut, edge]])
    assert torch.allclose(alone.effect[0], sets.effect[1] - sets.effect[0], atol=1e-12)
    assert torch.allclose(alone.baseline, sets.baseline - sets.effect[0], atol=1e-12)


def test_the_run_itself_as_source_changes_nothing_at_all():
    for dtype in (torch.float32, torch.float64):
        model, inputs = random_model(normalization_type="LN", attn_only=False, dtype=dtype), tokens(4)
        found = patch_edges(model, inputs, first_token, Intervention("patch", inputs))
        assert not found.effect.any()
        assert found.warning is not None
        assert "exactly 0" in found.warning
        path = patch_path(model, inputs, first_token, Intervention("patch", inputs), [START, Node("head", 0, 0), END])
        assert not path.effect.any()


def test_kinds_of_replacement_and_their_reference_are_kept():
    model, inputs = random_model(), tokens(6)
    edge = Edge(START, END, "end", 4)
    for kind in ("mean", "positional_mean", "resample"):
        found = patch_edges(model, inputs, first_token, Intervention(kind, inputs, seed=4), edges=[edge])
        assert found.kind == kind
        assert found.reference is inputs
        assert kind in found.intervention
        start = activations(model, inputs, ["blocks.0.hook_resid_pre"])[1]["blocks.0.hook_resid_pre"]
        drawn = Intervention(kind, inputs, seed=4).drawn(inputs)
        new = {"mean": start.mean((0, 1)), "positional_mean": start.mean(0)[4]}.get(kind)
        new = start[drawn, 4] if new is None else new
        expected = ((start[:, 4] - new) @ model.W_U)[:, 0]
        assert torch.allclose(found.effect[0], expected, atol=1e-12)
    with pytest.raises(ValueError, match="needs reference data"):
        Intervention("mean")


def test_chunks_and_batches_give_the_same_effects(monkeypatch):
    model, inputs, source = random_model(normalization_type="LN", n_layers=1), tokens(3), tokens(3, seed=1)
    whole = patch_edges(model, inputs, first_token, Intervention("patch", source))
    singles = [
        patch_edges(model, inputs[i : i + 1], first_token, Intervention("patch", source[i : i + 1])) for i in range(3)
    ]
    assert torch.allclose(whole.effect, torch.cat([single.effect for single in singles], 1), atol=1e-12)
    monkeypatch.setattr("headlab.interp.paths.CHUNK", 500)
    assert torch.allclose(
        whole.effect, patch_edges(model, inputs, first_token, Intervention("patch", source)).effect, atol=1e-12
    )


def test_path_through_one_head_is_its_edge_into_the_end():
    model, inputs, source = random_model(n_layers=1, normalization_type="LN"), tokens(3), tokens(3, seed=1)
    put = Intervention("patch", source)
    head = Node("head", 0, 1)
    path = patch_path(model, inputs, first_token, put, [START, head, END])
    edges = [Edge(head, END, "end", position) for position in range(5)]
    direct = patch_edge_sets(model, inputs, first_token, put, [edges])
    assert torch.allclose(path.effect, direct.effect[0], atol=1e-12)


def test_paths_add_up_to_the_whole_effect_of_a_head_without_norm_where_queries_and_keys_are_frozen():
    """With constant attention the model is linear: its paths through values and the residual are everything."""
    model = random_model(n_heads=1)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()
            block.attn.b_Q.zero_()
    inputs, source = tokens(3), tokens(3, seed=1)
    put = Intervention("patch", source)
    first, second = Node("head", 0, 0), Node("head", 1, 0)
    paths = [[START, END], [START, first, END], [START, second, END], [START, first, second, END]]
    effects = [patch_path(model, inputs, first_token, put, path).effect for path in paths]
    assert torch.allclose(sum(effects), first_token(model(inputs)) - first_token(model(source)), atol=1e-12)
    only_values = [[Edge(START, first, "v", p) for p in range(5)], [Edge(first, END, "end", p) for p in range(5)]]
    assert torch.allclose(patch_path(model, inputs, first_token, put, only_values).effect, effects[1], atol=1e-12)


def test_endpoint_heads_are_reached_through_values_and_selector_keys():
    inputs, target, other, _ = arcs()
    rows = torch.arange(len(inputs))

    def difference(logits):
        return logits[rows, 0, target] - logits[rows, 0, other]

    found = patch_edges(two_heads(), inputs, difference, Intervention("positional_mean", inputs), read=(3,))
    true = {"start -> 0.0.v@0", "start -> 0.1.v@1", "start -> 0.0.k@2", "start -> 0.1.k@2"}
    true |= {"0.0 -> end@3", "0.1 -> end@3"}
    weights = {str(edge): value for edge, value in found.weights().items()}
    assert {name for name, value in weights.items() if value > 0.1} == true
    assert max(value for name, value in weights.items() if name not in true) < 1e-3


@pytest.mark.parametrize(
    ("edge", "error", "words"),
    [
        (Edge(Node("head", 2, 0), END, "end", 0), KeyError, "no node '2.0' writes here"),
        (Edge(START, Node("mlp", 0), "mlp", 0), KeyError, "there is no edge 'start -> mlp0@0'"),
        (Edge(Node("head", 1, 0), Node("head", 0, 0), "q", 0), KeyError, "1.0 is read by end"),
        (Edge(START, END, "end", 5), IndexError, "the model has 0 to 4"),
    ],
)
def test_an_edge_that_does_not_exist_is_an_error(edge, error, words):
    with pytest.raises(error, match=words):
        patch_edges(random_model(), tokens(2), first_token, Intervention("zero"), edges=[edge])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ([START], "a hop for every step"),
        ([START, Node("head", 0, 0)], "ends in END"),
        ([Node("head", 1, 0), Node("head", 0, 0), END], "a path goes forward"),
        ([[Edge(START, Node("head", 0, 0), "v", 0)], [Edge(Node("head", 0, 1), END, "end", 0)]], "the path breaks"),
        ([[Edge(START, END, "end", 0), Edge(START, Node("head", 0, 0), "v", 0)]], "ends in END|same two nodes"),
        ([START, [Edge(START, END, "end", 0)]], "not of both"),
    ],
)
def test_a_path_that_does_not_join_is_an_error(path, words):
    with pytest.raises(ValueError, match=words):
        patch_path(random_model(), tokens(2), first_token, Intervention("zero"), path)


def test_a_model_with_other_wiring_is_refused():
    model = random_model(normalization_type="RMS", use_normalization_before_and_after=True)
    with pytest.raises(RequestError, match=r"a norm or a factor stands behind the heads.*does not model"):
        patch_edges(model, tokens(2), first_token, Intervention("zero"))


@pytest.mark.parametrize("norm", [None, "LN"])
def test_a_parallel_mlp_reads_what_the_heads_read(norm):
    model = random_model(parallel_attn_mlp=True, attn_only=False, normalization_type=norm)
    inputs, source = tokens(2), tokens(2, seed=1)
    found = patch_edges(model, inputs, first_token, Intervention("patch", source))
    assert not [edge for edge in found.edges if edge.port == "mlp" and edge.source.layer == edge.destination.layer]
    assert "in parallel" in found.notes[0]
    for row in range(0, len(found.edges), 13):
        expected = split_inputs_effect(model, inputs, source, found.edges[row], first_token)
        assert torch.allclose(found.effect[row], expected, atol=1e-11), str(found.edges[row])
    together = patch_edge_sets(model, inputs, first_token, Intervention("patch", source), [found.edges])
    expected = first_token(model(inputs)) - first_token(model(source))
    assert torch.allclose(together.effect[0], expected, atol=1e-11)


def test_frame_has_one_row_per_set_and_example():
    model, inputs = random_model(n_layers=1), tokens(2)
    found = patch_edges(model, inputs, first_token, Intervention("zero"), read=(0, 4))
    frame = found.to_frame()
    assert len(frame) == len(found.edges) * 2
    assert frame.query(
        "port == 'v' and position == 2 and example == 1 and destination == '0.1'"
    ).effect.item() == float(found.effect[found.edges.index(Edge(START, Node("head", 0, 1), "v", 2)), 1])
    sets = patch_edge_sets(model, inputs, first_token, Intervention("zero"), [found.edges[:2]])
    assert sets.to_frame().source.isna().all()
    with pytest.raises(ValueError, match="sets of edges"):
        _ = sets.edges


def test_nothing_of_the_model_is_touched_also_when_the_metric_raises():
    model, inputs = random_model(normalization_type="LN").train(), tokens(2)
    before, state = model(inputs), torch.get_rng_state()

    def broken(logits):
        raise RuntimeError("broken metric")

    with pytest.raises(RuntimeError, match="broken metric"):
        patch_edges(model, inputs, broken, Intervention("resample", inputs))
    assert model.training
    assert torch.equal(model(inputs), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
