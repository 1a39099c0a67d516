"""The sparse XOR study: one step, its rivals, its starts, its samples, its parameters, and more than two bits."""

from headlab.analyses.study.xor.study import STUDY, run

__all__ = ["STUDY", "run"]
