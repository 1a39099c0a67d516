"""A laboratory for attention heads: constructed mechanisms, calibrated instruments, measured claims."""

from pathlib import Path

# In a checkout the three packages stand beside this folder (type checkers follow the links in it; where links are not
# checked out, this line does), in a wheel inside it.
__path__ = [*__path__, str(Path(__file__).resolve().parent.parent)]
