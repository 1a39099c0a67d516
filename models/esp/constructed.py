"""Endpoint selection written down from the theorem: one head for DAGs and for any graph, two heads for any graph.

Every construction reads its weights in a basis of named directions; margins are over ALL tokens, in logits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from headlab.interp.errors import RequestError, UnknownName
from headlab.models.constructed import Constructed
from headlab.models.esp.feedback import FeedbackArcSet
from headlab.models.esp.one_head import one_head, one_head_dag
from headlab.models.esp.task import EspTask
from headlab.models.esp.two_heads import two_head, two_head_narrow

__all__ = ["construct", "one_head", "one_head_dag", "two_head", "two_head_narrow"]


def construct(
    task: EspTask,
    variant: str,
    *,
    tied: bool = False,
    sink: float | int | None = None,
    feedback: FeedbackArcSet | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """The construction `variant` for `task`: one-head-dag, one-head, two-head, two-head-narrow.

    sink: the attention score M of the wrong selector, for the two-head variants only. feedback: the feedback arc set
    whose order `one-head` holds, where it is known already; for that variant only. A task with `induction` takes the
    two-head variants. Raises KeyError for an unknown variant, ValueError where variant, task and options do not fit.
    """
    made: dict[str, Callable[..., Constructed]] = {
        "one-head-dag": one_head_dag,
        "one-head": one_head,
        "two-head": two_head,
        "two-head-narrow": two_head_narrow,
    }
    if variant not in made:
        raise UnknownName(f"no construction '{variant}': there are {', '.join(made)}")
    options = {}
    if sink is not None:
        if variant.startswith("one-head"):
            raise RequestError(f"'{variant}' has no attention sink: leave it out, or take two-head or two-head-narrow")
        options["sink"] = sink
    if feedback is not None:
        if variant != "one-head":
            raise RequestError(f"'{variant}' holds no order of the vertices that a feedback arc set could give")
        options["feedback"] = feedback
    return made[variant](task, tied=tied, dtype=dtype, device=device, **options)
