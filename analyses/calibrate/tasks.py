"""The four tasks at the ladder's settings: small enough that every edge's effect on every input is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from headlab.analyses.calibrate.rung import ReadMetric, Rung, interventions, known
from headlab.interp.circuits import Node
from headlab.models.constructed import Constructed
from headlab.models.esp.backup import backup as esp_backup
from headlab.models.esp.carrier import carrier as esp_carrier
from headlab.models.esp.constructed import construct as esp_construct
from headlab.models.esp.graphs import read_graph
from headlab.models.esp.task import EspTask
from headlab.models.retrieval.backup import backup as retrieval_backup
from headlab.models.retrieval.backup import padded as padded_tokens
from headlab.models.retrieval.carrier import carrier as retrieval_carrier
from headlab.models.retrieval.constructed import head_per_coordinate
from headlab.models.retrieval.family import Family, sum_of_maxima
from headlab.models.retrieval.task import RetrievalTask
from headlab.models.tree.backup import backup as tree_backup
from headlab.models.tree.carrier import carrier as tree_carrier
from headlab.models.tree.constructed import construct as tree_construct
from headlab.models.tree.source import TreeSource
from headlab.models.tree.task import TreeTask
from headlab.models.xor.backup import backup as xor_backup
from headlab.models.xor.backup import padded as padded_bits
from headlab.models.xor.carrier import carrier as xor_carrier
from headlab.models.xor.constructed import limit
from headlab.models.xor.task import XorTask

ALL = ("zero", "mean", "resample")
RELATIVE = ("mean", "resample")  # kinds that depend on data: where `zero` has no theorem in the plain construction
BACKED_UP = (Node("head", 0, 0), Node("head", 1, 0))

Esp = EspTask(read_graph("complete:6"))
Xor = XorTask(6, (2, 4))
# Few labels meet by chance: with 10, another tree's label is right often enough to make false edges act.
Tree = TreeTask(TreeSource(depths=(2,), nodes=4, labels=32, split="none"), "forward")
_sums = sum_of_maxima(3, 8)
Retrieval = RetrievalTask(Family(8, "projection", _sums.vectors, _sums.outer, ((0, 1, 2), (2, 3, 4), (5, 6, 7))))
TREES, FEW_TREES, SEQUENCES = 48, 24, 64


@dataclass(frozen=True)
class Setting:
    """One task's constructions and data.

    plain: scale -> the construction with its softmax `scale` times as sharp. backup, carrier: the constructions.
    kinds: under which the plain construction's circuit is known; backup_kinds, carrier_kinds of the others. acting:
    under which the backup acts. padded: the inputs of these two constructions, read one position later. smaller:
    the setting with fewer examples that the backup is tried on, where its contexts cost too much.
    """

    name: str
    inputs: Tensor
    metric: ReadMetric
    right: ReadMetric
    read: tuple[int, ...]
    plain: Callable[[float], Constructed]
    backup: Callable[[], Constructed]
    carrier: Callable[[], Constructed]
    kinds: tuple[str, ...]
    backup_kinds: tuple[str, ...] = ALL
    carrier_kinds: tuple[str, ...] = ALL
    acting: tuple[str, ...] = ("zero",)
    saturated: float = 3.0
    padded: Callable[[Tensor], Tensor] | None = None
    smaller: Callable[[], Setting] | None = None

    def rung(self, name: str = "as built", *, scale: float = 1.0) -> Rung:
        """The plain construction."""
        return self._rung(name, self.plain(scale), self.kinds)

    def backup_rung(self) -> Rung:
        """The construction with a backup."""
        if self.smaller is not None:
            return self.smaller().backup_rung()
        rung = self._rung("backup head", self.backup(), self.backup_kinds, self.padded)
        return replace(rung, contexts=dict.fromkeys(self.acting, BACKED_UP))

    def carrier_rung(self) -> Rung:
        """The construction with a constant carrier."""
        return self._rung("constant carrier", self.carrier(), self.carrier_kinds, self.padded)

    def _rung(
        self,
        name: str,
        built: Constructed,
        kinds: tuple[str, ...],
        padded: Callable[[Tensor], Tensor] | None = None,
    ) -> Rung:
        inputs = self.inputs if padded is None else padded(self.inputs)
        read = self.read if padded is None else tuple(position + 1 for position in self.read)
        truth = known(built, kinds)
        return Rung(
            self.name,
            name,
            built.model,
            built.architecture,
            inputs,
            self.metric,
            read,
            interventions(inputs, kinds),
            truth,
            self.right,
        )


def esp() -> Setting:
    """Endpoint selection on the complete digraph of 6 vertices, all 60 samples; metric: the logit difference."""
    examples = Esp.examples()
    target, (u, v) = examples.targets[:, :1], Esp.endpoints(examples)
    other = (u + v)[:, None] - target

    def logit_difference(logits: Tensor) -> Tensor:
        last = logits[..., -1, :]
        return (last.gather(-1, target) - last.gather(-1, other))[..., 0]

    def right(logits: Tensor) -> Tensor:
        last = logits[..., -1, :]
        return ((last >= last.gather(-1, target)).sum(-1) == 1).to(logits)

    return Setting(
        "esp",
        examples.inputs,
        logit_difference,
        right,
        (3,),
        lambda scale: esp_construct(Esp, "two-head", sink=8.0 * scale, dtype="float64"),
        partial(esp_backup, Esp, sink=8.0, dtype="float64"),
        partial(esp_carrier, Esp, sink=8.0, dtype="float64"),
        ALL,
        backup_kinds=("zero", "mean"),
        acting=("zero", "mean"),
    )


def tree(count: int = TREES) -> Setting:
    """Path finding, forward, in 48 trees of 4 nodes with the goal at depth 2, 32 labels; metric: the answer's logit
    less the mean of the others, over all positions that are read."""
    examples = Tree.examples(count=count)
    targets = examples.targets[..., None]

    def answer_logit(logits: Tensor) -> Tensor:
        own = logits.gather(-1, targets)[..., 0]
        return (own - (logits.sum(-1) - own) / (logits.shape[-1] - 1)).mean(-1)

    def right(logits: Tensor) -> Tensor:
        return ((logits >= logits.gather(-1, targets)).sum(-1) == 1).all(-1).to(logits)

    return Setting(
        "tree",
        examples.inputs,
        answer_logit,
        right,
        tuple(examples.read[0].tolist()),
        lambda scale: tree_construct(Tree, "forward", beta=20.0 * scale, dtype="float64"),
        partial(tree_backup, Tree, dtype="float64"),
        partial(tree_carrier, Tree, dtype="float64"),
        RELATIVE,
        acting=ALL,
        smaller=None if count <= FEW_TREES else partial(tree, FEW_TREES),
    )


def xor() -> Setting:
    """Parity of bits 2 and 4 of 6, all 64 inputs; metric: the output times the label."""
    examples = Xor.examples()
    inputs, label = examples.inputs.double(), examples.targets[:, 0].double()

    def agreement(logits: Tensor) -> Tensor:
        return logits[..., -1, 0] * label

    def right(logits: Tensor) -> Tensor:
        return (agreement(logits) > 0).to(logits)

    plain = limit(Xor, dtype="float64")
    return Setting(
        "xor",
        inputs,
        agreement,
        right,
        (Xor.cls,),
        lambda scale: limit(Xor, scale=float(plain.notes["scale"]) * scale, dtype="float64"),
        partial(xor_backup, Xor, dtype="float64"),
        partial(xor_carrier, Xor, dtype="float64"),
        ALL,
        padded=padded_bits,
    )


def retrieval() -> Setting:
    """The sum of three maxima over 8 tokens, 64 sequences; metric: the output. (At the minimum of an error its gradient
    is 0, which no gradient method could use.)"""
    inputs = Retrieval.draw(SEQUENCES, 0).double()
    wanted = Retrieval.family.target(inputs)

    def output(logits: Tensor) -> Tensor:
        return logits[..., -1, 0] * 1.0

    def right(logits: Tensor) -> Tensor:
        return ((output(logits) - wanted).abs() < 0.25 * wanted.std()).to(logits)

    return Setting(
        "retrieval",
        inputs,
        output,
        right,
        (Retrieval.cls,),
        lambda scale: head_per_coordinate(Retrieval, beta=200.0 * scale, dtype="float64"),
        partial(retrieval_backup, Retrieval, dtype="float64"),
        partial(retrieval_carrier, Retrieval, dtype="float64"),
        RELATIVE,
        padded=padded_tokens,
    )


SETTINGS: dict[str, Callable[[], Setting]] = {"esp": esp, "tree": tree, "xor": xor, "retrieval": retrieval}
