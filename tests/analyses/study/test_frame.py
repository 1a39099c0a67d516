"""The frame of a study: a record by part, measured once, and words that stay words."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

from headlab.analyses.options.common import Common
from headlab.analyses.study.frame import Part, Study, command
from headlab.analyses.study.record import Array, Record, Table, key_of, read_part, read_record, to_json, write_part
from headlab.analyses.study.words import Words, fill, fill_plain, in_words, plural, scientific
from headlab.interp.render import Span

CALLS: list[str] = []


def count(config, work):
    """A measuring function that says when it is called."""
    CALLS.append(f"{config['name']} {config['size']}")
    return {"rows": Table([{"name": config["name"], "size": config["size"]}], {"size": "heads"})}


@dataclass(frozen=True)
class Options:
    """What the toy study is asked."""

    out: Path
    sizes: tuple[int, ...] = (1, 2)
    quick: bool = False
    record: Path | None = None
    parts: tuple[str, ...] = ()
    common: Common = field(default_factory=Common)


def toy(versions=(1, 1)):
    def plan(options):
        return [
            Part(name, f"{__name__}:count", {"name": name, "size": size, "seed": 0}, version)
            for name, size, version in zip("ab", options.sizes, versions, strict=True)
        ]

    return Study("toy", plan, lambda record: {}, lambda record, words: {})


@pytest.fixture
def study(monkeypatch):
    """Studies whose report is their record's rows; what was measured is in CALLS."""
    CALLS.clear()
    monkeypatch.setattr(Study, "publish", lambda self, record, options: {"rows": record.rows("rows")})
    return toy


def test_a_part_is_measured_once_and_again_when_its_question_changes(study, tmp_path):
    first = study().run(Options(tmp_path))
    assert first["rows"] == [{"name": "a", "size": 1}, {"name": "b", "size": 2}]
    assert study().run(Options(tmp_path)) == first
    assert CALLS == ["a 1", "b 2"]
    study().run(Options(tmp_path, sizes=(1, 3)))
    assert CALLS == ["a 1", "b 2", "b 3"]
    study((2, 1)).run(Options(tmp_path, sizes=(1, 3)))
    assert CALLS == ["a 1", "b 2", "b 3", "a 1"]


def test_some_parts_alone_leave_the_others_to_what_the_folder_holds(study, tmp_path):
    assert study().run(Options(tmp_path, parts=("b",)))["rows"] == [{"name": "b", "size": 2}]
    assert study().run(Options(tmp_path, parts=("a",)))["rows"] == [{"name": "a", "size": 1}, {"name": "b", "size": 2}]
    assert CALLS == ["b 2", "a 1"]
    # a part of another question stands in the folder and is passed over
    assert study().run(Options(tmp_path, sizes=(7, 2), parts=("b",)))["rows"] == [{"name": "b", "size": 2}]
    with pytest.raises(KeyError, match="there is no part c"):
        study().run(Options(tmp_path, parts=("c",)))


def test_a_record_is_drawn_without_measuring(study, tmp_path):
    first = study().run(Options(tmp_path / "one"))
    for given in (tmp_path / "one", tmp_path / "one" / "record"):
        assert study().run(Options(tmp_path / "two", sizes=(8, 9), record=given)) == first
    assert len(CALLS) == 2
    content = read_part(tmp_path / "one" / "record" / "a.json")
    assert content["key"] == key_of("toy", "a", {"name": "a", "size": 1, "seed": 0}, 1)
    assert content["tables"]["rows"]["units"] == {"size": "heads"}
    assert content["command"] == "headlab study toy"
    assert {"date", "versions", "cpu_seconds", "device"} <= set(content)


def test_a_damaged_part_is_named(tmp_path):
    (tmp_path / "a.json").write_text('{"part": "a"}')
    with pytest.raises(ValueError, match="is not a part of a record"):
        read_record(tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no record"):
        read_record(tmp_path / "nowhere")


def test_the_command_repeats_every_option_that_is_not_its_default(tmp_path):
    assert command("toy", Options(tmp_path)) == "headlab study toy"
    options = Options(tmp_path, quick=True, parts=("a",), common=Common(seed=3))
    assert command("toy", options) == "headlab study toy --quick --seed 3"


def test_tables_and_arrays_survive_the_file(tmp_path):
    rows = [{"name": 'a "tables"\n', "value": np.float64(0.1)}, {"name": "ü", "value": float("nan")}]
    measured = {"rows": Table(rows, {"value": "share"}), "grid": Array(np.eye(2) / 3, ("row", "column"), "share")}
    about = {"part": "p", "key": "k", "order": 0, "config": {"tables": [1, 2]}}
    write_part(tmp_path / "p.json", to_json(measured, **about))
    record = read_record(tmp_path)
    assert record.rows("rows") == [{"name": 'a "tables"\n', "value": 0.1}, {"name": "ü", "value": None}]
    assert record.rows("rows", name="ü")[0]["value"] is None
    assert record.one("rows", value=0.1)["name"].startswith("a")
    assert record.array("grid") == pytest.approx(np.eye(2) / 3, abs=1e-6)
    assert record.rows("nothing") == []
    with pytest.raises(KeyError, match="2 rows"):
        record.one("rows")
    with pytest.raises(KeyError, match="has an array 'nothing'"):
        record.array("nothing")
    assert json.loads((tmp_path / "p.json").read_text())["config"] == {"tables": [1, 2]}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (Table([{"a": 1}, {"b": 2}]), "the same columns"),
        (Table([{"a": 1}], {"b": "share"}), "no column b"),
        (Array(np.zeros(3), ("x", "y")), "1 axes"),
    ],
)
def test_a_table_that_is_not_tidy_is_refused(table, sentence):
    with pytest.raises(ValueError, match=sentence):
        table.to_json()


def test_only_functions_whose_parts_were_measured_are_called():
    record = Record({"a": {"tables": {}, "arrays": {}}})
    functions = {"one": (lambda record, word: word, "a"), "two": (lambda record, word: word, "a", "b")}
    assert record.given(functions, "x") == {"one": "x"}


def test_marks_come_from_the_template_alone_and_values_stay_text():
    assert fill("{{ name }} & more", {"name": "<b>x</b>"}) == "<b>x</b> & more"
    assert fill("<A>{{ name }}</A> reads", {"name": "a<b"}) == [Span("a<b", bold=True, colour="head-a"), " reads"]
    assert (
        fill_plain("<b>{{ n | number }}</b>  of {{ s | percent(0) }}", {"n": 1234, "s": 0.5})
        == "1\u202f234 of 50\u202f%"
    )
    with pytest.raises(UndefinedError):
        fill("{{ nothing }}", {})


def test_numbers_in_words():
    assert [scientific(x) for x in (0.01, 30.0, 3.2e5, 1e-9)] == ["0.01", "30", "3.2 × 10⁵", "10⁻⁹"]
    assert [plural(n, "error") for n in (0, 1, 2)] == ["no error", "1 error", "2 errors"]
    assert plural(2, "vertex", "vertices") == "2 vertices"
    assert (in_words(0), in_words(12), in_words(13)) == ("no", "twelve", "13")


@pytest.mark.parametrize("study", ["xor", "esp", "claims"])
def test_every_template_can_be_read(study):
    texts = Words(study, {}).texts
    assert set(texts) & {"headline", "heading"}
