"""The error classes of the package: a wrong request, and work that could not be finished.

Every other exception that leaves the package is a fault of the program, and is reported as one.
"""

from __future__ import annotations


class RequestError(ValueError):
    """A wrong request: one sentence that says what was wrong, what exists, and what to do instead."""

    def __str__(self) -> str:
        return " ".join(map(str, self.args))  # KeyError would print the sentence in quotes


class UnknownName(RequestError, KeyError):
    """A name that does not exist among the names that do."""


class OutOfRange(RequestError, IndexError):
    """A number outside its range: a layer, head, position, token or example that does not exist."""


class MissingFile(RequestError, FileNotFoundError):
    """A file or folder that does not exist."""


class MissingPackage(RequestError, ImportError):
    """An optional dependency that is not installed; the sentence says how to install it."""


class NeverFired(RequestError, RuntimeError):
    """An intervention on a hook that exists but never fires under the model's configuration."""


class WorkFailed(RuntimeError):
    """Work that could not be finished for a reason outside request and program: a full disk, a lost worker."""
