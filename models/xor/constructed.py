"""The limit solution of sparse parity: each query along one target's position vector.

With theta_h = K v_{t_h} the score of the target is K and that of position i is K v_i . v_{t_h}. Let c be the largest
v_i . v_t over targets t and positions i other than t. Every other position then weighs at most exp(-K (1 - c)) of the
target, so that head h gives its target at least

    1 / (1 + (d - 1) exp(-K (1 - c))) >= 1 - epsilon   for   K = ln((d - 1) / epsilon) / (1 - c),

and f = -prod_h a_h.x differs from y = -prod_t x_t by at most 2 k epsilon: one factor of size 1 after another is
replaced, each at most 2 epsilon away. This is where one large gradient step ends up, up to which head has which target
(Han and Ghoshdastidar, arXiv 2502.07553, theorem 2).
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log

import torch
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.models.constructed import Constructed
from headlab.models.xor.architecture import architecture, to_model
from headlab.models.xor.ensemble import default_width, draw
from headlab.models.xor.task import XorTask

VARIANT = "limit"
EPSILON = 1e-9


def limit(
    task: XorTask,
    *,
    width: int | None = None,
    scale: float | None = None,
    seed: int = 0,
    positions: Float[Tensor, "position width"] | None = None,
    dtype: torch.dtype | str = torch.float32,
    device: str = "cpu",
) -> Constructed:
    """The model whose head h attends to target h. width m: 6 ln d by default. `seed` draws the position vectors,
    unless `positions` gives them (unit vectors, for instance another model's).

    scale: K; by default the one for which the bound leaves at most 1e-9 of a head's attention elsewhere.
    notes: `scale`, `closest` (c), `attention` (the bound, at least this much on the target), `max_error` (of f).
    Raises ValueError for a scale that is not positive and finite, or where another position coincides with a target's.
    """
    heads = len(task.targets)
    if positions is not None:
        width = positions.shape[1]
    width = default_width(task.bits) if width is None else width
    start = "independent" if heads % 2 else "antisymmetric"
    drawn = draw(task, width=width, seeds=(seed,), start=start)
    if positions is not None:
        drawn = replace(drawn, positions=positions.to(drawn.positions)[None])
    at_targets = drawn.positions[0, list(task.targets)]
    cosines = at_targets @ drawn.positions[0].T
    cosines[torch.arange(heads), list(task.targets)] = -1.0
    closest = float(cosines.max())
    if closest >= 1 - 1e-9:
        raise RequestError(
            f"width m = {width} puts another of the {task.bits} positions on a target: no query tells them apart; "
            "use a larger width or another seed"
        )
    if scale is None:
        scale = log((task.bits - 1) / EPSILON) / (1 - closest)
    if not 0 < scale < inf:
        raise RequestError(f"scale K = {scale}: it must be positive and finite")
    elsewhere = (task.bits - 1) * exp(-scale * (1 - closest))
    attention = 1 / (1 + elsewhere)
    model = to_model(drawn.with_queries(scale * at_targets[None]), device=device, dtype=dtype)
    return Constructed(
        model=model,
        architecture=architecture(task, width),
        variant=VARIANT,
        circuits={kind: task.circuit(VARIANT, kind) for kind in task.circuit_kinds},
        roles={(0, head): name for head, name in enumerate(task.role_names)},
        options={"width": width, "scale": scale, "seed": seed},
        errors=0,
        notes={
            "scale": scale,
            "closest": closest,
            "attention": attention,
            "max_error": min(2.0, 2 * heads * (1 - attention)),
        },
    )
