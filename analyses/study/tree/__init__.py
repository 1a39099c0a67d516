"""The study of path finding in trees: constructions, one and many heads, depth, chain of thought, curricula."""

from headlab.analyses.study.tree.study import STUDY, run

__all__ = ["STUDY", "run"]
