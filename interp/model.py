"""What an instrument needs of a model, and how it leaves that model as it found it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from einops import repeat
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headlab.interp.errors import NeverFired, OutOfRange, RequestError, UnknownName

Hook = Callable[..., Tensor | None]
Inputs = Tensor | str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
Mask = Shaped[Tensor, "example position"]  # 1 or True where a token counts, 0 or False where it is padding


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

    Units: those of the model. A bias is zero where the model has none.
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

    Raises OutOfRange where the layer does not exist, naming the layers there are.
    """
    blocks: Any = model.blocks  # type: ignore[attr-defined]
    if not 0 <= layer < len(blocks):
        raise OutOfRange(f"layer {layer} does not exist: the model has layers 0 to {len(blocks) - 1}")
    attention = blocks[layer].attn
    heads = attention.W_Q.shape[0]

    def expanded(weight: Tensor | None) -> Tensor:
        if weight is None:  # a bias that the architecture does not have
            return attention.W_Q.new_zeros(heads, attention.W_Q.shape[-1])
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
        b_Q=expanded(attention.b_Q),
        b_K=expanded(attention.b_K),
        b_V=expanded(attention.b_V),
        b_O=bias_out.detach(),
    )


def require_hooks(model: HookedModel, names: Sequence[str]) -> None:
    """Raise UnknownName, listing the nearest names that exist, where a hook name is not one of the model's."""
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
    """Raise NeverFired where a hook was set and never ran, and say how to switch it on where that is known."""
    for name in names:
        if name in fired:
            continue
        switch = _SWITCHES.get(name.rsplit(".", 1)[-1])
        how = f"; set cfg.{switch} = True to switch it on" if switch else ""
        raise NeverFired(f"the hook '{name}' exists but never fired under this configuration{how}")


def require_finite_weights(model: HookedModel) -> None:
    """Raise RequestError, naming the tensor, where a weight is NaN or infinite."""
    for name, weight in model.named_parameters():  # type: ignore[attr-defined]
        if not weight.is_floating_point() or bool(weight.detach().sum().isfinite()):
            continue
        if not bool(weight.detach().isfinite().all()):  # a sum may overflow where every entry is finite
            raise RequestError(f"the weights '{name}' hold NaN or infinity: load or train the model again")


def model_device(model: HookedModel) -> torch.device:
    """The device of the model's first parameter."""
    return next(model.parameters()).device  # type: ignore[attr-defined]


def model_inputs(model: HookedModel, inputs: Inputs) -> Shaped[Tensor, "example ..."]:
    """What the model is called with, as a tensor with the axis `example` first.

    Args:
        model: The model that will read them; strings pass its tokenizer, and gain the tokens that it prepends.
        inputs: A tensor, which is returned as it is; one text, several texts of the same number of tokens, the token
            ids of one example, or of several of the same length.

    Raises:
        RequestError: For a tensor on another device than the model, texts without a tokenizer, and examples of
            different lengths.
    """
    device = model_device(model)
    if isinstance(inputs, Tensor):
        if inputs.device != device:
            raise RequestError(f"the inputs are on {inputs.device}, the model on {device}: use inputs.to('{device}')")
        return inputs.clone() if inputs.is_inference() else inputs
    if isinstance(inputs, str):
        inputs = [inputs]
    rows: list[Any] = list(inputs)
    if not rows:
        raise RequestError("there are no inputs: give at least one example")
    if all(isinstance(row, str) for row in rows):
        if getattr(model, "tokenizer", None) is None:
            raise RequestError("the model has no tokenizer: give token ids, not text")
        rows = [model.to_tokens(row)[0].tolist() for row in rows]  # type: ignore[attr-defined]
    elif all(isinstance(row, int) for row in rows):
        rows = [rows]
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise RequestError(
            f"the examples have {lengths[0]} to {lengths[-1]} tokens: give examples of one length, or a padded tensor "
            "with its attention_mask"
        )
    return torch.tensor(rows, device=device)


@contextmanager
def untouched(model: HookedModel, *, gradients: bool = False) -> Iterator[None]:
    """Run the body in evaluation mode; leave the model's mode, gradients and every generator as they were.

    Every instrument enters here: weights that are not finite are refused, and a reader's `torch.inference_mode()` is
    left for the body, in which hooks edit in place.

    The model's own hooks, a reader's included, stay and act: instruments add theirs through `run_with_hooks`, which
    takes only its own away. `gradients=True` records gradients of activations, and no `.grad` of a parameter remains.
    """
    require_finite_weights(model)
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
        inference = torch.inference_mode(False) if torch.is_inference_mode_enabled() else nullcontext()
        with inference, torch.set_grad_enabled(gradients):
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


class HookName:
    """The hook point that an edit is given, under the name by which it was asked for.

    A TransformerBridge serves one hook point under several names, and the point knows one of them.
    """

    def __init__(self, name: str, point: Any) -> None:
        self.name = name
        self._point = point

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._point, attribute)


def run(
    model: HookedModel,
    inputs: Tensor,
    hooks: Mapping[str, Hook] | Sequence[tuple[str, Hook]] = (),
    *,
    attention_mask: Mask | None = None,
) -> Float[Tensor, "example position vocabulary"]:
    """One forward pass with hooks added.

    Args:
        model: The model.
        inputs: What it is called with, on its device.
        hooks: Name and edit, in the order in which they act. An edit takes `(activation, hook=...)` and returns the
            edited activation or None; `hook.name` is the name given here. A part of the model that an edit calls fires
            none of these hooks.
        attention_mask: 1 where a token counts, 0 where it is padding.

    Raises:
        UnknownName: For a hook that does not exist.
        NeverFired: For a hook that exists and never fired.
        RequestError: For inputs on another device than the model, and where the attention mask makes it answer NaN.
    """
    pairs = list(hooks.items()) if isinstance(hooks, Mapping) else list(hooks)
    require_hooks(model, [name for name, _ in pairs])
    watch = _Watch()
    watched = [(name, partial(watch.fire, name=name, edit=edit)) for name, edit in pairs]
    options = {} if attention_mask is None else {"attention_mask": attention_mask}
    inputs = model_inputs(model, inputs)
    logits = model.run_with_hooks(inputs, fwd_hooks=watched, **options)
    require_fired([name for name, _ in pairs], watch.fired)
    if attention_mask is not None and bool(logits.isnan().any()):  # a bridge's row of attention that is all masked
        raise RequestError("the model answers NaN under this attention_mask: pad on the right, not on the left")
    return logits


class _Watch:
    """Which hooks of one pass fired, and whether one of their edits is running."""

    def __init__(self) -> None:
        self.fired: set[str] = set()
        self.busy = False

    def fire(self, activation: Tensor, hook: Any, *, name: str, edit: Hook) -> Tensor | None:
        if self.busy:  # the edit calls a part of the model: on a bridge its MLP fires hook_mlp_out within hook_mlp_out
            return None
        self.fired.add(name)
        self.busy = True
        try:
            return edit(activation, hook=HookName(name, hook))
        finally:
            self.busy = False


def activations(
    model: HookedModel, inputs: Tensor, names: Sequence[str], *, attention_mask: Mask | None = None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The logits and the named activations of one pass, and no other activation kept.

    Returned activations are detached copies, so an edit of theirs cannot reach the model. Errors as for `run`.
    """
    kept: dict[str, Tensor] = {}
    hooks = [(name, partial(_keep, name=name, kept=kept)) for name in dict.fromkeys(names)]
    logits = run(model, inputs, hooks, attention_mask=attention_mask)
    return logits, kept


def _keep(activation: Tensor, hook: Any, *, name: str, kept: dict[str, Tensor]) -> None:
    kept[name] = activation.detach().clone()


def visible_keys(
    model: HookedModel,
    scores: Float[Tensor, "example head query key"],
    pattern: Float[Tensor, "example head query key"],
) -> Bool[Tensor, "example head query key"]:
    """Which keys each query can see.

    Args:
        model: The model that both come from; its `cfg.attention_dir` says what it sees where the scores do not.
        scores: What `hook_attn_scores` holds. Masked keys have -inf or the lowest number of the dtype there. A native
            bridge of transformer-lens 3.9 fires that hook with the pattern itself, which masks nothing: then the mask
            is the causal triangle, or nothing at all.
        pattern: What `hook_pattern` holds.
    """
    if not torch.equal(scores, pattern):
        return scores > torch.finfo(scores.dtype).min / 2
    seen = torch.ones_like(pattern, dtype=torch.bool)
    return seen.tril() if getattr(model.cfg, "attention_dir", "causal") == "causal" else seen
