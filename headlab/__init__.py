"""A laboratory for attention heads: constructed mechanisms, calibrated instruments, measured claims.

The names in `dir(headlab)` are imported when they are first used: `import headlab` itself takes no torch.
"""

from pathlib import Path
from typing import Any

# In a wheel the three packages stand inside this folder, in a checkout beside it, with links to them in it. Where links
# are not checked out they are found beside it.
if not (Path(__file__).parent / "interp" / "__init__.py").exists():
    __path__ = [*__path__, str(Path(__file__).resolve().parent.parent)]

from headlab.interp.lazy import lazy_names  # found through the path above

_get, __dir__, __all__ = lazy_names(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headlab")
    return _get(name)
