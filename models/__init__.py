"""The models that instruments are tried on: four tasks, weights from their theorems, training, checkpoints."""

from headlab.interp.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
