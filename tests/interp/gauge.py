"""Changes of a model that leave its mechanism as it is, and one that leaves a single head of it."""

import torch


def duplicate_heads(model):
    """Make every head of the first layer a copy of its first head."""
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            weight = getattr(model.blocks[0].attn, name)
            weight[:] = weight[:1].clone()
    return model


def change_gauge(model, seed: int, order: list[int]):
    """Exchange the heads of every layer and give each head a new basis for its queries and keys, and for its values."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for block in model.blocks:
            attention, rank = block.attn, block.attn.W_Q.shape[-1]

            def mix(attention=attention, rank=rank):
                return torch.randn(rank, rank, generator=generator).to(attention.W_Q) + 3 * torch.eye(rank)

            for head in range(attention.W_Q.shape[0]):
                qk, ov = mix(), mix()
                for name, basis in (("Q", qk), ("K", torch.linalg.inv(qk).T), ("V", ov)):
                    for letter in ("W_", "b_"):
                        weight = getattr(attention, letter + name)
                        weight[head] = weight[head] @ basis
                attention.W_O[head] = torch.linalg.inv(ov) @ attention.W_O[head]
            for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
                weight = getattr(attention, name)
                weight[:] = weight[order].clone()
    return model
