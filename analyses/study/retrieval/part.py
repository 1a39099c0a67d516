"""What a further part of the study adds to the report: the data that are not synthetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from headlab.analyses.claims import Measurement
from headlab.analyses.study.bars import Bar
from headlab.interp.render import Figure, Section


@dataclass(frozen=True)
class Part:
    """Claims judged, requirements, sections of the page, figures and tables by file name, entries of results.json.

    skipped: the claims that this part leaves out of this run.
    """

    claims: Sequence[Measurement] = ()
    bars: Sequence[Bar] = ()
    sections: Sequence[Section] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[str] = ()
