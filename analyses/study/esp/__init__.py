"""The endpoint selection study."""

from headlab.analyses.study.esp.study import STUDY, run

__all__ = ["STUDY", "run"]
