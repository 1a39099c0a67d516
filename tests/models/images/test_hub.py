"""Pictures and passages through the `datasets` library, from small files of its own format; no network is asked."""

import datasets
import numpy as np
import pytest
from PIL import Image

from headlab.models.images.archives import shelf
from headlab.models.passages.marco import marco


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)


def write(folder, split, columns, features=None):
    folder.mkdir(exist_ok=True)
    made = datasets.Dataset.from_dict(columns, features=features)
    made.to_parquet(str(folder / f"{split}-00000-of-00001.parquet"))


def test_pictures_with_classes(tmp_path):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    for split in ("train", "test"):
        pictures = [Image.fromarray(np.full((4, 4, 3), 10 * k, np.uint8)) for k in range(4)]
        write(tmp_path / "pictures", split, {"img": pictures, "label": [0, 1, 0, 1]}, features)
    found = shelf(f"datasets:{tmp_path / 'pictures'}")
    assert found.classes == ("cat", "dog")
    drawn = found.draw(4, 2)
    assert drawn.targets.tolist() == [0, 1, 0, 1]
    assert (drawn.train[:, 0, 0, 0] * 255).round().tolist() == [0, 10, 20, 30]


def test_questions_with_selected_passages(tmp_path):
    passages = [
        {"passage_text": ["no", "yes"], "is_selected": [0, 1]},
        {"passage_text": ["maybe"], "is_selected": [0]},
    ]
    write(tmp_path / "marco", "train", {"query": ["a b", "c d"], "passages": passages})
    found = marco(f"datasets:{tmp_path / 'marco'}", 5)
    assert found.questions == ("a b",)
    assert found.passages[found.answers[0]] == "yes"
    assert [found.passages[k] for k in found.negatives[0]] == ["no"]


def test_what_is_no_such_data_set_is_one_sentence(tmp_path):
    write(tmp_path / "other", "train", {"text": ["a"]})
    for place, load in ((f"datasets:{tmp_path / 'other'}", shelf), ("datasets:no/such", shelf)):
        with pytest.raises(ValueError, match=r"has no split 'test'|cannot load 'no/such'"):
            load(place)
    with pytest.raises(ValueError, match="no columns query and passages: it has text"):
        marco(f"datasets:{tmp_path / 'other'}", 5)
