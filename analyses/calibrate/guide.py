"""The guide's table: which instrument for which question, and where it breaks, from the record that ships."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

QUESTIONS = {
    "exact": "Which edges act alone?",
    "exact signed": "Which edges help the answer?",
    "exact in context": "Which edges act once another head is silent?",
    "greedy": "Which few edges are enough?",
    "EAP": "A first look at many edges, softmax not saturated",
    "EAP-IG inputs": "A ranking of many edges, under mean or resample",
    "EAP-IG activations": "The same, by source",
    "direct attribution": "Who writes the answer directly?",
    "attention": "Where does a head look?",
    "weight norms": "No question about a circuit",
    "random": "What chance reaches",
}
KINDS = ("zero", "mean", "resample")


def guide_table(record: Mapping[str, Any]) -> str:
    """Markdown: an instrument a row, rungs passed and the first that breaks per kind, cost over exact patching."""
    head = ["instrument", "question", *KINDS, "CPU time over exact", "forward, backward passes"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for method in record["edges"]["methods"]:
        cells = [method["method"], QUESTIONS[method["method"]]]
        for kind in KINDS:
            found = method["kinds"].get(kind)
            if not found or not found["scored"]:
                cells.append("")
                continue
            broken = f", first breaks at {found['first']}" if found["first"] else ""
            cells.append(f"{found['passed']} of {found['scored']}{broken}")
        cells.append("" if method["relative"] is None else f"{method['relative']:.1f}")
        passes = (method["forward"], method["backward"])
        cells.append("" if None in passes else f"{passes[0]:.0f}, {passes[1]:.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def variables_table(record: Mapping[str, Any]) -> str:
    """Markdown: per rung and method the angle to the causal subspace in degrees and the interchange accuracy, mean over
    tasks."""
    rows = record["variables"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = [f"| rung | {' | '.join(methods)} |", f"|{' --- |' * (len(methods) + 1)}"]
    for rung in dict.fromkeys(row["rung"] for row in rows):
        cells = []
        for method in methods:
            own = [row for row in rows if (row["rung"], row["method"]) == (rung, method)]
            angle, accuracy = (sum(row[name] for row in own) / len(own) for name in ("angle", "accuracy"))
            cells.append(f"{angle:.0f}°, {accuracy:.2f}")
        lines.append(f"| {rung} | {' | '.join(cells)} |")
    return "\n".join(lines)


def foretold_table(record: Mapping[str, Any]) -> str:
    """Markdown: per kind, Spearman's correlation of the ladder's ranking of instruments with that on trained models."""
    lines = ["| kind | Spearman | interval | models | tasks |", "| --- | --- | --- | --- | --- |"]
    for row in record["foretells"]:
        if row["spearman"] is None:
            lines.append(f"| {row['kind']} | | | {row['models']} | {', '.join(row['tasks'])} |")
            continue
        between = "" if row["interval"] is None else f"{row['interval'][0]:.2f} to {row['interval'][1]:.2f}"
        lines.append(
            f"| {row['kind']} | {row['spearman']:.2f} | {between} | {row['models']} | {', '.join(row['tasks'])} |"
        )
    return "\n".join(lines)


def filled(text: str, record: Mapping[str, Any]) -> str:
    """A guide's text with its tables made anew: what stands between `<!-- NAME -->` and `<!-- end -->`."""
    for name, table in (("instruments", guide_table), ("variables", variables_table), ("foretold", foretold_table)):
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        if not mark:
            continue
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{mark}{table(record)}\n{end}{after}"
    return text
