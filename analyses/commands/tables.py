"""Tables on the terminal, for the commands' `show`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def cell(value: Any) -> str:
    """One value as a reader expects it: four significant digits, a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> None:
    """Print rows under columns; text is shown as it is, never read as markup."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(cell(value).replace("[", "\\[") for value in row))
    Console().print(table)


def print_facts(facts: dict[str, Any]) -> None:
    """Print names and values, one a line, nested values as they are."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        print(f"{name:<{width}}  {cell(value)}")
