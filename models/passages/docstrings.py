"""Pairs from the documentation of installed packages: the summary of a docstring asks, its body answers.

Sources are parsed, never imported or run.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from headlab.interp.errors import RequestError
from headlab.models.passages.pairs import Pairs, pair_up

PACKAGES = ("sklearn", "scipy", "pandas", "networkx", "numpy")  # every installation of this project has them
SHORTEST = (4, 20)  # words of a summary, of a body
OPENING = 40  # words by which texts are told apart: about what a sentence encoder reads
SECTIONS = re.compile(r"^\s*[-=~^]{3,}\s*$", re.MULTILINE)


def documentation(packages: Sequence[str] = PACKAGES) -> Pairs:
    """Summary -> body, over all functions and classes of these packages, in the order of their files.

    Raises ValueError for a package that is not installed, or where no docstring has both parts.
    """
    found: list[tuple[str, str]] = []
    for package in packages:
        try:
            spec = find_spec(package)
        except (ImportError, ValueError):
            spec = None
        if spec is None or not spec.submodule_search_locations:
            raise RequestError(f"the package '{package}' is not installed: its documentation cannot be read")
        found += [pair for root in spec.submodule_search_locations for pair in read_folder(Path(root))]
    return pair_up("documentation of " + ", ".join(packages), found, words=OPENING)


def read_folder(folder: Path) -> Iterator[tuple[str, str]]:
    """The pairs of all Python files under `folder`, tests left out."""
    for path in sorted(folder.rglob("*.py")):
        if "tests" not in path.relative_to(folder).parts:
            yield from read_source(path.read_text(encoding="utf-8", errors="replace"))


def read_source(source: str) -> Iterator[tuple[str, str]]:
    """The pairs in one file; nothing where it cannot be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a package's own odd escapes
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text and (pair := split_docstring(text)):
                yield pair


def split_docstring(text: str) -> tuple[str, str] | None:
    """(summary, body), or None where either has too few words: 4 and 20."""
    summary, _, body = text.strip().partition("\n\n")
    body = SECTIONS.sub(" ", body)
    if len(summary.split()) < SHORTEST[0] or len(body.split()) < SHORTEST[1]:
        return None
    return summary, body
