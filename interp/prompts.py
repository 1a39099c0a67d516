"""From prompts to a contrast: pairs of token sequences with answers, position names and metrics, ready for patching."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import HookedModel, untouched

Prompt = str | Sequence[int] | Int[Tensor, " position"]
Answer = str | int
LogitMetric = Callable[[Float[Tensor, "example read vocabulary"]], Float[Tensor, " example"]]


@dataclass(frozen=True)
class PromptContrast:
    """Clean prompts (`source`) beside corrupted ones (`destination`), row by row, with what is asked of them.

    Shorter prompts are padded on the right, where no earlier position of a causal model can see the padding.

    Attributes:
        source: token ids of the clean prompts.
        destination: token ids of the corrupted prompts, of the same lengths.
        attention_mask: True at tokens, False at padding; the same for both.
        read: every position at which some prompt ends, ascending; what metrics see.
        metrics: name -> one number per pair, high on the clean run: "logit difference" (answer minus wrong answer),
            "log probability", "probability" and "negative rank" (0 for the largest logit) of the answer, and
            "negative KL" (minus the divergence of the run's prediction from the clean run's, in nats).
        positions: a name per position: the token where all prompts share it, the tokens of both prompts of the first
            pair where they differ, the position's number before either.
        differ: per pair, the positions at which clean and corrupted prompt differ.
        answers: token ids of right and wrong answer.
    """

    source: Int[Tensor, "example position"]
    destination: Int[Tensor, "example position"]
    attention_mask: Bool[Tensor, "example position"]
    read: tuple[int, ...]
    metrics: Mapping[str, LogitMetric]
    positions: tuple[str, ...]
    differ: tuple[tuple[int, ...], ...]
    answers: tuple[Int[Tensor, " example"], Int[Tensor, " example"]]

    @property
    def last(self) -> Int[Tensor, " example"]:
        """The position of each prompt's last token, where its answer is read."""
        return self.attention_mask.sum(1) - 1

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        return f"PromptContrast({len(self)} pairs, {self.source.shape[1]} positions: {' '.join(self.positions)})"


def prompt_contrast(
    model: HookedModel,
    clean: Prompt | Sequence[Prompt],
    corrupted: Prompt | Sequence[Prompt],
    answers: Answer | Sequence[Answer],
    wrong_answers: Answer | Sequence[Answer],
    *,
    prepend_bos: bool | None = None,
    same_places: bool = True,
) -> PromptContrast:
    """Pairs of prompts that differ in what matters, for `patch_contrast` and every other instrument.

    Args:
        model: a hooked model; it needs a tokenizer only where strings are given.
        clean: one prompt or several, as strings or token ids; patched into the corrupted ones.
        corrupted: as many prompts, each with as many tokens as its clean one.
        answers: the right next token of each clean prompt, as a string of one token or an id; one for all, or one each.
        wrong_answers: the next token that the corrupted prompt leads to, likewise.
        prepend_bos: whether strings get a beginning-of-sequence token; None is the model's own habit.
        same_places: whether every pair must differ at the same positions, counted from the start or from the end.

    Raises:
        RequestError: no tokenizer; an answer of several tokens; unequal numbers of prompts; a pair of different
            lengths, or (with `same_places`) pairs that differ in different places, with a table of the tokens;
            prompts of different lengths on a model that attends to later positions.

    Example:
        >>> pair = ("The capital of France is", "The capital of Italy is")
        >>> contrast = prompt_contrast(model, *pair, " Paris", " Rome")  # doctest: +SKIP
        >>> grid = patch_contrast(model, contrast, component="resid_pre").render()  # doctest: +SKIP
    """
    device = next(model.parameters()).device  # type: ignore[attr-defined]
    one, other = _listed(clean), _listed(corrupted)
    if len(one) != len(other) or not one:
        raise RequestError(f"{len(one)} clean prompts and {len(other)} corrupted ones: give pairs, at least one")
    rows = [[_tokens(model, prompt, prepend_bos) for prompt in prompts] for prompts in (one, other)]
    for number, pair in enumerate(zip(*rows, strict=True)):
        if len(pair[0]) != len(pair[1]):
            raise RequestError(
                f"pair {number} has {len(pair[0])} and {len(pair[1])} tokens, so that positions do not correspond: "
                f"choose words of equally many tokens\n{token_table(model, *pair)}"
            )
    lengths = [len(row) for row in rows[0]]
    if len(set(lengths)) > 1 and not _causal(model):
        raise RequestError("the prompts have different lengths and the model attends to later positions, so that it "
                           "would see the padding: give prompts of one length")  # fmt: skip
    differ = tuple(tuple(i for i, (a, b) in enumerate(zip(*pair)) if a != b) for pair in zip(*rows, strict=True))
    _require_places(model, rows, differ, same_places)
    source, destination = (_padded(model, tokens, max(lengths)).to(device) for tokens in rows)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).to(device)
    right = _answers(model, answers, len(one)).to(device)
    wrong = _answers(model, wrong_answers, len(one)).to(device)
    read = tuple(sorted({length - 1 for length in lengths}))
    with untouched(model):
        logits = model(source)[:, list(read)]
    return PromptContrast(
        source=source,
        destination=destination,
        attention_mask=mask,
        read=read,
        metrics=answer_metrics(logits, right, wrong, torch.tensor([read.index(n - 1) for n in lengths]).to(device)),
        positions=_position_names(model, rows),
        differ=differ,
        answers=(right, wrong),
    )


def answer_metrics(
    clean_logits: Float[Tensor, "example read vocabulary"],
    answers: Int[Tensor, " example"],
    wrong_answers: Int[Tensor, " example"],
    columns: Int[Tensor, " example"],
) -> dict[str, LogitMetric]:
    """The metrics of a `PromptContrast`, each from logits at the read positions to one number per example.

    Args:
        clean_logits: the clean run's logits at the read positions, to which "negative KL" compares.
        answers: right answers' token ids.
        wrong_answers: wrong answers' token ids.
        columns: which read position is each example's own.
    """
    rows = torch.arange(len(answers), device=answers.device)

    def own(logits: Tensor) -> Tensor:
        return logits[rows, columns].to(torch.promote_types(logits.dtype, torch.float32))

    expected = own(clean_logits).log_softmax(-1)

    def logit_difference(logits: Tensor) -> Tensor:
        return own(logits)[rows, answers] - own(logits)[rows, wrong_answers]

    def log_probability(logits: Tensor) -> Tensor:
        return own(logits).log_softmax(-1)[rows, answers]

    def probability(logits: Tensor) -> Tensor:
        return log_probability(logits).exp()

    def negative_rank(logits: Tensor) -> Tensor:
        mine = own(logits)
        return 0.0 - (mine > mine[rows, answers][:, None]).sum(-1).to(mine.dtype)

    def negative_kl(logits: Tensor) -> Tensor:
        return -(expected.exp() * (expected - own(logits).log_softmax(-1))).sum(-1)

    functions = (logit_difference, log_probability, probability, negative_rank, negative_kl)
    names = ("logit difference", "log probability", "probability", "negative rank", "negative KL")
    return dict(zip(names, functions, strict=True))


def token_table(model: HookedModel, clean: Sequence[int], corrupted: Sequence[int]) -> str:
    """The tokens of two prompts side by side, a line per position, `<>` where they differ.

    Args:
        model: for the tokens' texts; ids are shown where it has no tokenizer.
        clean: token ids.
        corrupted: token ids, of any length.
    """
    one, other = ([_text(model, token) for token in tokens] for tokens in (clean, corrupted))
    width = max(map(len, [*one, "clean"]))
    lines = [f"{'':>4}  {'clean':<{width}}      corrupted"]
    for position in range(max(len(one), len(other))):
        left, right = (texts[position] if position < len(texts) else "-" for texts in (one, other))
        lines.append(f"{position:>4}  {left:<{width}}  {'  ' if left == right else '<>'}  {right}")
    return "\n".join(lines)


def _listed(prompts: Any) -> list[Any]:
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Tensor):
        return [prompts] if prompts.ndim == 1 else list(prompts)
    single = len(prompts) > 0 and all(isinstance(each, int) for each in prompts)
    return [prompts] if single else list(prompts)


def _tokens(model: HookedModel, prompt: Any, prepend_bos: bool | None) -> list[int]:
    if not isinstance(prompt, str):
        tokens = [int(token) for token in prompt]
    else:
        _require_tokenizer(model)
        options = {} if prepend_bos is None else {"prepend_bos": prepend_bos}
        tokens = model.to_tokens(prompt, truncate=False, **options)[0].tolist()  # type: ignore[attr-defined]
    if not tokens:
        raise RequestError("a prompt without tokens: give at least one")
    size, longest = model.cfg.d_vocab, model.cfg.n_ctx
    outside = [token for token in tokens if not 0 <= token < size]
    if outside:
        raise RequestError(f"token {outside[0]} does not exist: the model has tokens 0 to {size - 1}")
    if len(tokens) > longest:
        raise RequestError(f"a prompt has {len(tokens)} tokens, the model takes at most {longest}: shorten it")
    return tokens


def _require_tokenizer(model: HookedModel) -> None:
    if getattr(model, "tokenizer", None) is None:
        raise RequestError("the model has no tokenizer: give token ids instead of strings, or set model.tokenizer")


def _answers(model: HookedModel, given: Any, count: int) -> Int[Tensor, " example"]:
    if isinstance(given, str | int):
        given = [given] * count
    answers = [_answer(model, each) for each in given]
    if len(answers) != count:
        raise RequestError(f"{len(answers)} answers for {count} prompts: give one for all, or one for each")
    return torch.tensor(answers)


def _answer(model: HookedModel, answer: Any) -> int:
    if not isinstance(answer, str):
        (token,) = _tokens(model, [int(answer)], None)
        return token
    _require_tokenizer(model)

    def pieces(text: str) -> list[int]:
        return model.to_tokens(text, prepend_bos=False)[0].tolist()  # type: ignore[attr-defined]

    tokens = pieces(answer)
    if len(tokens) == 1:
        return tokens[0]
    spaced = f" {answer}"
    hint = f"; ' {answer}' with a leading space is one token" if len(pieces(spaced)) == 1 else ""
    shown = ", ".join(repr(_text(model, token)) for token in tokens)
    raise RequestError(
        f"the answer {answer!r} is {len(tokens)} tokens ({shown}), and metrics read one: choose an answer of one "
        f"token, or give the id of its first{hint}"
    )


def _causal(model: HookedModel) -> bool:
    return getattr(model.cfg, "attention_dir", "causal") == "causal"


def _require_places(model: HookedModel, rows: list[list[list[int]]], differ: Any, wanted: bool) -> None:
    for number, places in enumerate(differ):
        if not places:
            raise RequestError(f"the two prompts of pair {number} are equal: a contrast needs a difference")
    from_end = [tuple(i - len(tokens) for i in places) for tokens, places in zip(rows[0], differ, strict=True)]
    if not wanted or len(set(differ)) == 1 or len(set(from_end)) == 1:
        return
    odd = next(number for number, places in enumerate(differ) if places != differ[0])
    raise RequestError(
        f"pair 0 differs at the positions {list(differ[0])} and pair {odd} at {list(differ[odd])}, so that an effect "
        f"at one position mixes several words: align the prompts, or pass same_places=False\n"
        f"{token_table(model, rows[0][0], rows[1][0])}\n{token_table(model, rows[0][odd], rows[1][odd])}"
    )


def _padded(model: HookedModel, rows: list[list[int]], length: int) -> Int[Tensor, "example position"]:
    pad = getattr(getattr(model, "tokenizer", None), "pad_token_id", None) or 0
    return torch.tensor([[*row, *[pad] * (length - len(row))] for row in rows])


def _text(model: HookedModel, token: int) -> str:
    if getattr(model, "tokenizer", None) is None:
        return str(token)
    return model.tokenizer.decode([token])  # type: ignore[attr-defined]


def _position_names(model: HookedModel, rows: list[list[list[int]]]) -> tuple[str, ...]:
    longest = max(range(len(rows[0])), key=lambda number: len(rows[0][number]))
    names = []
    for position, tokens in enumerate(zip(rows[0][longest], rows[1][longest], strict=True)):
        texts = list(dict.fromkeys(_text(model, token).strip() or "·" for token in tokens))
        clean = {row[position] for row in rows[0] if position < len(row)}
        shared = "/".join(texts) if len(clean) == 1 or len(texts) > 1 else f"{texts[0]} …"
        names.append(f"{position} {shared}")
    return tuple(names)
