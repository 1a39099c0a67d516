import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from headlab import models
from headlab.models import bundle
from headlab.models.checkpoints import (
    Checkpoint,
    TrainingState,
    history_steps,
    load,
    load_history,
    load_runs,
    load_training,
    load_weights,
    resolve,
    save,
    save_runs,
    save_training,
    versions,
    weights_of,
)
from headlab.models.hooked import Architecture, build, initialise

CONFIG = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_head": 4, "n_ctx": 4, "d_vocab": 7, "attn_only": True}
TIED = Architecture({**CONFIG, "normalization_type": "LNPre"}, {"unembed": {"part": "TiedUnembed"}}, ("unembed.b_U",))
FREE = Architecture({**CONFIG, "normalization_type": "LN", "attn_only": False, "d_mlp": 5, "act_fn": "relu"})
INPUTS = torch.tensor([[0, 1, 4, 6], [3, 2, 5, 6]])


def model_of(architecture, seed=0, dtype=torch.float32):
    model = build(architecture, dtype=dtype)
    initialise(model, scale=0.5, seed=seed)
    return model


def checkpoint_of(architecture=TIED, seed=0, dtype=torch.float32, **more):
    model = model_of(architecture, seed, dtype)
    return Checkpoint(model, architecture, "esp", {"graph": "complete:4"}, seed=seed, **more)


@pytest.mark.parametrize("architecture", [TIED, FREE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_saved_is_loaded(tmp_path, architecture, dtype):
    saved = checkpoint_of(
        architecture,
        dtype=dtype,
        recipe={"lr": 0.01, "betas": (0.9, 0.99)},
        seed=3,
        metrics={"errors": torch.tensor(2), "accuracy": np.float64(0.25), "solved": None},
        history=({"step": 0, "loss": 1.25}, {"step": 7, "loss": 0.1}),
    )
    loaded = load(save(tmp_path / "run", saved))
    assert loaded.directory == tmp_path / "run"
    assert loaded.architecture.to_json() == architecture.to_json()
    assert (loaded.task, loaded.task_options, loaded.variant, loaded.seed) == ("esp", {"graph": "complete:4"}, None, 3)
    assert loaded.recipe == {"lr": 0.01, "betas": [0.9, 0.99]}
    assert loaded.metrics == {"errors": 2, "accuracy": 0.25, "solved": None}
    assert list(loaded.history) == [{"step": 0, "loss": 1.25}, {"step": 7, "loss": 0.1}]
    assert loaded.versions == versions()
    assert not loaded.model.training
    assert torch.equal(loaded.model(INPUTS), saved.model(INPUTS))
    for name, parameter in saved.model.named_parameters():
        own = dict(loaded.model.named_parameters())[name]
        assert own.dtype == dtype
        assert torch.equal(own, parameter)
        assert own.requires_grad == parameter.requires_grad


def test_a_loaded_model_is_tied_and_can_change_its_dtype(tmp_path):
    directory = save(tmp_path / "run", checkpoint_of())
    model = load(directory, dtype="float64").model
    assert model.cfg.dtype == torch.float64
    with torch.no_grad():
        model.embed.W_E[0, 0] = 5.0
    assert model.W_U[0, 0].item() == 5.0


def test_no_generator_moves(tmp_path):
    def generators():  # not Python's own: the shape checks of the tests draw from it
        return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()  # noqa: NPY002

    before = generators()
    load(save(tmp_path / "run", checkpoint_of()))
    assert generators() == before


def test_history_of_weights(tmp_path):
    early, late = model_of(TIED, seed=1), model_of(TIED, seed=2)
    directory = save(tmp_path / "run", checkpoint_of(seed=2), weights={30: weights_of(late), 0: weights_of(early)})
    assert history_steps(directory) == (0, 30)
    found = dict(load_history(directory))
    assert torch.equal(found[0](INPUTS), early(INPUTS))
    assert torch.equal(found[30](INPUTS), late(INPUTS))
    assert [step for step, _ in load_history(directory, steps=[30])] == [30]
    with pytest.raises(KeyError, match="keeps no weights of step 4; it keeps 0, 30"):
        list(load_history(directory, steps=[4]))
    save(directory, checkpoint_of())
    assert history_steps(directory) == ()
    with pytest.raises(ValueError, match="keeps no weights of earlier steps"):
        list(load_history(directory))


def test_training_state_with_a_checkpoint_and_by_itself(tmp_path):
    generator = torch.Generator().manual_seed(4)
    state = TrainingState(17, {"learner/generator": generator.get_state(), "x": torch.ones(3)}, {"solved": [None, 3]})
    with_model = save(tmp_path / "run", checkpoint_of(), training=state)
    alone = save_training(tmp_path / "state", state)
    for directory in (with_model, alone):
        found = load_training(directory)
        assert (found.step, found.data) == (17, {"solved": [None, 3]})
        assert {name: value.tolist() for name, value in found.tensors.items()} == {
            name: value.tolist() for name, value in state.tensors.items()
        }
    with pytest.raises(ValueError, match="was saved without a training state: it cannot be resumed"):
        load_training(save(tmp_path / "bare", checkpoint_of()))
    with pytest.raises(ValueError, match="holds a training state, not a checkpoint"):
        load(alone)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        load_training(tmp_path / "none")


def test_a_folder_of_many_runs_means_its_best(tmp_path):
    for seed in range(3):
        save(tmp_path / f"seed-{seed}", checkpoint_of(seed=seed, metrics={"errors": 3 - seed}))
    runs = [{"dir": f"seed-{seed}", "errors": 3 - seed} for seed in range(3)]
    save_runs(tmp_path, runs, "seed-2", task="esp")
    assert load_runs(tmp_path)["runs"] == runs
    assert load_runs(tmp_path)["task"] == "esp"
    loaded = load(tmp_path)
    assert loaded.directory == tmp_path / "seed-2" == resolve(tmp_path)
    assert loaded.metrics == {"errors": 1}
    with pytest.raises(ValueError, match="the best run 'seed-9' is not one of the runs"):
        save_runs(tmp_path, runs, "seed-9")
    with pytest.raises(ValueError, match="holds other files"):
        save(tmp_path, checkpoint_of())


def rewritten(directory, **changes):
    path = directory / bundle.MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(bundle.signed({**manifest, **changes})))
    return directory


def test_checkpoints_that_cannot_be_loaded(tmp_path):
    directory = save(tmp_path / "run", checkpoint_of())
    config = {**TIED.to_json(), "config": {**TIED.config, "d_model": 12}}
    with pytest.raises(ValueError, match=r"not fit the architecture: 'embed\.W_E' has shape \(7, 8\), not \(7, 12\)"):
        load(rewritten(directory, architecture=config))
    untied = {**TIED.to_json(), "parts": {}}
    with pytest.raises(ValueError, match=r"do not fit the architecture: 'unembed\.W_U' is missing"):
        load(rewritten(directory, architecture=untied))
    unknown = {**TIED.to_json(), "parts": {"unembed": {"part": "Nothing"}}}
    with pytest.raises(ValueError, match="names an architecture that cannot be built: unknown part 'Nothing'"):
        load(rewritten(directory, architecture=unknown))
    with pytest.raises(ValueError, match="cannot be built"):
        load(rewritten(directory, architecture={"config": {"no_such_field": 1}}))
    with pytest.raises(ValueError, match="format 7, newer than the format 1"):
        load(rewritten(directory, format=7))
    manifest = json.loads((directory / bundle.MANIFEST).read_text()) | {"format": 1}
    del manifest["task"]
    (directory / bundle.MANIFEST).write_text(json.dumps(bundle.signed(manifest)))
    with pytest.raises(ValueError, match=r"is damaged: its checkpoint\.json has no 'task'"):
        load(directory)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"variant": "two-head"},
        {"metrics": {"accuracy": 1.0}},
        {"task_options": {"graph": "complete:5"}},
        {"architecture": {**TIED.to_json(), "config": {**TIED.config, "use_attn_scale": False}}},
    ],
)
def test_an_edited_manifest_is_refused(tmp_path, change):
    directory = save(tmp_path / "run", checkpoint_of(seed=3, metrics={"accuracy": 0.5}))
    path = directory / bundle.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    for read in (load, load_training, history_steps):
        with pytest.raises(ValueError, match="was changed after it was written"):
            read(directory)


def test_a_checkpoint_of_an_earlier_version_loads_with_a_note(tmp_path):
    directory = save(tmp_path / "run", checkpoint_of(seed=3))
    path = directory / bundle.MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    path.write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="has no checksum: it was written by an earlier headlab"):
        assert load(directory).seed == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": "3"}, "'seed' in its checkpoint.json is a str"),
        ({"seed": True}, "'seed' in its checkpoint.json is a bool"),
        ({"history": {}}, "'history' in its checkpoint.json is a dict"),
        ({"task_options": None}, "'task_options' in its checkpoint.json is a NoneType"),
        ({"dtype": "int8"}, "has the dtype 'int8': there are float32"),
        ({"files": []}, "`files` in its checkpoint.json does not name files"),
        ({"files": {"weights": "w.safetensors"}}, "`files` in its checkpoint.json does not name files"),
        ({"files": {"weights": {"file": 1, "sha256": "0"}}}, "`files` in its checkpoint.json does not name files"),
    ],
)
def test_fields_of_another_type_are_named(tmp_path, change, message):
    directory = rewritten(save(tmp_path / "run", checkpoint_of()), **change)
    with pytest.raises(ValueError, match=message):
        load(directory)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, value):
    checkpoint = checkpoint_of()
    with torch.no_grad():
        checkpoint.model.blocks[0].attn.W_Q[0, 1, 2] = value
    directory = save(tmp_path / "run", checkpoint, weights={0: weights_of(checkpoint.model)})
    for read in (load, lambda place: list(load_history(place))):
        with pytest.raises(ValueError, match=r"are not finite in 'blocks\.0\.attn\.W_Q'"):
            read(directory)


def test_tensors_of_another_dtype_are_refused(tmp_path):
    directory = save(tmp_path / "run", checkpoint_of(dtype=torch.float64))
    for dtype in (None, torch.float16):
        with pytest.raises(ValueError, match=r"are float32, but '.*' is torch\.float64"):
            load(rewritten(directory, dtype="float32"), dtype=dtype)


def test_runs_that_name_nothing_are_refused(tmp_path):
    path = tmp_path / "runs.json"
    for data, message in (
        ({"runs": [], "best": "seed-0"}, "names no best run among 0 runs"),
        ({"runs": [{"dir": "seed-0"}]}, "names no best run among 1 runs"),
        ({"runs": {"dir": "seed-0"}, "best": "seed-0"}, "is not a list of runs"),
    ):
        bundle.write_json(path, {"format": 1, "kind": "runs", **data})
        with pytest.raises(ValueError, match=message):
            load(tmp_path)


def test_weights_that_do_not_fit_change_nothing():
    model = model_of(TIED)
    before = model(INPUTS)
    other = weights_of(model_of(TIED, seed=1))
    with pytest.raises(ValueError, match=r"it has no 'blocks\.0\.mlp"):
        load_weights(model, {**other, "blocks.0.mlp.W_in": torch.zeros(1)})
    with pytest.raises(ValueError, match="has shape"):
        load_weights(model, {**other, "embed.W_E": torch.zeros(1)})
    assert torch.equal(model(INPUTS), before)


def test_an_interrupted_save_keeps_the_older_checkpoint(tmp_path, monkeypatch):
    directory = save(tmp_path / "run", checkpoint_of(seed=0))
    before = load(directory).model(INPUTS)

    def full(path, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "_write_file", full)
        with pytest.raises(ValueError, match=r"cannot write to .*: No space left on device"):
            save(directory, checkpoint_of(seed=1))
    assert torch.equal(load(directory).model(INPUTS), before)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_nothing_is_ever_unpickled(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("something was unpickled")

    directory = save(tmp_path / "run", checkpoint_of(), training=TrainingState(1, {"x": torch.ones(2)}))
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)
    load(directory)
    load_training(directory)
    sources = Path(models.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "torch.load" in path.read_text() or "import pickle" in path.read_text()]
