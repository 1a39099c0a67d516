"""One report over the studies of all systems."""

from headlab.analyses.study.all.study import run

__all__ = ["run"]
