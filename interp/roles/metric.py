"""The read metric: how strongly the logits depend on each direction of what each head writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headlab.interp.model import Hook, HookedModel, model_device, run, untouched
from headlab.interp.movement import batches
from headlab.interp.roles.role import Role, by_inputs

PROBES, EXAMPLES = 8, 32


@dataclass(frozen=True)
class ReadMetric:
    """Quadratic forms in which the size of what a head writes is measured, one entry of each tuple a layer.

    Args:
        z: For each head E[J^T J], J the derivative of the logits (centred over the vocabulary, if it has more than
            one entry) by the head's z at a query: z^T M z is the squared change of the logits, to first order.
        gain: E||J||^2 of the same derivative by the whole output of the attention layer: the most that any direction
            of unit length can be read, up to a factor of d_model.
        centred: Whether the mean over the residual stream's coordinates is not read, as under LayerNorm.
    """

    z: tuple[Float[Tensor, "head d_head d_head"], ...]
    gain: tuple[float, ...]
    centred: tuple[bool, ...]


def read_metric(
    model: HookedModel, roles: Sequence[Role], *, probes: int = PROBES, examples: int = EXAMPLES, seed: int = 0
) -> ReadMetric:
    """The read metric at the queries of `roles`: ONE for all roles, so that a head is as loud in one as in another.

    With a metric per role, the final norm's 1/sigma, which is small where another head is loud, would hide what a
    head says in that role. J^T J is estimated from random directions s of the logits, E[(J^T s)(J^T s)^T] = J^T J for
    independent signs s (Hutchinson 1990), with one backward pass each.

    Args:
        model: The model.
        roles: The roles; each weighs the same.
        probes: Directions. One is exact, and is all that is drawn, where there is one output and every query is last.
        examples: How many examples of each role are used at most, evenly spaced.
        seed: Of the directions. The model's and torch's generators are left as they are.
    """
    layers = range(model.cfg.n_layers)
    names = [f"blocks.{layer}.attn.hook_z" for layer in layers] + [f"blocks.{layer}.hook_attn_out" for layer in layers]
    generator, held = torch.Generator().manual_seed(seed), {}

    def record(activation: Tensor, name: str) -> Tensor:
        held[name] = activation if activation.requires_grad else activation.detach().requires_grad_(True)
        return held[name]

    hooks: list[tuple[str, Hook]] = [(name, lambda activation, hook: record(activation, hook.name)) for name in names]
    grams: list[Tensor | float] = [0.0] * len(layers)
    gain, mean = [0.0] * len(layers), [0.0] * len(layers)
    with untouched(model, gradients=True):
        for inputs, weight in _samples(tuple(roles), examples):
            for part in batches(model, len(inputs), weight.shape[1]):
                logits = run(model, inputs[part].to(model_device(model)), hooks)
                example, query = weight[part].nonzero(as_tuple=True)
                exact = logits.shape[-1] == 1 and bool((query == weight.shape[1] - 1).all())
                count = 1 if exact else probes
                share = (weight[part][example, query] / count).to(logits.device)
                for probe in range(count):
                    signs = 2.0 * torch.randint(2, logits.shape, generator=generator).double() - 1
                    if logits.shape[-1] > 1:
                        signs = signs - signs.mean(-1, keepdim=True)
                    change = (logits * signs.to(logits)).sum()
                    writes = [held[name] for name in names]
                    found = torch.autograd.grad(change, writes, retain_graph=probe < count - 1)
                    rows = [each[example, query].double() for each in found]
                    for layer, (z, out) in enumerate(zip(rows[: len(layers)], rows[len(layers) :], strict=True)):
                        grams[layer] = grams[layer] + torch.einsum("q,qhd,qhe->hde", share, z, z)
                        gain[layer] += float(share @ out.square().sum(-1))
                        mean[layer] += float(share @ out.sum(-1).square()) / out.shape[-1]
    centred = tuple(part <= 1e-9 * whole for part, whole in zip(mean, gain, strict=True))
    return ReadMetric(tuple(torch.as_tensor(gram).cpu() for gram in grams), tuple(gain), centred)


def _samples(
    roles: tuple[Role, ...], most: int
) -> list[tuple[Shaped[Tensor, "example ..."], Float[Tensor, "example query"]]]:
    """Inputs, those of one shape together, and the weight of each query; weights sum to 1 over all roles."""
    merged: dict[tuple, list[tuple[Tensor, Tensor]]] = {}
    for group, queries in by_inputs(roles):
        chosen = torch.zeros(len(group[0].inputs), dtype=torch.bool)
        for counted in queries:
            chosen[_spread(counted, most)] = True
        weight = torch.zeros(int(chosen.sum()), queries[0].shape[1], dtype=torch.float64)
        for counted in queries:
            weight += counted.cpu()[chosen] / counted.cpu()[chosen].sum() / len(roles)
        inputs = group[0].inputs[chosen.to(group[0].inputs.device)]
        merged.setdefault((inputs.shape[1:], inputs.dtype, weight.shape[1]), []).append((inputs, weight))
    return [(torch.cat([one for one, _ in each]), torch.cat([one for _, one in each])) for each in merged.values()]


def _spread(counted: Bool[Tensor, "example query"], most: int) -> Tensor:
    rows = counted.any(-1).nonzero()[:, 0].cpu()
    return rows[torch.linspace(0, len(rows) - 1, min(most, len(rows))).round().long()]
