"""Roles of heads: where a head that plays a role attends, and how well a model's heads divide the roles."""

from headlab.interp.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
