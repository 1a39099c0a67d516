"""The endpoint selection study: one graph, constructed and trained models, every instrument, the claims, the report."""

from headlab.analyses.study.esp.study import run

__all__ = ["run"]
