"""What a sweep withstands, by hand: python tests/analyses/sweep/endurance.py [--kills 20] [--workers 2]

A sweep of 200 short runs is killed with SIGKILL at random moments and started again until it is done; beside it an
unbroken one, and two at once. Every run must be there once, with equal figures. Tests do the same with fewer kills.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

FILE = """
seeds = 20
together = 2
[[grid]]
task = "xor"
method = "plain"
steps = {steps}
bits = [64, 72, 80, 88, 96]
width = [12, 16]
"""
RUNS = 200


def start(file: Path, out: Path, *arguments: str) -> subprocess.Popen[str]:
    """A sweep as a process of its own."""
    command = [
        sys.executable,
        "-c",
        "from headlab.analyses.cli import run; run()",
        "sweep",
        str(file),
        "--out",
        str(out),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, "--json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def finished(process: subprocess.Popen[str]) -> dict:
    """The answer of a sweep that must end well."""
    out, err = process.communicate()
    if process.returncode:
        raise AssertionError(f"status {process.returncode}: {err}")
    return json.loads(out)


def kill_during(process: subprocess.Popen[str], out: Path, delay: float, *, at_work: bool) -> bool:
    """SIGKILL after `delay` seconds, counted from its first new result where `at_work`. False where it ended before."""
    before = done(out)
    while at_work and process.poll() is None and done(out) == before:
        time.sleep(0.01)
    try:
        process.wait(delay)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    return False


def done(out: Path) -> int:
    """How many lines of results there are."""
    results = out / "results.jsonl"
    return results.read_bytes().count(b"\n") if results.is_file() else 0


def figures(out: Path) -> dict[str, dict]:
    """key -> what was measured, after checking that no key and no half line is there twice."""
    content = (out / "results.jsonl").read_text()
    assert content.endswith("\n")
    rows = [json.loads(line) for line in content.splitlines()]
    twice = [key for key, count in Counter(row["key"] for row in rows).items() if count > 1]
    assert not twice, f"{len(twice)} runs are there twice"
    assert not [row for row in rows if row["error"]]
    return {row["key"]: row["measured"] for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    folder = Path(tempfile.mkdtemp(prefix="headlab-endurance-"))
    file = folder / "endurance.toml"
    file.write_text(FILE.format(steps=asked.steps))
    began = time.time()
    unbroken = finished(start(file, folder / "unbroken", "--workers", asked.workers))
    print(f"unbroken: {time.time() - began:.1f} s, cost {unbroken['cost']}", flush=True)
    expected = figures(folder / "unbroken")
    assert len(expected) == RUNS

    broken, kills, lines = folder / "broken", 0, [0]
    while kills < asked.kills:
        process = start(file, broken, "--workers", asked.workers)
        if not kill_during(process, broken, rng.uniform(0, 0.6 if kills % 4 else 6), at_work=kills % 4 != 0):
            break
        kills += 1
        lines.append(done(broken))
    last = finished(start(file, broken, "--workers", asked.workers))
    print(f"killed {kills} times, with {lines[1:]} runs done; then {last['new']} new ones", flush=True)
    assert figures(broken) == expected
    print("after the kills: every run once, equal to the unbroken sweep", flush=True)

    both = folder / "both"
    pair = [start(file, both, "--workers", "1") for _ in range(2)]
    answers = [finished(each) for each in pair]
    print(f"two at once did {[answer['new'] for answer in answers]} runs", flush=True)
    assert sum(answer["new"] for answer in answers) == RUNS
    assert figures(both) == expected
    print("two at once: every run once, equal to the unbroken sweep", flush=True)


if __name__ == "__main__":
    main()
