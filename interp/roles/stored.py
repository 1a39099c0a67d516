"""Scores that were stored, and by which definition: figures of different definitions are never compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headlab.interp.errors import RequestError
from headlab.interp.roles.specialisation import DEFINITION


@dataclass(frozen=True)
class StoredScore:
    """The figures of a score that every definition has.

    Args:
        roles: Their names.
        usage: [head][role], in [0, 1].
        separation, coverage, specialisation: In [0, 1]; None where there was one role.
        definition: Of the score. Results from before it was stored have the first one: amounts instead of energies,
            norms instead of effects on the logits, biases counted, and no `quiet`.
        note: What a reader must know before using the figures; empty for the present definition.
    """

    roles: tuple[str, ...]
    usage: tuple[tuple[float, ...], ...]
    separation: float | None
    coverage: float | None
    specialisation: float | None
    definition: int
    note: str


def stored_score(record: Mapping[str, Any]) -> StoredScore:
    """The score in a JSON object that `headlab score --json` or `Specialisation.to_json` wrote, of any version.

    Raises:
        RequestError: For an object that holds no score, and for a definition newer than this package.
    """
    missing = [name for name in ("roles", "usage", "specialisation") if name not in record]
    if missing:
        raise RequestError(f"this is not a stored score: it has no '{missing[0]}'")
    definition = int(record.get("definition", 1))
    if definition > DEFINITION:
        raise RequestError(f"this score has definition {definition}; this version of headlab knows up to {DEFINITION}")
    note = ""
    if definition < DEFINITION:
        note = (
            f"scored by definition {definition}, which a bias of the values moves and which does not see heads that "
            f"are always on: not to be compared with definition {DEFINITION}; run headlab score again"
        )
    return StoredScore(
        tuple(record["roles"]),
        tuple(tuple(row) for row in record["usage"]),
        record.get("separation"),
        record.get("coverage"),
        record["specialisation"],
        definition,
        note,
    )


def require_one_definition(scores: Iterable[Any]) -> int:
    """The definition of all `scores` (Specialisation or StoredScore).

    Raises:
        RequestError: Where they differ: scores of two definitions cannot be compared or averaged.
    """
    found = sorted({each.definition for each in scores})
    if len(found) != 1:
        raise RequestError(
            f"the scores have {len(found)} definitions ({', '.join(map(str, found)) or 'there are none'}): score the "
            "models again with one version"
        )
    return found[0]
