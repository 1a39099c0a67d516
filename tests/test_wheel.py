"""The wheel installs into a fresh environment and brings the three packages with their data."""

import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CHECK = """
import json
from importlib.resources import files
from headlab import analyses, interp, models
from headlab.analyses.claims import load_claims
from headlab.analyses.sweep.grid import shipped
graphs = sorted(p.name for p in files("headlab.models.esp").joinpath("data").iterdir() if p.name.endswith(".edgelist"))
templates = [p.name for p in files("headlab.interp.render").joinpath("templates").iterdir()]
found = {"graphs": graphs, "templates": templates, "claims": len(load_claims()), "sweeps": sorted(shipped())}
print(json.dumps({"where": analyses.__file__, **found}))
"""


def test_the_wheel_holds_what_an_install_needs(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("headlab-*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
    )
    # The dependencies are borrowed; a path named in a .pth file does not bring this checkout's editable install along.
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(site, "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    done = subprocess.run([python, "-c", CHECK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert str(tmp_path) in found["where"]
    assert found["graphs"] == [f"{name}.edgelist" for name in ("click", "httpx", "jinja2", "rich")]
    assert "report.html" in " ".join(found["templates"])
    assert found["claims"] == 69
    assert found["sweeps"] == ["esp-accuracy", "esp-thousand", "retrieval-error", "tree-depth", "xor-success"]
    helped = subprocess.run(
        [tmp_path / "env" / "bin" / "headlab", "--help"], capture_output=True, text=True, check=False
    )
    assert helped.returncode == 0
    assert "study" in helped.stdout
