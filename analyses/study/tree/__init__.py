"""The path-finding study: trainings, constructions, every instrument, the claims, the report."""

from headlab.analyses.study.tree.study import run

__all__ = ["run"]
