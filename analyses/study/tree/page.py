"""The path-finding report: which figure stands where, and the sentences around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headlab.analyses.claims import Measurement, count_verdicts
from headlab.analyses.study.claims_section import claims_figure, heading_of
from headlab.analyses.study.opening import ByHeads, Opening
from headlab.analyses.study.tree.findings import Findings
from headlab.analyses.study.tree.records import Trained
from headlab.analyses.study.tree.verdicts import percent
from headlab.interp.render import Figure, Section, bold, coloured, number, report_page


def opening(found: Findings) -> Opening:
    """The headline and its summary."""
    two, one = found.jobs("forward-h2"), found.jobs("forward-h1")
    lowest = min(float(job.accuracy.min()) for job in two.values())
    paths = sum(each.paths for each in found.constructed)
    reach = f"all to depth {max(two)}." if lowest == 1 else f"{percent(lowest)} or more to depth {max(two)}."
    shown = {heads: job.accuracy * 100 for heads, job in _at_depth(found, 5).items()}
    return Opening(
        [[coloured("Two", "A"), " ", coloured("heads", "B"), " find the paths,"], reach],
        f"The constructed weights are right on all of {number(paths)} unseen paths. Of the trained models, those with "
        "two heads divide the work: one head looks up parents, the other retraces the chain of thought, and the one "
        f"that retraces forms first. With one head at most {percent(max(j.accuracy.max() for j in one.values()))} of "
        "the paths are right.",
        ByHeads("paths right at depth 5, %", {heads: values.tolist() for heads, values in shown.items()}, chance=0.0),
    )


def _at_depth(found: Findings, depth: int) -> dict[int, Trained]:
    names = {heads: f"forward-h{heads}-d{depth}" for heads in range(1, 13)}
    return {heads: found.trained[name] for heads, name in names.items() if name in found.trained}


def build_page(
    found: Findings, figures: Mapping[str, Figure], claims: Sequence[Measurement], skipped: Sequence[str], footer: str
) -> str:
    """The whole page."""
    counts, start = count_verdicts(claims), opening(found)
    return report_page(
        title="headlab: path finding in trees",
        kicker=[bold("headlab"), " study 4, path finding in trees"],
        headline=start.headline,
        summary=start.summary,
        verdicts_label=f"{sum(counts.values())} claims tested:",
        verdicts=dict(counts),
        verdicts_link="#claims",
        hero=figures["accuracy"],
        sections=[section for section in _sections(found, figures, claims, skipped) if section.figures],
        footer=footer,
    )


def _sections(
    found: Findings, figures: Mapping[str, Figure], claims: Sequence[Measurement], skipped: Sequence[str]
) -> list[Section]:
    def shown(*names: str) -> list[Figure]:
        return [figures[name] for name in names if name in figures]

    reverse = found.formed("forward-h2").count("reverse")
    total = len(found.formed("forward-h2"))
    control = found.trained.get("control-one-hot-wide")
    undivided = ""
    if control is not None:
        lowest = found.scores("control-one-hot-wide").min()
        undivided = (
            " Accuracy does not imply it: with fixed one-hot labels and wide heads "
            f"{percent(float(control.accuracy.mean()))} "
            f"of paths are right, and some models have both heads do both (S = {lowest:.3f})."
        )
    ratio = found.generation.get("ratio")
    faster = ""
    if isinstance(ratio, dict):
        faster = f" At depth 200, kept keys and values write the path {ratio['median']:.0f} times faster."
    return [
        Section(
            "What the heads attend to",
            ["One head goes up the tree,", "the other goes back down"],
            "On the way up a head finds the edge whose child is the current node; on the way down the other finds "
            "the token "
            "that says where the path came from. The emitted TURN is the switch: no position is counted." + faster,
            shown("attention"),
        ),
        Section(
            "Who does what",
            ["Heads divide the roles", "without being told to"],
            "The score is high only where each role has a head of its own." + undivided,
            shown("usage"),
        ),
        Section(
            "When they form",
            ["The reverse head forms first", f"in {reverse} of {total} trainings"],
            "The digest says the opposite. The reverse role is easier: its target is among a handful of BACK tokens, "
            "whereas an edge hides among all the others.",
            shown("phases"),
        ),
        Section(
            "Cause",
            ["A patch of the right head", "at the query brings the answer back"],
            "Each contrast changes one token. Patching the other head, or any head elsewhere, does nothing.",
            shown("patched"),
        ),
        Section(
            "Learned and constructed",
            ["Gradient descent finds", "the mechanism of the theorem"],
            "Between labels every learned circuit has its largest entry where the construction has its only one.",
            shown("circuits"),
        ),
        Section(
            "Unseen trees",
            ["What is learned at one depth", "holds at others"],
            "Shapes, labellings and depths that training never showed cost little, since the mechanism is a look-up.",
            shown("length"),
        ),
        Section(
            "Large trees",
            ["A curriculum learns", "what direct training does not"],
            "Small trees teach the two look-ups; large ones then need only sharper attention.",
            shown("binary"),
        ),
        Section(
            "Without the chain",
            ["Without a chain of thought", "the same layers fall short"],
            "The path must then be found at once. More layers help, and a deeper goal undoes what they bring.",
            shown("layers"),
        ),
        Section(
            "Claims",
            heading_of({str(verdict): count for verdict, count in count_verdicts(claims).items()}),
            "Each line compares a statement of the digest or the theorem, or a finding of ours, with what this machine "
            "measured. A verdict is a rule applied to the number, not an opinion.",
            [claims_figure(claims, skipped)],
            anchor="claims",
        ),
    ]
