"""Sweep files: what they ask for, and what is refused in one sentence."""

from dataclasses import replace

import pytest

from headlab.analyses.sweep.configuration import Configuration, known_options
from headlab.analyses.sweep.grid import Sweep, find, read, shipped
from headlab.analyses.sweep.plot import MOST_LINES
from headlab.analyses.tasks import TASKS


def written(tmp_path, text):
    path = tmp_path / "a.toml"
    path.write_text(text)
    return path


GOOD = """
seeds = 5
together = 2
[[grid]]
task = "esp"
graph = ["complete:4", "cycle:5"]
heads = [1, 2]
[[grid]]
task = "xor"
targets = [[0, 1], [0, 1, 2]]
seeds = 2
"""


def test_a_grid_is_every_combination_in_blocks_of_seeds(tmp_path):
    sweep = read(written(tmp_path, GOOD))
    assert sweep.name == "a"
    assert sweep.runs == 4 * 5 + 2 * 2
    units = sweep.units()
    assert [unit.seeds for unit in units[:3]] == [(0, 1), (2, 3), (4,)]
    assert [unit.configuration.options["targets"] for unit in units[-2:]] == [[0, 1], [0, 1, 2]]
    assert sweep.varied == ("task", "graph", "heads", "targets")
    assert units[-1].configuration.train_options().targets == (0, 1, 2)


def test_a_run_that_is_asked_for_twice_is_one_run(tmp_path):
    twice = read(written(tmp_path, '[[grid]]\ntask="esp"\nheads=[1, 1, 2]\n[[grid]]\ntask="esp"\nheads=2\nseeds=12\n'))
    keys = [key for unit in twice.units() for key in unit.run_keys]
    assert len(keys) == len(set(keys)) == 8 + 12


def test_more_seeds_leave_the_first_blocks_as_they_are(tmp_path):
    few, many = (read(written(tmp_path, f'seeds={n}\ntogether=4\n[[grid]]\ntask="xor"\n')).units() for n in (8, 16))
    assert [unit.key for unit in many[:2]] == [unit.key for unit in few]


def test_the_key_holds_everything_that_decides_a_run(tmp_path, monkeypatch):
    graph = tmp_path / "g.edgelist"
    graph.write_text("a b\n")
    one = Configuration.of("esp", {"graph": str(graph), "heads": 2})
    keys = {one.key(0), one.key(1), Configuration.of("esp", {"graph": str(graph), "heads": 1}).key(0)}
    assert one.key(0) == Configuration.of("esp", {"heads": 2, "graph": str(graph)}).key(0)
    assert one.key(0) == Configuration.of("esp", {"graph": str(graph)}).key(0)  # two heads are the default
    graph.write_text("b a\n")
    keys.add(Configuration.of("esp", {"graph": str(graph), "heads": 2}).key(0))
    monkeypatch.setitem(TASKS, "esp", replace(TASKS["esp"], result_version=2))
    keys.add(Configuration.of("esp", {"graph": str(graph), "heads": 2}).key(0))
    assert len(keys) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [", "is no TOML file"),
        ('sedes = 3\n[[grid]]\ntask="esp"', r"unknown key 'sedes' in .* \(did you mean 'seeds'\?\)"),
        ('[[grid]]\ntask="esp"\nhead=[1]', r"unknown key 'head' in grid 1 .* \(did you mean 'heads'\?\)"),
        ('[[grid]]\ntask="esp"\n[plot]\nxx=1', r"unknown key 'xx' in \[plot\]"),
        ('[[grid]]\ntask="espp"', r"unknown task 'espp' \(did you mean 'esp'\?\)"),
        ("[[grid]]\nheads=[1]", "grid 1 .* has no task"),
        ("seeds = 3", "the grid of .* is empty"),
        ('[[grid]]\ntask="esp"\nheads=[]', "grid 1 .* is empty: heads has no value"),
        ('[[grid]]\ntask="esp"\nseeds=0', "seeds = 0 in grid 1 .*: it must be a whole number from 1"),
        ('[[grid]]\ntask="esp"\nheads=["two"]', "heads = 'two' in grid 1 .*: it must be a whole number"),
        ('[[grid]]\ntask="esp"\nheads=true', "heads = True in grid 1"),
        ('[[grid]]\ntask="esp"\nmethod="magic"', "must be one of auto, cross-entropy"),
        ('[[grid]]\ntask="tree"\ndepth=["deep"]', r"depth = \['deep'\] in grid 1 .*: it must be a list"),
        ('name="a/b"\n[[grid]]\ntask="esp"', "must be a text that can name a folder"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, text, said):
    with pytest.raises(ValueError, match=said) as refused:
        read(written(tmp_path, text))
    assert "\n" not in str(refused.value)


def test_no_small_version_and_no_file_are_said(tmp_path):
    with pytest.raises(ValueError, match=r"has no small version"):
        read(written(tmp_path, '[[grid]]\ntask="esp"'), small=True)
    with pytest.raises(FileNotFoundError, match=r"'esp-acuracy' \(did you mean 'esp-accuracy'\?\); ready are"):
        find("esp-acuracy")


def test_the_ready_sweeps_cover_the_four_tasks_and_state_their_cost():
    ready = shipped()
    whole = {name: read(find(name)) for name in ready}
    assert {grid.task for sweep in whole.values() for grid in sweep.grids} == {"esp", "retrieval", "tree", "xor"}
    for name, path in ready.items():
        assert "2 cores" in path.read_text().splitlines()[1]
        small = read(path, small=True)
        assert small.name == f"{name}-small"
        assert small.runs < whole[name].runs / 5


def test_counting_a_huge_grid_does_not_spread_it_out(tmp_path):
    text = '[[grid]]\ntask="xor"\nseeds=2000000\n'
    assert read(written(tmp_path, text)).runs == 2_000_000


def test_every_option_of_training_can_be_swept():
    assert {"graph", "heads", "method"} <= set(known_options("esp"))
    assert not {"out", "seeds", "resume", "common"} & set(known_options("tree"))
    assert replace(Sweep("x", ())).varied == ()


def test_a_ready_sweep_fits_into_one_chart():
    for path in shipped().values():
        sweep = read(path)
        x = sweep.plot.get("x", "heads")
        lines = {
            tuple(str(unit.configuration.options.get(name)) for name in sweep.varied if name not in (x, "task"))
            for unit in sweep.units()
        }
        assert len(lines) <= MOST_LINES
