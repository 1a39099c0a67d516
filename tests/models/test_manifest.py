"""A checkpoint's manifest is read without torch, and says what the loaded model says."""

import json
import subprocess
import sys

import pytest

from headlab.models import manifest
from headlab.models.checkpoints import Checkpoint, load, save
from headlab.models.hooked import Architecture, build, initialise

PLAN = Architecture(
    {"n_layers": 2, "n_heads": 3, "d_model": 6, "d_head": 2, "n_ctx": 4, "d_vocab": 5, "d_mlp": 7, "act_fn": "relu"}
)


@pytest.fixture
def folder(tmp_path):
    model = build(PLAN)
    initialise(model, scale=0.1, seed=0)
    return save(tmp_path / "model", Checkpoint(model, PLAN, task="esp"))


def test_the_numbers_of_the_weights_are_counted_from_their_shapes(folder):
    read = manifest.read_checkpoint(folder)
    content = manifest.read_part(folder, read, "weights")
    assert manifest.count_numbers(content) == sum(weight.numel() for weight in load(folder).model.parameters())


def test_a_missing_entry_and_a_damaged_file_are_named(folder):
    path = folder / manifest.MANIFEST
    text = path.read_text()
    (file,) = folder.glob("weights-*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match="does not match the checksum"):
        manifest.read_part(folder, manifest.read_checkpoint(folder), "weights")
    file.unlink()
    with pytest.raises(FileNotFoundError, match="is missing"):
        manifest.read_part(folder, manifest.read_checkpoint(folder), "weights")
    content = json.loads(text)
    del content["recipe"], content[manifest.CHECKSUM]
    path.write_text(json.dumps(manifest.signed(content)))
    with pytest.raises(ValueError, match=r"is damaged: its checkpoint\.json has no 'recipe'"):
        manifest.read_checkpoint(folder)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["info", "FOLDER"], 0),
        (["claims", "--json"], 0),
        (["patch", "nowhere"], 2),
        (["score", "FOLDER", "--device", "abacus"], 2),
        (["heads-needed", "nowhere.csv"], 2),
        (["sweep", "nothing"], 2),
        (["pach", "FOLDER"], 2),
        (["patch", "FOLDER", "--sight", "z"], 2),
    ],
)
def test_what_needs_no_tensors_imports_no_torch(folder, arguments, status):
    words = [str(folder) if word == "FOLDER" else word for word in arguments]
    code = (
        "import sys\nfrom headlab.analyses.cli import main\n"
        f"assert main({words!r}) == {status}\n"
        "heavy = {'torch', 'transformer_lens', 'pandas', 'scipy', 'sklearn', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
