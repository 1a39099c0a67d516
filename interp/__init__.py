"""Instruments on hooked transformers: sites, patching, ablation, edges, circuits, scores, and figures of them."""

from headlab.interp.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
