"""What an instrument needs of a model, and how it leaves that model as it found it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from einops import repeat
from jaxtyping import Float
from torch import Tensor

from headlab.interp.errors import NeverFired, OutOfRange, UnknownName

Hook = Callable[..., Tensor | None]


@runtime_checkable
class HookedModel(Protocol):
    """The part of HookedTransformer's surface that every instrument here is written against.

    A HookedTransformer of transformer-lens 3.9, a TransformerBridge and a reader's own subclass satisfy it.
    """

    cfg: Any
    hook_dict: Any

    def run_with_hooks(self, *args: Any, fwd_hooks: Any = ..., **kwargs: Any) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


@dataclass(frozen=True)
class HeadWeights:
    """One layer's attention weights, key-value heads expanded to query heads.

    Units: those of the model. `b_O` is zero where the model has none.
    """

    W_Q: Float[Tensor, "head model d_head"]
    W_K: Float[Tensor, "head model d_head"]
    W_V: Float[Tensor, "head model d_head"]
    W_O: Float[Tensor, "head d_head model"]
    b_Q: Float[Tensor, "head d_head"]
    b_K: Float[Tensor, "head d_head"]
    b_V: Float[Tensor, "head d_head"]
    b_O: Float[Tensor, " model"]


def head_weights(model: HookedModel, layer: int) -> HeadWeights:
    """The attention weights of `layer`, detached, with grouped key-value heads repeated for each query head.

    Raises IndexError where the layer does not exist, naming the layers there are.
    """
    blocks: Any = model.blocks  # type: ignore[attr-defined]
    if not 0 <= layer < len(blocks):
        raise OutOfRange(f"layer {layer} does not exist: the model has layers 0 to {len(blocks) - 1}")
    attention = blocks[layer].attn
    heads = attention.W_Q.shape[0]

    def expanded(weight: Tensor) -> Tensor:
        weight = weight.detach()
        if weight.shape[0] == heads:
            return weight
        return repeat(weight, "kv ... -> (kv group) ...", group=heads // weight.shape[0])

    bias_out = attention.b_O
    if bias_out is None:
        bias_out = attention.W_O.new_zeros(attention.W_O.shape[-1])
    return HeadWeights(
        W_Q=attention.W_Q.detach(),
        W_K=expanded(attention.W_K),
        W_V=expanded(attention.W_V),
        W_O=attention.W_O.detach(),
        b_Q=attention.b_Q.detach(),
        b_K=expanded(attention.b_K),
        b_V=expanded(attention.b_V),
        b_O=bias_out.detach(),
    )


def require_hooks(model: HookedModel, names: Sequence[str]) -> None:
    """Raise KeyError, listing the nearest names that exist, where a hook name is not one of the model's."""
    known = list(model.hook_dict)
    for name in names:
        if name in known:
            continue
        near = get_close_matches(name, known, n=6, cutoff=0.3) or known[:6]
        raise UnknownName(f"the model has no hook '{name}'; it has {len(known)} hooks, the nearest: {', '.join(near)}")


_SWITCHES = {
    "hook_result": "use_attn_result",
    "hook_attn_in": "use_attn_in",
    "hook_mlp_in": "use_hook_mlp_in",
    "hook_q_input": "use_split_qkv_input",
    "hook_k_input": "use_split_qkv_input",
    "hook_v_input": "use_split_qkv_input",
}


def require_fired(names: Sequence[str], fired: set[str]) -> None:
    """Raise RuntimeError where a hook was set and never ran, and say how to switch it on where that is known."""
    for name in names:
        if name in fired:
            continue
        switch = _SWITCHES.get(name.rsplit(".", 1)[-1])
        how = f"; set cfg.{switch} = True to switch it on" if switch else ""
        raise NeverFired(f"the hook '{name}' exists but never fired under this configuration{how}")


@contextmanager
def untouched(model: HookedModel, *, gradients: bool = False) -> Iterator[None]:
    """Run the body in evaluation mode; leave the model's mode, gradients and every generator as they were.

    The model's own hooks, a reader's included, stay and act: instruments add theirs through `run_with_hooks`, which
    takes only its own away. `gradients=True` records gradients of activations, and no `.grad` of a parameter remains.
    """
    modules: list[torch.nn.Module] = list(model.modules())  # type: ignore[attr-defined]
    training = [module.training for module in modules]
    parameters: list[torch.nn.Parameter] = list(model.parameters())  # type: ignore[attr-defined]
    grads = [parameter.grad for parameter in parameters]
    required = [parameter.requires_grad for parameter in parameters]
    torch_state = torch.get_rng_state()
    cuda_state = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    for module in modules:
        if module.training:
            module.training = False
    for parameter in parameters:
        parameter.grad = None  # a backward pass in the body must not add to a gradient that is the reader's
    try:
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        for module, mode in zip(modules, training, strict=True):
            if module.training != mode:
                module.training = mode
        for parameter, grad, needs in zip(parameters, grads, required, strict=True):
            parameter.grad = grad
            parameter.requires_grad_(needs)
        torch.set_rng_state(torch_state)
        if cuda_state is not None:
            torch.cuda.set_rng_state_all(cuda_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


def run(
    model: HookedModel, inputs: Tensor, hooks: Mapping[str, Hook] | Sequence[tuple[str, Hook]] = ()
) -> Float[Tensor, "example position vocabulary"]:
    """One forward pass with `hooks` added; each of them must exist and must fire.

    A hook takes `(activation, hook=...)` and returns the edited activation or None. Raises KeyError for a name that
    does not exist and RuntimeError for one that never fired.
    """
    pairs = list(hooks.items()) if isinstance(hooks, Mapping) else list(hooks)
    require_hooks(model, [name for name, _ in pairs])
    fired: set[str] = set()
    watched = [(name, partial(_watched, name=name, edit=edit, fired=fired)) for name, edit in pairs]
    logits = model.run_with_hooks(inputs, fwd_hooks=watched)
    require_fired([name for name, _ in pairs], fired)
    return logits


def _watched(activation: Tensor, hook: Any, *, name: str, edit: Hook, fired: set[str]) -> Tensor | None:
    fired.add(name)
    return edit(activation, hook=hook)


def activations(model: HookedModel, inputs: Tensor, names: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits and the named activations of one pass, and no other activation kept.

    Returned activations are detached copies, so an edit of theirs cannot reach the model. Errors as for `run`.
    """
    kept: dict[str, Tensor] = {}
    hooks = [(name, partial(_keep, name=name, kept=kept)) for name in dict.fromkeys(names)]
    logits = run(model, inputs, hooks)
    return logits, kept


def _keep(activation: Tensor, hook: Any, *, name: str, kept: dict[str, Tensor]) -> None:
    kept[name] = activation.detach().clone()
