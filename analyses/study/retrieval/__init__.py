"""The retrieval study: trainings, constructions, every instrument, the claims, the report."""

from headlab.analyses.study.retrieval.study import run

__all__ = ["run"]
