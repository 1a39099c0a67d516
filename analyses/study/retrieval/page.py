"""The retrieval report: which figure stands where, and the sentences around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headlab.analyses.claims import Measurement, count_verdicts
from headlab.analyses.study.claims_section import claims_figure, heading_of
from headlab.analyses.study.opening import ByHeads, Opening
from headlab.analyses.study.retrieval.bars import PAPER, fall
from headlab.analyses.study.retrieval.findings import Findings
from headlab.analyses.study.retrieval.plans import WIDTH
from headlab.analyses.study.retrieval.verdicts import short
from headlab.interp.render import Figure, Section, bold, report_page
from headlab.models.retrieval.bounds import exponent, shortest_length


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
        f"The target is a sum of {said} maxima over a sequence. One head fewer than maxima leaves an error that none "
        "of our trainings removes, one head more changes little, and the number of maxima can be read off the errors "
        "alone. A trained model with too few heads has two sequences that it cannot tell apart, which costs it "
        f"{forced:.2f} standard deviations or more.",
        ByHeads(f"error with four coordinates, T = {lengths[0]} (NMSE)", shown, scale="log", chance=1.0),
    )


def round_down(value: float) -> str:
    """A factor to two digits, never more than it is."""
    size = 10 ** max(0, int(np.floor(np.log10(max(value, 1.0)))) - 1)
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
    vacuous = exponent(128, 3, 4, WIDTH)
    few = min(p.forced for p in found.pairs if p.heads < p.coordinates)
    enough = max(p.forced for p in found.pairs if p.heads >= p.coordinates)
    kind = "linear" if found.quick else "mlp"
    three, four = (
        [float(np.median(found.scores(name))) for name in found.looks if name.startswith(kind) and name.endswith(end)]
        for end in ("-h3", "-h4")
    )
    every = [look.specialisation for name in found.looks for look in found.looks[name] if name.endswith("-h4")]
    shared = sum(value < 0.5 for value in every)
    sections = [
        Section(
            "What is built",
            ["One head per coordinate", "is enough, and its error is known"],
            "Head i attends by fᵢ alone, so that it brings the smallest fᵢ to the read-out, with an error of at most "
            "W₀((|S| − 1) / e) / β. One head as wide as the whole sequence carries it all, and a ReLU network then "
            f"computes the target to {short(max(row.max_error for row in found.memory), 0)}.",
            shown("bound"),
        ),
        Section(
            "Reading D off",
            ["The errors alone name the number", f"of coordinates in {right} of {len(found.readings)} tables"],
            "Which number of heads is needed can be asked of any table of errors over heads and lengths: headlab "
            "heads-needed errors.csv.",
            shown("read"),
        ),
        Section(
            "The bottleneck",
            ["With too few heads, two sequences", f"cost {few:.2f} sd or more; else {enough:.2f} or less"],
            "The theorem bounds parameters from below by (1/ε) to the power k. Its k is positive only for long "
            f"sequences (T > {vacuous.above} for three heads of width 8 and four coordinates), and that D = 4 is "
            f"unique needs T ≥ {shortest_length(4, 4)}. What follows from it is shown on each model: what it cannot "
            "tell apart.",
            shown("witness"),
        ),
        Section(
            "Who retrieves what",
            [
                f"Specialisation with three heads: {max(three):.2f},",
                f"with four heads: {min(four):.2f} or more",
            ],
            "With a head for each coordinate every head takes one. With one fewer, heads share coordinates, and so "
            f"they do in {shared} of {len(every)} models with four heads, whose error then is that of three.",
            shown("division", "usage", "fewer"),
        ),
    ]
    return sections if found.quick else [*sections, *_nonlinear(found, figures)]


def _nonlinear(found: Findings, figures: Mapping[str, Figure]) -> list[Section]:
    """What only a full study has."""
    ones = {t: found.error("mlp", 4, t, 1) for t in (8, 128)}
    linear = {t: found.error("linear", 4, t, 1) for t in (8, 128)}
    fixed = min(fall(found.error("fixed", 4, t, 3), found.error("mlp", 4, t, 4)) for t in (8, 128))
    two = {h: float(made.errors.min()) for (h, _), made in found.cells("layers2", 4).items()}
    (made,) = found.cells("stuck", 4).values()
    return [
        Section(
            "The encoder",
            ["A nonlinear encoder helps one head,", "and leaves the fall where it is"],
            f"With a linear encoder one head leaves {linear[8]:.2f} (T = 8) and {linear[128]:.2f} (T = 128) of the "
            f"variance, with a hidden layer {ones[8]:.3f} and {ones[128]:.3f}; the paper has .070 and .145. Three "
            f"heads leave {short(found.error('mlp', 4, 128, 3))} at T = 128, in the paper {short(PAPER['h3_T128'])}, "
            "for reasons not known: it gives neither its aᵢ nor its encoder.",
            [figures["encoders"]],
        ),
        Section(
            "Width",
            ["At the same total width", f"the error falls {round_down(fixed)} times at four heads"],
            "Eight numbers a head make a model with more heads a wider one. Here all have 32 in all.",
            [figures["fixed"]],
        ),
        Section(
            "Two layers",
            [f"Two layers leave {short(two[1])} with one head", f"each, {short(two[2])} with two"],
            "The paper conjectures that layers times heads is what counts. Two layers attend from every token, so the "
            "sequences here are shorter than the paper's.",
            [figures["layers"]],
        ),
        Section(
            "Stuck seeds",
            [f"{made.stuck.successes} of {made.stuck.trials} seeds with four heads", "stay at the error of three"],
            "Two of their heads have settled on one coordinate. They are counted: a best-of-seeds figure hides them.",
            [figures["stuck"]],
        ),
    ]
