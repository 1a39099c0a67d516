"""Questions and passages: from docstrings, from MS MARCO's files, and hard negatives."""

import builtins

import numpy as np
import pytest

from headlab.models.passages.docstrings import documentation, read_folder, read_source, split_docstring
from headlab.models.passages.marco import marco
from headlab.models.passages.negatives import hard_negatives
from headlab.models.passages.pairs import Pairs, pair_up

BODY = (
    "This body has more than twenty words, so that it counts as a passage which can answer the question that is asked."
)


def test_equal_questions_and_equal_passages_stay_once():
    found = pair_up("made", [("A b", "x"), ("a  B", "y"), ("c", " X "), ("d", ""), ("e", "z\n w")])
    assert found.questions == ("A b", "e")
    assert found.passages == ("x", "z w")
    assert found.answers.tolist() == [0, 1]
    opening = [("a", "one two three"), ("b", "One two four"), ("c", "two two")]
    assert pair_up("made", opening, words=2).questions == ("a", "c")
    with pytest.raises(ValueError, match="made has no pair"):
        pair_up("made", [("", "x")])


def test_a_docstring_is_split_into_summary_and_body():
    assert split_docstring(f"Find the smallest element fast.\n\n{BODY}\n\nNotes\n-----\nMore.") == (
        "Find the smallest element fast.",
        f"{BODY}\n\nNotes\n \nMore.",
    )
    assert split_docstring("Find the smallest element fast.\n\nShort.") is None
    assert split_docstring(f"Short.\n\n{BODY}") is None


def test_docstrings_are_parsed_and_never_run(tmp_path):
    source = f'raise SystemExit\ndef f():\n    """Return what was asked for.\n\n    {BODY}\n    """\n'
    (tmp_path / "a.py").write_text(source)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "b.py").write_text(source)
    assert list(read_folder(tmp_path)) == [("Return what was asked for.", BODY)]
    assert list(read_source("x = 1")) == []


def test_documentation_of_a_package_that_is_not_installed_is_refused():
    with pytest.raises(ValueError, match="'no_such_package' is not installed"):
        documentation(["no_such_package"])


def pairs() -> Pairs:
    passages = ("red apple pie", "red apple", "blue sky today", "green grass", "red rose")
    return Pairs("made", ("red apple", "blue sky"), passages, np.array([0, 2]))


def test_hard_negatives_share_the_questions_words_and_are_never_the_answer():
    found = hard_negatives(pairs(), 3)
    assert found[0, :2].tolist() == [1, 4]
    assert 0 not in found[0]
    assert 2 not in found[1]
    with pytest.raises(ValueError, match="5 negatives a question cannot be had of 5 passages"):
        hard_negatives(pairs(), 5)


def test_hard_negatives_are_the_likest_of_all_wrong_passages():
    generator = np.random.default_rng(0)
    words = np.array([f"word{k}" for k in range(30)])
    texts = [" ".join(generator.choice(words, 8)) for _ in range(40)]
    made = Pairs("made", tuple(texts[:20]), tuple(texts[20:]), np.arange(20))
    found = hard_negatives(made, 5)
    shared = np.array([[len(set(q.split()) & set(p.split())) for p in made.passages] for q in made.questions])
    for row in range(20):
        others = np.setdiff1d(np.arange(20), [row, *found[row]])
        assert row not in found[row]
        assert len(set(found[row])) == 5
        assert shared[row, found[row]].mean() > shared[row, others].mean()


def test_negatives_that_came_with_the_pairs_stand_first():
    made = Pairs("made", pairs().questions, pairs().passages, pairs().answers, negatives=((3, 0, 2), ()))
    assert hard_negatives(made, 3)[0].tolist() == [3, 2, 1]


def test_marco_triples_give_questions_with_their_negatives(tmp_path):
    rows = [("q one", "right a", "wrong b"), ("q one", "right a", "wrong c"), ("q two", "right a", "wrong b")]
    (tmp_path / "triples.train.small.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    found = marco(tmp_path, 5)
    assert found.questions == ("q one", "q two")
    assert found.passages == ("right a", "wrong b", "wrong c")
    assert found.answers.tolist() == [0, 0]
    assert found.negatives == ((1, 2), (1,))
    assert len(marco(tmp_path, 1)) == 1


def judged(folder):
    (folder / "queries.train.tsv").write_text("7\tq seven\n8\tq eight\n9\tq nine\n")
    (folder / "collection.tsv").write_text("0\tp zero\n1\tp one\n2\tp two\n")
    (folder / "qrels.train.tsv").write_text("9 0 2 1\n7\t0\t0\t1\n9 0 1 1\n")
    return folder


def test_marco_judgements_name_questions_and_passages_by_number(tmp_path):
    found = marco(judged(tmp_path), 5)
    assert [(q, found.passages[a]) for q, a in zip(found.questions, found.answers)] == [
        ("q nine", "p two"),
        ("q seven", "p zero"),
    ]


@pytest.mark.parametrize("name", ["queries.train.tsv", "collection.tsv", "qrels.train.tsv"])
def test_a_marco_folder_that_lacks_a_file_names_it(tmp_path, name):
    (judged(tmp_path) / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {name}"):
        marco(tmp_path, 5)


def test_wrong_marco_requests_are_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        marco(tmp_path / "nowhere", 5)
    with pytest.raises(ValueError, match="count = 0"):
        marco(tmp_path, 0)
    (tmp_path / "triples.train.small.tsv").write_text("a\tb\n")
    with pytest.raises(ValueError, match=r"line 1 of .* has 2 columns, not 3"):
        marco(tmp_path, 5)
    (tmp_path / "triples.train.small.tsv").write_text("")
    with pytest.raises(ValueError, match="no question with an answer"):
        marco(tmp_path, 5)
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match="pip install datasets"):
        marco("datasets:ms_marco", 5)
