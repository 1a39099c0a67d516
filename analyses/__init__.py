"""Questions asked of the models: studies, comparisons, claims, sweeps, the report and the command line."""

from headlab.interp.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
