"""`import headlab`: every name it lists is there, and nothing heavy is imported before it is used."""

import subprocess
import sys
from importlib import import_module

import pytest

import headlab

HEAVY = ("torch", "numpy", "pandas", "scipy", "transformer_lens", "networkx", "sklearn", "tyro", "rich")


@pytest.mark.parametrize("name", ["headlab", "headlab.interp", "headlab.models", "headlab.analyses"])
def test_every_public_name_is_there_and_shows_in_dir(name):
    package = import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    for each in package.__all__:
        assert getattr(package, each) is not None, each
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        _ = package.nothing


def test_the_names_are_those_of_the_modules():
    from headlab.interp.patching import patch_sweep
    from headlab.models.checkpoints import load

    assert headlab.patch_sweep is patch_sweep
    assert headlab.load is load
    assert set(headlab.tasks()) >= {"esp", "tree", "xor", "retrieval"}
    assert headlab.__version__


def test_the_import_takes_nothing_heavy_and_submodules_follow_by_attribute():
    code = (
        "import sys, headlab; dir(headlab); headlab.__version__\n"
        f"heavy = set({HEAVY}) & set(sys.modules); assert not heavy, heavy\n"
        "assert headlab.interp.__name__ == 'headlab.interp'; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
