"""How right a model is on held-out trees: one forward pass, since its own answers stay right as long as they are
right.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headlab.interp.errors import RequestError
from headlab.interp.model import untouched
from headlab.models.hooked import HookedTransformer
from headlab.models.task import Examples
from headlab.models.tree.metrics import margins
from headlab.models.tree.parallel import is_plain_attention, logits_at
from headlab.models.tree.task import TreeTask


@dataclass(frozen=True)
class TreeEvaluation:
    """Right answers on different held-out trees.

    paths: trees. errors: trees with a wrong prediction (a tie is wrong). path_accuracy: the share without. loss:
    cross-entropy over all predictions, in nats. stages: the share of right predictions in each stage.
    min_margin: the smallest of target minus largest other logit.
    """

    paths: int
    errors: int
    path_accuracy: float
    token_accuracy: float
    loss: float
    min_margin: float
    stages: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """The keys of `headlab evaluate`."""
        return asdict(self)


@dataclass(frozen=True)
class Answers:
    """What a model says at every prediction of the right sequence.

    right: whether the target's logit is strictly the largest. margin: target minus largest other logit. loss: in nats.
    All three are True, inf and 0 past a sequence's last prediction.
    """

    right: Bool[Tensor, "example read"]
    margin: Float[Tensor, "example read"]
    loss: Float[Tensor, "example read"]


def answer(model: HookedTransformer, task: TreeTask, examples: Examples, *, batch: int = 128) -> Answers:
    """Teacher-forced answers, `batch` examples at a time; only the positions that are read are computed where possible.

    Raises ValueError where the trees are longer than the model's context, or its vocabulary is another one.
    """
    task.require_context(model.cfg.n_ctx)
    if model.cfg.d_vocab_out != len(task.vocabulary):
        raise RequestError(
            f"the model predicts {model.cfg.d_vocab_out} labels, but the task has {len(task.vocabulary)}: "
            "give the model its own task"
        )
    weights = {name: value.detach()[None] for name, value in model.named_parameters()}
    device, fast = weights["unembed.W_U"].device, is_plain_attention(model)
    margin, loss = [], []
    with untouched(model):
        for rows in torch.arange(len(examples)).split(batch):
            part = examples[rows].to(device)
            inputs = part.inputs[:, : int(part.read.max()) + 1]
            if fast:
                logits = logits_at(weights, vars(model.cfg), inputs[None], part.read[None])[0]
            else:
                index = part.read.clamp(min=0)[..., None].expand(-1, -1, model.cfg.d_vocab_out)
                logits = model(inputs).gather(1, index)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            margin.append(margins(logits, part.targets).masked_fill(part.read < 0, torch.inf).cpu())
            chosen = logits.log_softmax(-1).gather(-1, part.targets[..., None])[..., 0]
            loss.append(-chosen.masked_fill(part.read < 0, 0.0).cpu())
    found = torch.cat(margin)
    return Answers(found > 0, found, torch.cat(loss))


def evaluate(
    model: HookedTransformer,
    task: TreeTask,
    *,
    seed: int = 0,
    count: int = 2000,
    examples: Examples | None = None,
    batch: int = 128,
) -> TreeEvaluation:
    """Teacher-forced answers of `model` on `count` held-out trees drawn with `seed`, or on `examples`.

    A greedy generation is right exactly where all of these are: up to the first wrong token both see the same sequence.
    Raises ValueError as `answer` does.
    """
    examples = task.examples(seed=seed, count=count) if examples is None else examples
    answers, used = answer(model, task, examples, batch=batch), examples.read >= 0
    path = answers.right.all(1)
    stages = {name: float(answers.right[where].double().mean()) for name, where in task.stages(examples.read).items()}
    return TreeEvaluation(
        paths=len(examples),
        errors=int((~path).sum()),
        path_accuracy=float(path.double().mean()),
        token_accuracy=float(answers.right[used].double().mean()),
        loss=float(answers.loss[used].double().mean()),
        min_margin=float(answers.margin.min()),
        stages=stages,
    )
