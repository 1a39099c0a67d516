"""The slow truth for the battery: plain torch hooks, one cell and one run of the model at a time.

Nothing here uses `headlab.interp`; the names of hooks and the axes of activations are written out once more.
"""

from __future__ import annotations

from itertools import product

import torch

HOOKS = {
    "resid_pre": "blocks.{}.hook_resid_pre",
    "resid_mid": "blocks.{}.hook_resid_mid",
    "resid_post": "blocks.{}.hook_resid_post",
    "attn_out": "blocks.{}.hook_attn_out",
    "mlp_out": "blocks.{}.hook_mlp_out",
    "q": "blocks.{}.attn.hook_q",
    "k": "blocks.{}.attn.hook_k",
    "v": "blocks.{}.attn.hook_v",
    "z": "blocks.{}.attn.hook_z",
    "pattern": "blocks.{}.attn.hook_pattern",
}


def dimensions(component):
    """axis -> the dimension of the hook's activation that it runs along."""
    if component == "pattern":
        return {"head": 1, "destination": 2, "source": 3}
    return {"position": 1, "head": 2} if component in ("q", "k", "v", "z") else {"position": 1}


@torch.no_grad()
def hooked_run(model, inputs, hooks, **options):
    """Logits with one torch forward hook per named hook point; a hook takes and returns the activation."""
    handles = [
        model.get_submodule(name).register_forward_hook(lambda module, args, out, edit=edit: edit(out))
        for name, edit in hooks.items()
    ]
    try:
        return model(inputs, **options)
    finally:
        for handle in handles:
            handle.remove()


def recorded(model, inputs, names, **options):
    """Logits, and the activations at the named hook points."""
    found = {}

    def keep(name):
        def edit(activation):
            found[name] = activation.clone()
            return activation

        return edit

    return hooked_run(model, inputs, {name: keep(name) for name in names}, **options), found


def written(new, chosen):
    """A hook that puts `new` where every dimension of `chosen` (dimension -> indices) is at one of its indices."""

    def edit(activation):
        place = torch.ones_like(activation, dtype=torch.bool)
        for dimension, indices in chosen.items():
            others = [i for i in range(activation.shape[dimension]) if i not in indices]
            place.index_fill_(dimension, torch.tensor(others, dtype=torch.long), False)
        return activation.where(~place, new)

    return edit


def patched_cells(model, inputs, component, new, by, labels, read, **options):
    """The logits at `read` for each cell, in row-major order of `by`.

    new: layer -> what is put there, of the activation's shape. labels: axis -> indices counted from 0, `layer` among
    them; axes outside `by` are patched over all of their labels.
    """
    axes = dimensions(component)
    for cell in product(*(labels[axis] for axis in by)):
        at = dict(zip(by, cell, strict=True))
        chosen = {axes[axis]: [at[axis]] if axis in at else list(labels[axis]) for axis in axes}
        hook = HOOKS[component].format(at["layer"])
        logits = hooked_run(model, inputs, {hook: written(new[at["layer"]], chosen)}, **options)
        yield torch.stack([logits[:, position] for position in read], dim=1)


def ablated_group(model, inputs, group, new, positions, read, **options):
    """The logits at `read` when the heads of `group` write `new` (layer -> z) at `positions`, all together."""
    hooks = {}
    for layer in {layer for layer, _ in group}:
        heads = [head for at, head in group if at == layer]
        hooks[HOOKS["z"].format(layer)] = written(new[layer], {1: positions, 2: heads})
    logits = hooked_run(model, inputs, hooks, **options)
    return torch.stack([logits[:, position] for position in read], dim=1)


def replacements(kind, activation, reference=None, drawn=None):
    """What an intervention puts in the place of `activation` [example, ...]; position means leave `example` alone."""
    if kind == "zero":
        return torch.zeros_like(activation)
    rows = {
        "patch": lambda: list(reference),
        "mean": lambda: [sum(reference[e, p] for e in range(len(reference)) for p in range(reference.shape[1]))
                         / (len(reference) * reference.shape[1])] * len(activation),
        "positional_mean": lambda: [sum(reference) / len(reference)] * len(activation),
        "resample": lambda: [reference[int(i)] for i in drawn],
    }[kind]()  # fmt: skip
    return torch.stack([row.expand_as(activation[0]) for row in rows])
