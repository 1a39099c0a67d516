"""Heads are named by what they move, and the names stand the test of ablation."""

import pytest
import torch

from headlab.interp.assignment import assign
from tests.interp.gauge import duplicate_heads
from tests.interp.hand_built import arcs, two_heads
from tests.interp.played import endpoint_roles


def endpoint_metrics(n: int = 5):
    _, target, _, selector = arcs(n)

    def metric(side: int):
        wanted = target[selector == side]

        def accuracy(logits):
            read = logits[:, -1]
            best_other = read.scatter(1, wanted[:, None], -torch.inf).amax(1)
            return (read.gather(1, wanted[:, None])[:, 0] > best_other).double()

        return accuracy

    return {f"endpoint {side + 1}": metric(side) for side in range(2)}


def test_heads_are_named_and_the_names_are_causal():
    found = assign(two_heads(), endpoint_roles(), endpoint_metrics())
    assert found.role == ("endpoint 1", "endpoint 2")
    assert found.baseline == {"endpoint 1": 1.0, "endpoint 2": 1.0}
    assert found.loss["endpoint 1"]["endpoint 1"] >= 0.75
    assert found.loss["endpoint 1"]["endpoint 2"] == 0.0
    frame = found.to_frame()
    assert list(frame.columns) == ["layer", "head", "role", "usage", "causal"]
    assert (frame.causal >= 0.75).all()
    assert found.kind == "mean"
    assert assign(two_heads(), endpoint_roles()).to_frame().causal.isna().all()


def test_heads_without_a_role_stay_unnamed_and_are_ablated_together():
    found = assign(duplicate_heads(two_heads()), endpoint_roles(), endpoint_metrics(), kind="zero")
    assert found.role == (None, None)
    assert set(found.loss) == {None}
    assert found.group(None) == ((0, 0), (0, 1))
    assert found.loss[None]["endpoint 1"] == found.baseline["endpoint 1"] > 0
    assert found.to_frame().causal.isna().all()


def test_a_role_without_a_metric_is_named():
    with pytest.raises(KeyError, match="endpoint 2"):
        assign(two_heads(), endpoint_roles(), {"endpoint 1": lambda logits: logits[:, 0, 0]})
