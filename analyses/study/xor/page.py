"""The sparse parity report: which figure stands where, and the sentences around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headlab.analyses.claims import Measurement, count_verdicts
from headlab.analyses.study.opening import Opening
from headlab.analyses.study.xor.measure import Results
from headlab.interp.render import Details, Figure, Section, bold, coloured, number, percent, report_page


@dataclass(frozen=True)
class Pictures:
    """The report's figures by what they show; None for what this run has no figure of."""

    one_step: Figure
    step_sizes: Figure
    attention: Figure
    which_bit: Figure
    usage: Figure
    small_steps: Figure
    maps_once: Figure
    maps_many: Figure | None
    starts: Figure
    sample_success: Figure | None
    samples_needed: Figure | None
    parameters: Figure
    more_bits: Figure


def opening(results: Results) -> Opening:
    """The headline and its summary. One head a target bit: no other number of heads is asked about."""
    last = max(results.bars, key=lambda cell: cell.bits)
    return Opening(
        [
            "One gradient step finds two bits",
            f"among {number(last.bits)}, in {percent(last.one_to_one.value, 0)} of seeds.",
        ],
        "The label is the product of two unknown bits. Two attention heads with a trainable query each are trained by "
        "one step on the exact population loss, which takes no samples and O(d m) time.",
    )


def build_page(
    results: Results,
    pictures: Pictures,
    measurements: Sequence[Measurement],
    table: Figure,
    heading: Sequence[str],
    footer: str,
) -> str:
    """The page; `table` is the claims table and `heading` its heading."""
    counts = count_verdicts(measurements)
    together = {start: float(np.mean([c.together.value for c in cells])) for start, cells in results.starts.items()}
    sections = [
        Section(
            "What the step does",
            [["Head ", coloured("A", "A"), " takes one target,"], ["head ", coloured("B", "B"), " the other"]],
            "Before the step both heads look everywhere alike. The gradient at a target is of order 1/d and at every "
            "other position of order 1/d², so that one large step leaves nothing but the targets.",
            [pictures.attention],
            details=[Details("The same in small steps", [], pictures.small_steps)],
        ),
        Section(
            "Which head carries which bit",
            ["Patch one head's output", "and one bit comes back"],
            "Source and destination runs differ in one bit. What a head restores is what it carries, and exact edge "
            "patching finds the same on the limit solution, whose circuit is known: "
            f"AUROC {results.looks[0].recovery.auroc:.2f}.",
            [pictures.which_bit, pictures.usage],
        ),
        Section(
            "Softmax and its rivals",
            ["Linear and erf attention", "find the targets and stay blurred"],
            "The same step sizes for every map, the best of them for each. An odd map keeps the second head the exact "
            "opposite of the first; from other starts the heads part, and still spread their weight over all bits.",
            [pictures.maps_once, *([pictures.maps_many] if pictures.maps_many else [])],
        ),
        Section(
            "What parts the heads",
            ["Any two different queries part,", "opposites only more often"],
            "Head A prefers target i exactly where head B prefers target j, whatever the start. Ties put both on one "
            f"target: {percent(together['antisymmetric'], 1)} of antisymmetric starts, "
            f"{percent(together['independent'], 1)} of independent ones.",
            [pictures.starts],
            details=[Details("How large a step", [], pictures.step_sizes)],
        ),
    ]
    if pictures.sample_success is not None and pictures.samples_needed is not None and results.samples is not None:
        once, many = results.samples.once_exponent, results.samples.many_exponent
        sections.append(
            Section(
                "Finite samples",
                [f"One step needs d to the {once.value:.1f} samples,", f"many steps d to the {many.value:.1f}"],
                "The gradient's noise at all d positions leaks into a target's score through position vectors that are "
                f"not quite orthogonal. To see the targets at all takes about d²/m samples (measured: m^"
                f"{results.samples.support_by_width.value:.1f}), to tell which head takes which about d².",
                [pictures.sample_success, pictures.samples_needed],
            )
        )
    sections += [
        Section(
            "Parameters",
            ["A network pays for every bit,", "a query for their logarithm"],
            "Four hidden neurons learn sparse XOR as well, with 4d + 9 parameters. What separates the two is how the "
            "number of trainable parameters grows, not whether they succeed.",
            [pictures.parameters],
        ),
        Section(
            "More than two bits",
            ["Beyond two bits one step fails,", "normalised steps do not"],
            "For k > 2 nothing in the first gradient tells the heads apart. Steps of one fixed length let the heads "
            "that lead win their targets and push the others to what is left.",
            [pictures.more_bits],
        ),
        Section(
            "Claims",
            heading,
            "Each line compares a statement of the paper, or a finding of ours, with what this machine measured. A "
            "verdict is a rule applied to the number, not an opinion.",
            [table],
            anchor="claims",
        ),
    ]
    start = opening(results)
    return report_page(
        title="headlab: sparse XOR",
        kicker=[bold("headlab"), " study 3, sparse XOR and sparse parity"],
        headline=start.headline,
        summary=start.summary,
        hero=pictures.one_step,
        verdicts_label=f"{sum(counts.values())} claims tested:",
        verdicts={str(verdict): count for verdict, count in counts.items()},
        verdicts_link="#claims",
        sections=sections,
        footer=footer,
    )
