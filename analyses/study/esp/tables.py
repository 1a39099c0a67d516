"""The endpoint selection study's results as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from headlab.analyses.claims import Measurement
from headlab.analyses.study.esp.compared import Compared
from headlab.analyses.study.esp.records import Method
from headlab.analyses.study.esp.two_heads import TwoHeads


def summary(method: Method) -> dict[str, Any]:
    """A method's runs as results.json holds them."""
    return {
        "heads": method.heads,
        "constructed": method.constructed,
        "recipe": method.recipe,
        "errors": [run.errors for run in method.runs],
        "accuracy": [run.accuracy for run in method.runs],
        "solved": [run.solved for run in method.runs],
        "best": {"seed": method.best.seed, "errors": method.best.errors, "dir": str(method.best.directory)},
        "certificates": [
            None
            if run.certificate is None
            else {
                "in_class": run.certificate.in_class,
                "given_up": None if run.certificate.given_up is None else len(run.certificate.given_up),
                "holds": run.certificate.holds,
            }
            for run in method.runs
        ],
    }


def tables(
    methods: Mapping[str, Method], looks: Sequence[TwoHeads], compared: Compared, claims: Sequence[Measurement]
) -> dict[str, pd.DataFrame]:
    """name -> table, one row per model, ablation, attribution, score, comparison, recorded step or claim."""
    models = [
        {
            "method": m.key,
            "heads": m.heads,
            "seed": r.seed,
            "errors": r.errors,
            "accuracy": r.accuracy,
            "step": r.step,
            "solved": r.solved,
            "dir": str(r.directory),
        }
        for m in methods.values()
        for r in m.runs
    ]
    seeds = [run.seed for run in methods["two-heads"].runs]
    ablation = [
        {"seed": seed, "kind": kind, "head": head, "selector": level + 1, "accuracy_lost": value}
        for seed, each in zip(seeds, looks, strict=True)
        for kind in each.ablation
        for head, row in (*zip("AB", each.ablation[kind], strict=True), ("A+B", each.together[kind]))
        for level, value in enumerate(row)
    ]
    attribution = [
        {
            "seed": seed,
            "head": "AB"[h],
            "selector": level + 1,
            "position": ("u", "v", "selector", "#")[p],
            "attention": each.attention[h, level, p],
            "attribution": each.attribution[h, level, p],
        }
        for seed, each in zip(seeds, looks, strict=True)
        for h in (0, 1)
        for level in (0, 1)
        for p in range(4)
    ]
    scores = [
        {
            "seed": seed,
            "specialisation": s.score.specialisation,
            "separation": s.score.separation,
            "coverage": s.score.coverage,
        }
        for seed, s in zip(seeds, looks, strict=True)
    ]
    curves = [
        {
            "method": m.key,
            "seed": r.seed,
            "step": step,
            "accuracy": m.curves.accuracy[i, k],
            "specialisation": None if m.curves.specialisation is None else m.curves.specialisation[i, k],
        }
        for m in methods.values()
        if m.curves is not None
        for i, r in enumerate(m.runs)
        for k, step in enumerate(m.curves.steps)
    ]
    named = {
        "models": models,
        "ablation": ablation,
        "attribution": attribution,
        "specialisation": scores,
        "comparison": [vars(each) for each in compared.seeds],
        "curves": curves,
        "claims": [each.to_row() for each in claims],
    }
    return {name: pd.DataFrame(table) for name, table in named.items()}
