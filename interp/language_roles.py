"""Ready roles for language models: what a head reads when it copies, continues, repeats or names.

Each builder marks, in token sequences, the queries at which a role is played and the positions that a head playing it
attends to; `score`, `assign_heads` and `align_roles` take the result. The chance level of a role is the share of
targets among the positions that a query can see, which those instruments subtract.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.prompts import PromptContrast
from headlab.interp.roles import Role

Tokens = Int[Tensor, "example position"]
Mask = Bool[Tensor, "example position"]


def previous_token_role(tokens: Tokens, mask: Mask | None = None) -> Role:
    """Attend to the token before (Elhage et al. 2021, the first head of the induction circuit).

    Args:
        tokens: token ids.
        mask: True at tokens, False at padding; None is all.

    Example:
        >>> role = previous_token_role(torch.tensor([[5, 6, 7]]))
        >>> role.targets[0, 2].tolist()
        [False, True, False]
    """
    mask = _mask(tokens, mask)
    targets = torch.diag_embed(torch.ones(tokens.shape[1] - 1, dtype=torch.bool, device=tokens.device), offset=-1)
    return _role("previous token", tokens, mask, targets.expand(len(tokens), -1, -1))


def duplicate_token_role(tokens: Tokens, mask: Mask | None = None) -> Role:
    """Attend to earlier occurrences of the token that stands at the query (Wang et al. 2022, duplicate token heads).

    Args:
        tokens: token ids.
        mask: True at tokens, False at padding; None is all.
    """
    mask = _mask(tokens, mask)
    same = tokens[:, :, None] == tokens[:, None, :]
    return _role("duplicate token", tokens, mask, same & _before(tokens))


def induction_role(tokens: Tokens, mask: Mask | None = None) -> Role:
    """Attend to the token after an earlier occurrence of the token at the query (Olsson et al. 2022).

    Args:
        tokens: token ids, with repeats.
        mask: True at tokens, False at padding; None is all.
    """
    mask = _mask(tokens, mask)
    same = (tokens[:, :, None] == tokens[:, None, :]) & _before(tokens)
    after = torch.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1]
    visible = torch.ones_like(same).tril()
    # The query itself follows an occurrence just before it ("a a"): attending to oneself is not evidence of induction.
    own = torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    return _role("induction", tokens, mask, after & visible & ~own)


def first_token_role(tokens: Tokens, mask: Mask | None = None) -> Role:
    """Attend to the first position: the attention sink (Xiao et al. 2024).

    Args:
        tokens: token ids.
        mask: True at tokens, False at padding; None is all.
    """
    mask = _mask(tokens, mask)
    targets = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool, device=tokens.device)
    targets[:, 1:, 0] = True
    return _role("first token", tokens, mask, targets)


def name_mover_role(contrast: PromptContrast, *, negative: bool = False) -> Role:
    """Attend, from where the answer is read, to the right answer's own occurrences in the prompt (Wang et al. 2022).

    Args:
        contrast: prompts in which the right answer occurs as a token, such as indirect-object sentences.
        negative: name it "negative name mover": the same attention; whether a head writes for or against the name is
            told by its direct logit attribution, whose sign separates the two.

    Raises:
        RequestError: a prompt in which the right answer does not occur before the position that is read.
    """
    tokens, last = contrast.source, contrast.last
    rows = torch.arange(len(tokens), device=tokens.device)
    occurs = (tokens == contrast.answers[0][:, None]) & contrast.attention_mask
    occurs &= torch.arange(tokens.shape[1], device=tokens.device) < last[:, None]
    if not occurs.any(1).all():
        row = int((~occurs.any(1)).nonzero()[0])
        raise RequestError(
            f"the right answer of prompt {row} does not occur in it: a name mover copies a name that stands there"
        )
    targets = torch.zeros(*tokens.shape, tokens.shape[1], dtype=torch.bool, device=tokens.device)
    targets[rows, last] = occurs
    name = "negative name mover" if negative else "name mover"
    return _role(name, tokens, contrast.attention_mask, targets)


def repeated_tokens(
    count: int, length: int, vocabulary: int, *, repeats: int = 2, bos: int | None = None, seed: int = 0
) -> Tokens:
    """Random token sequences that repeat: what induction and duplicate token heads are measured on.

    Args:
        count: sequences.
        length: distinct tokens of a sequence before it repeats.
        vocabulary: tokens are drawn from 0 to this number, without one, each at most once a sequence.
        repeats: how often the sequence stands there.
        bos: a token put in front; None is none.
        seed: of the draw; no global generator moves.

    Returns:
        Token ids [count, repeats * length (+ 1)].
    """
    if not (count > 0 and 0 < length <= vocabulary and repeats > 0):
        raise RequestError(f"{count} sequences of {length} distinct tokens among {vocabulary}: no such sequences exist")
    generator = torch.Generator().manual_seed(seed)
    once = torch.stack([torch.randperm(vocabulary, generator=generator)[:length] for _ in range(count)])
    tokens = once.repeat(1, repeats)
    return tokens if bos is None else torch.cat([torch.full((count, 1), bos), tokens], 1)


def _mask(tokens: Tensor, mask: Tensor | None) -> Tensor:
    if tokens.ndim != 2 or tokens.is_floating_point():
        raise RequestError(f"roles of a language model need token ids [example, position], not {list(tokens.shape)}")
    return torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask.bool()


def _before(tokens: Tensor) -> Tensor:
    return torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).tril(-1)


def _role(name: str, tokens: Tensor, mask: Tensor, targets: Tensor) -> Role:
    targets = targets & mask[:, :, None] & mask[:, None, :]
    queries = targets.any(-1)
    if not queries.any():
        raise RequestError(f"the role '{name}' is never played in these sequences: give longer or repeating ones")
    return Role(name, tokens, queries, targets)
