"""The head-count study on real data: digits, pictures, passages, each also with the total width held fixed."""

from headlab.analyses.study.retrieval.real.study import part_of, real_part, wanted_sources

__all__ = ["part_of", "real_part", "wanted_sources"]
