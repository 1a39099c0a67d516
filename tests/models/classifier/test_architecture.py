"""The encoders for real data: their shapes, widths, and what they are blind to."""

import pytest
import torch

from headlab.models.classifier.architecture import class_reader, place_reader, start, widths


def test_each_head_has_its_width_or_a_share_of_the_total():
    assert widths(6, 16, None) == (96, 16)
    assert widths(6, 16, 96) == (96, 16)
    assert widths(1, 16, 96) == (96, 96)
    assert widths(10, 16, 96) == (96, 10)


def test_the_families_share_a_model_where_their_widths_agree():
    shape = {"size": 3, "length": 5, "classes": 4, "heads": 6}
    assert class_reader(**shape, width=16) == class_reader(**shape, total_width=96)
    assert class_reader(**shape, width=16) != class_reader(**shape, total_width=48)


@pytest.mark.parametrize(
    ("change", "said"),
    [({"heads": 0}, "heads = 0"), ({"length": 0}, "length = 0"), ({"heads": 5, "total_width": 4}, "too small for 5")],
)
def test_impossible_shapes_are_refused(change, said):
    with pytest.raises(ValueError, match=said):
        class_reader(**{"size": 3, "length": 5, "classes": 4, "heads": 2} | change)


def test_a_start_depends_on_its_seed_alone_and_moves_no_global_generator():
    design = class_reader(size=3, length=5, classes=4, heads=2, width=4, layers=2)
    before = torch.random.get_rng_state()
    first, again, other = (start(design, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    tokens = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(first(tokens), again(tokens))
        assert not torch.equal(first(tokens), other(tokens))


def test_a_class_is_read_where_the_cls_stands_and_positions_matter():
    model = start(class_reader(size=3, length=5, classes=4, heads=2, width=4, layers=2), seed=0)
    tokens = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits, turned = model(tokens), model(tokens.flip(1))
    assert logits.shape == (6, 6, 4)
    assert not torch.allclose(logits[:, -1], turned[:, -1], atol=1e-3)


def test_a_place_reader_is_blind_to_the_order_of_the_candidates_and_sees_the_query():
    model = start(place_reader(size=3, length=5, heads=2, width=4), seed=0)
    tokens = torch.randn(6, 6, 3, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = torch.cat([tokens[:, order], tokens[:, 5:]], 1)
    asked = torch.cat([tokens[:, :5], -tokens[:, 5:]], 1)
    with torch.no_grad():
        scores, permuted, other = (model(each)[:, :5, 0] for each in (tokens, moved, asked))
    torch.testing.assert_close(scores[:, order], permuted, atol=1e-6, rtol=0)
    assert not torch.allclose(scores, other, atol=1e-3)
