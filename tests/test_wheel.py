"""The wheel installs one package into a fresh environment, with its data, beside a project with folders of its own."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 5 * 2**20

CHECK = """
import json
from importlib.metadata import files as installed
from importlib.resources import files
import headlab
from headlab import analyses, interp, models
from headlab.analyses.claims import load_claims
from headlab.analyses.sweep.grid import shipped
graphs = sorted(p.name for p in files("headlab.models.esp").joinpath("data").iterdir() if p.name.endswith(".edgelist"))
templates = [p.name for p in files("headlab.interp.render").joinpath("templates").iterdir()]
found = {"graphs": graphs, "templates": templates, "claims": len(load_claims()), "sweeps": sorted(shipped())}
found["notices"] = sorted(path.name for path in installed("headlab") if "licenses" in path.parts)
found["typed"] = files("headlab").joinpath("py.typed").is_file()
print(json.dumps({"where": [headlab.__file__, interp.__file__, models.__file__, analyses.__file__], **found}))
"""

# A project whose own folders have the names of our three packages, and which uses both.
PROJECT = """
import json
import analyses, interp, models
from models.own import layers
import headlab
import headlab.models.task
graph = headlab.tasks()["esp"].options.BuildOptions("out").graph
print(json.dumps([interp.NAME, models.NAME, analyses.NAME, layers, graph, headlab.RequestError.__name__]))
"""


def python_in(folder: Path, code: str, python: Path) -> str:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", code], cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """The wheel, the python of an environment with it and borrowed dependencies, and its site-packages."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = (folder / "dist").glob("headlab-*.whl")
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    site = Path(python_in(folder, "import sysconfig; print(sysconfig.get_path('purelib'))", python))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
    )
    brought = sorted(path.name for path in site.iterdir())
    assert brought == ["headlab", f"{wheel.name.split('-py3')[0]}.dist-info"]
    # The dependencies are borrowed; a path named in a .pth file does not bring this checkout's editable install along.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return wheel, python, site


def test_the_wheel_holds_what_an_install_needs(installed, tmp_path):
    wheel, python, site = installed
    assert wheel.stat().st_size < MOST_BYTES
    found = json.loads(python_in(tmp_path, CHECK, python))
    assert all(str(site / "headlab") in path for path in found["where"])
    assert found["graphs"] == [f"{name}.edgelist" for name in ("click", "httpx", "jinja2", "rich")]
    assert "report.html" in " ".join(found["templates"])
    assert found["claims"] == 69
    assert found["sweeps"] == ["esp-accuracy", "esp-thousand", "retrieval-error", "tree-depth", "xor-success"]
    assert found["notices"] == ["LICENSE", "NOTICE"]
    assert found["typed"]
    python_in(tmp_path, "import importlib.util; assert importlib.util.find_spec('headlab.numpy') is None", python)
    helped = subprocess.run([python.parent / "headlab", "--help"], capture_output=True, text=True, check=False)
    assert helped.returncode == 0
    assert "study" in helped.stdout


def test_a_project_with_folders_of_the_same_names_keeps_them(installed, tmp_path):
    _, python, _ = installed
    for name in ("interp", "models", "analyses"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f'NAME = "own {name}"\n')
    (tmp_path / "models" / "own.py").write_text("layers = 7\n")
    answer = json.loads(python_in(tmp_path, PROJECT, python))
    assert answer == ["own interp", "own models", "own analyses", 7, "rich", "RequestError"]


def test_every_bundled_graph_has_its_source_and_licence_in_the_notice():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for path in (ROOT / "models" / "esp" / "data").glob("*.edgelist"):
        package, version = path.read_text(encoding="utf-8").split(" imports which")[0].split()[-2:]
        (row,) = (line for line in notice.splitlines() if line.split()[:1] == [path.name])
        assert version in row
        assert package in row.lower()
        assert "BSD-3-Clause" in row or "MIT" in row
