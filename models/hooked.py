"""The one place that reaches transformer-lens: an architecture on paper becomes a HookedTransformer.

An `Architecture` is plain data (it goes into checkpoints as JSON): the fields of a HookedTransformerConfig, the parts
that the task replaces, and the parameters that do not train.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Any

import torch
from torch import nn
from torch.random import fork_rng

from headlab.interp.errors import MissingPackage, UnknownName

_INSTALLED = version("transformer-lens")
if not _INSTALLED.startswith("3."):
    raise MissingPackage(
        f"headlab needs transformer-lens 3.9 or a later 3.x (version 4 removed HookedTransformer); "
        f"{_INSTALLED} is installed: pip install 'transformer-lens>=3.9,<4'"
    )

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # third-party import noise only; our own calls below are not covered
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    from headlab.models.parts import PARTS

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True)
class Architecture:
    """A model without its weights, as plain data.

    config: fields of HookedTransformerConfig, without seed, device and dtype, which are chosen when it is built.
    parts: slot -> {"part": a name in models.parts.PARTS, **its options}; slots are `embed`, `pos_embed`, `unembed`,
        `blocks.L.attn`.
    frozen: names or patterns of the parameters that do not train.
    """

    config: Mapping[str, Any]
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_json` makes an equal architecture."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Architecture:
        """The architecture that `to_json` wrote. Raises UnknownName where `config` is missing."""
        return cls(
            config=dict(data["config"]),
            parts=dict(data.get("parts", {})),
            frozen=tuple(data.get("frozen", ())),
        )


def build(
    architecture: Architecture, *, device: str = "cpu", dtype: torch.dtype | str = torch.float32
) -> HookedTransformer:
    """The HookedTransformer that `architecture` describes, in evaluation mode: weights 0, norm weights 1.

    No random generator moves. Raises UnknownName for an unknown part or slot, naming those there are.
    """
    if isinstance(dtype, str):
        if dtype not in DTYPES:
            raise UnknownName(f"unknown dtype '{dtype}': choose one of {', '.join(DTYPES)}")
        dtype = DTYPES[dtype]
    options = {
        "init_weights": False,
        **architecture.config,
        "seed": None,
        "device": str(device),
        "dtype": dtype,
    }
    with fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message=".*is deprecated and will be removed in 4.0", category=DeprecationWarning
        )
        model = HookedTransformer(HookedTransformerConfig(**options))
        for slot, choice in architecture.parts.items():
            _replace(model, slot, choice)
        model.setup()
    nn.Module.to(model, device=device, dtype=dtype)  # past HookedTransformer.to, which prints
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1.0 if _is_norm_weight(name) else 0.0)
    for name, parameter in model.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in architecture.frozen):
            parameter.requires_grad_(False)
    return model.eval()


def _replace(model: HookedTransformer, slot: str, choice: Mapping[str, Any]) -> None:
    options = dict(choice)
    name = options.pop("part")
    if name not in PARTS:
        raise UnknownName(f"unknown part '{name}': there are {', '.join(sorted(PARTS))}")
    *path, attribute = slot.split(".")
    owner: Any = model
    for step in path:
        owner = owner[int(step)] if step.isdigit() else getattr(owner, step, None)
    if owner is None or not isinstance(getattr(owner, attribute, None), nn.Module):
        raise UnknownName(f"the model has no slot '{slot}': use embed, pos_embed, unembed or blocks.L.attn")
    part = PARTS[name]
    if attribute == "attn":
        layer = int(path[-1])
        new = part(model.cfg, "global", layer, **options)
    else:
        new = part(model.cfg, model, **options)
    setattr(owner, attribute, new)


def _is_norm_weight(name: str) -> bool:
    return name.endswith(".w")


def _is_bias(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return last == "b" or last.startswith("b_")


def initialise(model: nn.Module, *, scale: float, seed: int) -> None:
    """Draw every trainable weight matrix from N(0, scale^2) with a generator of its own; biases 0, norm weights 1.

    A parameter is a bias when its name's last part is `b` or begins with `b_`. The draw depends on the seed, the names
    and the shapes only: it is the same on every device and in every dtype.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if not parameter.requires_grad:
                continue
            if _is_bias(name) or _is_norm_weight(name):
                parameter.fill_(1.0 if _is_norm_weight(name) else 0.0)
            else:
                draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_((draw * scale).to(parameter))
