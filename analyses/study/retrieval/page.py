"""The retrieval report: which figure stands where, and the sentences around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analyses.claims import Measurement, count_verdicts
from analyses.study.claims_section import claims_figure, heading_of
from analyses.study.opening import ByHeads, Opening
from analyses.study.retrieval.bars import fall
from analyses.study.retrieval.findings import Findings
from interp.render import Figure, Section, bold, report_page
from models.retrieval.bounds import exponent, shortest_length


def opening(found: Findings) -> Opening:
    """The headline and its summary."""
    dimensions = found.tables("linear")
    lengths = sorted({t for d in dimensions for _, t in found.cells("linear", d)})
    falls = [
        fall(found.error("linear", d, t, d - 1), found.error("linear", d, t, d)) for d in dimensions for t in lengths
    ]
    shown = {h: made.errors.tolist() for (h, t), made in sorted(found.cells("linear", 4).items()) if t == lengths[0]}
    forced = min(p.forced for p in found.pairs if p.heads < p.coordinates)
    said = f"{dimensions[0]} to {dimensions[-1]}"
    return Opening(
        ["As many heads as coordinates:", f"the error falls {round_down(min(falls))} times at once."],
        f"The target is a sum of {said} maxima over a sequence. One head fewer than maxima leaves an error that no "
        "training removes, one head more changes little, and the number of maxima can be read off the errors alone. "
        f"A trained model with too few heads has two sequences that it cannot tell apart, which costs it {forced:.2f} "
        "standard deviations or more.",
        ByHeads(f"error with four coordinates, T = {lengths[0]} (NMSE)", shown, scale="log", chance=1.0),
    )


def round_down(value: float) -> str:
    """A factor to one or two digits, never more than it is."""
    size = 10 ** max(0, int(np.floor(np.log10(value))))
    return f"{int(value // size * size):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def build_page(
    found: Findings,
    figures: Mapping[str, Figure],
    claims: Sequence[Measurement],
    skipped: Sequence[str],
    further: Sequence[Section],
    footer: str,
) -> str:
    """The whole page; `further` are sections on data that are not synthetic."""
    counts, start = count_verdicts(claims), opening(found)
    sections = [section for section in _sections(found, figures) if section.figures]
    last = Section(
        "Claims",
        heading_of({str(v): n for v, n in counts.items()}),
        "",
        [claims_figure(claims, skipped)],
        anchor="claims",
    )
    return report_page(
        title="headlab: retrieval",
        kicker=[bold("headlab"), " study 2, generalised retrieval"],
        headline=start.headline,
        summary=start.summary,
        verdicts_label=f"{sum(counts.values())} claims tested:",
        verdicts=dict(counts),
        verdicts_link="#claims",
        hero=figures["fall"],
        sections=[*sections, *further, last],
        footer=footer,
    )


def _sections(found: Findings, figures: Mapping[str, Figure]) -> list[Section]:
    def shown(*names: str) -> list[Figure]:
        return [figures[name] for name in names if name in figures]

    right = sum(answer.needed == d for (_, d), answer in found.readings.items())
    vacuous = exponent(128, 3, 4, 8)
    return [
        Section(
            "What is built",
            ["One head per coordinate", "is enough, and its error is known"],
            "Head i attends by f_i alone, so that it brings the smallest f_i to the read-out. The error is at most "
            "W₀((|S| − 1) / e) / β per coordinate, and one head as wide as the sequence does it exactly.",
            shown("bound"),
        ),
        Section(
            "The encoder",
            ["A nonlinear encoder gives", "one head more, not the fall"],
            "With a hidden layer in the encoder one head carries part of several coordinates, as in the paper. What "
            "three heads leave is then less, and depends on the a_i; the fall stays where it is.",
            shown("encoders"),
        ),
        Section(
            "Reading D off",
            ["The errors name the number", f"of coordinates in {right} of {len(found.readings)} tables"],
            "Which number of heads is needed can be asked of any table of errors: ‘headlab heads-needed errors.csv’.",
            shown("read"),
        ),
        Section(
            "The bottleneck",
            ["Too few heads cannot tell", "two sequences apart"],
            "The theorem bounds parameters from below by (1/ε)^k. Its exponent is positive only for long sequences "
            f"(T > {vacuous.above} for three of four heads of width 8), and that D = 4 is unique needs T ≥ "
            f"{shortest_length(4, 4)}. Its consequence can be seen in every model.",
            shown("witness"),
        ),
        Section(
            "Who retrieves what",
            ["With a head for each coordinate", "every head takes one"],
            "Below that number heads share coordinates, and the score is near that of an untrained model.",
            shown("division", "usage", "fewer"),
        ),
        Section(
            "Width",
            ["At the same total width", "the fall is in the same place"],
            "Eight numbers a head make a model with more heads a wider one. With 32 numbers in all, width is the same.",
            shown("fixed"),
        ),
        Section(
            "Two layers",
            ["Two layers of two heads", "do what four heads do"],
            "The paper conjectures that layers times heads is what counts. Two layers attend from every token, so the "
            "sequences here are shorter than the paper's.",
            shown("layers"),
        ),
        Section(
            "Stuck seeds",
            ["Some seeds put two heads", "on one coordinate and stay there"],
            "They are counted, not left out: best-of-seeds figures hide them.",
            shown("stuck"),
        ),
    ]
