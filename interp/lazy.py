"""Names of a package that are imported when they are first used, listed once, in the package's stub file.

Type checkers and editors read the stub `__init__.pyi`; this reads the same file when the program runs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package, from the imports in its stub.

    Args:
        package: The package's `__name__`.
        file: The package's `__file__`; the stub stands beside it.

    Returns:
        The three, to be assigned in the package's `__init__.py`.
    """
    stub = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    sources = {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module, original = sources[name]
        value = import_module(f"{module}.{original}") if module == package else getattr(import_module(module), original)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *sources})

    return get, names, list(sources)
