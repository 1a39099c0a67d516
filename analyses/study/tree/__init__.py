"""The path-finding study: trainings, constructions, every instrument, the claims, the report."""

from analyses.study.tree.study import run

__all__ = ["run"]
