"""The claims on path finding, each judged by its rule from measured numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headlab.analyses.claims import Measurement, Verdict, judge_bound, judge_figure, judge_statement, load_claims
from headlab.analyses.study.tree.findings import Findings
from headlab.interp.statistics import median, share

FIGURES = {name: claim.figures for name, claim in load_claims().items()}
LEFT_OUT_OF_QUICK = ("T3", "T4", "B5", "B6", "B9")
GOOD, SPLIT, UNDIVIDED = 0.998, 0.95, 0.05
WORST: tuple[Verdict, ...] = ("fails", "not reached", "holds", "exceeds")


def judge(found: Findings) -> list[Measurement]:
    """T1 to T8, B4, B5, B6 and B9, those that a quick study leaves out excepted."""
    rows = [
        _by_depth(found, "T1", "backward-h1"),
        _by_depth(found, "T2", "forward-h2"),
        _number_of_heads(found),
        _constructions(found),
        _division(found),
        _unseen(found),
        _which_first(found),
    ]
    if not found.quick:
        rows += [_without_chain(found), _more_heads(found), _two_at_ten(found), _curriculum(found)]
        rows.append(_not_implied(found))
    return sorted(rows, key=lambda row: (row.id[0] != "T", int(row.id[1:])))


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """The least favourable of several; `not reached` of none."""
    return min(verdicts, key=WORST.index) if verdicts else "not reached"


def percent(value: float | int, digits: int = 2) -> str:
    """A share in per cent, no more digits than asked for."""
    return f"{100 * value:.{digits}f} %"


def _by_depth(found: Findings, claim: str, kind: str) -> Measurement:
    jobs = found.jobs(kind)
    means = {depth: float(job.accuracy.mean()) for depth, job in jobs.items()}
    lowest = {depth: float(job.accuracy.min()) for depth, job in jobs.items()}
    verdict = worst([judge_figure(means[d], FIGURES[claim][f"d{d}"]) for d in means])
    last = max(jobs)
    heads = jobs[last].heads
    said = ", ".join(f"{percent(mean)} at depth {depth}" for depth, mean in means.items())
    measured = {
        "heads": heads,
        "steps": jobs[last].steps,
        "mean": {f"d{d}": v for d, v in means.items()},
        "lowest_seed": {f"d{d}": v for d, v in lowest.items()},
    }
    more = ""
    if claim == "T2":
        scores = {depth: found.scores(f"{kind}-d{depth}") for depth in jobs}
        measured["specialisation"] = {f"d{d}": float(np.median(values)) for d, values in scores.items()}
        more = f"; specialisation {min(v.min() for v in scores.values()):.3f} or more (the digest's own score differs)"
    return Measurement(
        claim,
        verdict,
        f"{heads} head{'s' if heads > 1 else ''}, {jobs[last].steps} steps: {said}, mean over "
        f"{len(jobs[last].runs)} seeds on unseen trees; lowest seed {percent(min(lowest.values()))}{more}.",
        measured,
        found.command,
        paper=_paper(claim, jobs),
        interval=share(*jobs[last].pooled).interval,
        seeds=len(jobs[last].runs),
    )


def _paper(claim: str, depths: Sequence[int] | dict) -> str:
    heads = {"T1": {3: 2, 5: 2, 7: 4, 10: 4}, "T2": {3: 4, 5: 4, 7: 6, 10: 8}}[claim]
    return "digest: " + ", ".join(
        f"{percent(FIGURES[claim][f'd{d}'], 1)} (depth {d}, {heads[d]} heads)" for d in depths
    )


def _without_chain(found: Findings) -> Measurement:
    wanted = {5: 3, 7: 5, 10: 6}
    table = {(layers, depth): _accuracy(found, layers, depth) for depth in (3, 5, 7, 10) for layers in range(1, 7)}
    measured = {f"l{layers}_d{depth}": value for (layers, depth), value in table.items() if value is not None}
    verdicts: list[Verdict] = []
    for depth, layers in wanted.items():
        value = table[layers, depth]
        if value is not None:
            verdicts.append(judge_figure(value, FIGURES["T3"][f"forward_d{depth}"]))
    best = {
        depth: max((value, layers) for (layers, d), value in table.items() if d == depth and value is not None)
        for depth in sorted({d for (_, d), value in table.items() if value is not None})
    }
    steps = next(job.steps for name, job in found.trained.items() if name.startswith("without-chain"))
    guesses = ", ".join(f"{percent(found.guess[depth], 1)}" for depth in best)
    said = ", ".join(
        f"{percent(value, 1)} at depth {depth} ({layers} layers)" for depth, (value, layers) in best.items()
    )
    return Measurement(
        "T3",
        worst(verdicts),
        f"Without the chain, 4 heads, {steps} steps: at best {said}; guessing one of the deepest nodes gives "
        f"{guesses}. With "
        "it, one layer is right on all but a few trees in ten thousand. Backward reasoning is its own chain.",
        measured | {f"guess_d{depth}": value for depth, value in found.guess.items()},
        found.command,
        paper="digest: 62.1 % at depth 5 (3 layers), 45.3 % at 7 (5 layers), 28.6 % at 10 (7 layers)",
        seeds=1,
    )


def _accuracy(found: Findings, layers: int, depth: int) -> float | None:
    job = found.trained.get(f"without-chain-l{layers}-d{depth}")
    return None if job is None else float(job.accuracy.mean())


def _more_heads(found: Findings) -> Measurement:
    jobs = {heads: found.trained[f"forward-h{heads}-d5"] for heads in (2, 4, 6, 8)}
    means = {heads: float(job.accuracy.mean()) for heads, job in jobs.items()}
    verdict = worst([judge_figure(means[heads], FIGURES["T4"][f"h{heads}"]) for heads in jobs])
    scores = {heads: float(np.median(found.scores(f"forward-h{heads}-d5"))) for heads in jobs}
    return Measurement(
        "T4",
        verdict,
        f"All in {jobs[2].steps} steps: "
        + ", ".join(f"{h} heads {percent(m)}" for h, m in means.items())
        + "; specialisation "
        + ", ".join(f"{value:.3f}" for value in scores.values())
        + ". More heads are not needed, and make little difference.",
        {"accuracy": {f"h{h}": m for h, m in means.items()}, "specialisation": {f"h{h}": s for h, s in scores.items()}},
        found.command,
        paper="digest: 88.4 %, 98.3 %, 98.7 %, 98.9 % with 2, 4, 6, 8 heads",
        interval=share(*jobs[2].pooled).interval,
        seeds=len(jobs[2].runs),
    )


def _number_of_heads(found: Findings) -> Measurement:
    two, one = found.jobs("forward-h2"), found.jobs("forward-h1")
    lowest = min(float(job.accuracy.min()) for job in two.values())
    highest = max(float(job.accuracy.max()) for job in one.values())
    runs = sum(len(job.runs) for job in two.values())
    return Measurement(
        "T5",
        judge_statement(False, contradicted=lowest >= GOOD),
        f"Two heads suffice: the lowest of {runs} trained models (depths {_list(two)}) is right on {percent(lowest)} "
        f"of unseen trees. One head does not: at most {percent(highest)}.",
        {"two_heads_lowest": lowest, "one_head_highest": highest, "models": runs},
        found.command,
        paper="digest: four; the paper's construction has two",
        interval=share(*_pool(two.values())).interval,
        seeds=len(next(iter(two.values())).runs),
    )


def _list(values: Sequence[int] | dict) -> str:
    names = [str(value) for value in values]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _pool(jobs) -> tuple[int, int]:
    pairs = [job.pooled for job in jobs]
    return sum(right for right, _ in pairs), sum(trials for _, trials in pairs)


def _constructions(found: Findings) -> Measurement:
    tried = sum(each.paths for each in found.constructed)
    wrong = sum(each.paths - min(each.generated, each.teacher_forced) for each in found.constructed)
    deepest = max(each.depth for each in found.constructed)
    return Measurement(
        "T6",
        judge_bound(wrong, tried),
        f"{wrong} of {tried} paths wrong, written token by token: random trees to depth {deepest}, perfect binary "
        "trees to depth 9, labels that no weight was fitted to.",
        {"paths": tried, "violations": wrong, "cases": len(found.constructed)},
        found.command,
        paper="theorem: one head, two heads",
    )


def _division(found: Findings) -> Measurement:
    looks = [look for name, looks in found.looks.items() if name.startswith("forward-h2") for look in looks]
    scores = [look.specialisation for look in looks]
    phased = sum(look.formation.first is not None for look in looks)
    own = [look.heads.left(role, role) for look in looks for role in ("backward", "reverse")]
    other = [
        look.heads.left(ablated, role)
        for look in looks
        for ablated, role in (("backward", "reverse"), ("reverse", "backward"))
    ]
    known = [value for value in own if value is not None]
    kept = [value for value in other if value is not None]
    divided = min(scores) >= SPLIT and len(known) == len(own) and max(known) < 0.5 and min(kept) >= 0.98
    middle = median(scores)
    return Measurement(
        "T7",
        judge_statement(divided and phased >= 0.9 * len(looks), contradicted=max(scores) < 0.5),
        f"{len(looks)} two-head models: specialisation {min(scores):.3f} to {max(scores):.3f} (untrained at most "
        f"{max(found.untrained):.3f}). Without a role's heads that role is at most "
        f"{percent(max(known, default=1), 1)} right "
        f"and the other at least {percent(min(kept, default=0), 1)}; {phased} form one group after the other.",
        {"lowest": min(scores), "highest": max(scores), "untrained_highest": max(found.untrained), "phased": phased},
        found.command,
        paper="theorem: four phases",
        interval=middle.interval,
        seeds=len(looks),
    )


def _unseen(found: Findings) -> Measurement:
    table = {each.kind: each for each in found.unseen}
    gap = max(each.seen - each.unseen for each in found.unseen if each.kind != "labels")
    lowest = min(each.unseen for each in found.unseen if each.kind != "labels")
    said = "; ".join(f"{each.kind}: {percent(each.seen)} seen, {percent(each.unseen)} unseen" for each in found.unseen)
    near = [row for row in found.length if row.x <= 20]
    lengths = {f"d{row.x:g}": float(np.min(row.values)) for row in found.length}
    reach = f" Trained at depth 5, the lowest seed is at {percent(min(min(row.values) for row in near))} or more up to "
    return Measurement(
        "T8",
        judge_statement(lowest >= 0.99 and gap <= 0.005, contradicted=lowest < 0.5),
        said + "." + (reach + f"depth {max(row.x for row in near):g}." if near else ""),
        {"gap": gap, **{kind: each.unseen for kind, each in table.items()}, "lowest_by_depth": lengths},
        found.command,
        paper="theorem",
        interval=median([value for row in near for value in row.values]).interval if near else None,
        seeds=found.seeds,
    )


def _which_first(found: Findings) -> Measurement:
    first = found.formed("forward-h2") + found.formed("plain-descent")
    reverse, backward = first.count("reverse"), first.count("backward")
    told = reverse + backward
    return Measurement(
        "B4",
        judge_statement(reverse >= 0.9 * len(first), contradicted=backward > reverse),
        f"The reverse heads form first in {reverse} of {len(first)} trainings (Adam and plain descent), the backward "
        f"heads in {backward}; {len(first) - told} cannot be told at 95 %.",
        {"reverse_first": reverse, "backward_first": backward, "trainings": len(first)},
        found.command,
        paper="digest: backward heads first",
        interval=share(reverse, told).interval if told else None,
        seeds=len(first),
    )


def _two_at_ten(found: Findings) -> Measurement:
    job = found.trained["forward-h2-d10"]
    mean, lowest = float(job.accuracy.mean()), float(job.accuracy.min())
    return Measurement(
        "B5",
        judge_statement(lowest >= 0.999, contradicted=mean < 0.99),
        f"{percent(mean)} on average, {percent(lowest)} the lowest of {len(job.runs)} seeds, {job.runs[0].paths} "
        "unseen trees each.",
        {"mean": mean, "lowest": lowest},
        found.command,
        paper="digest: 94.1 % with eight heads",
        interval=share(*job.pooled).interval,
        seeds=len(job.runs),
    )


def _curriculum(found: Findings) -> Measurement:
    names = {5: "binary-direct-d5", 7: "binary-direct-d7", 9: "binary-direct-d9"}
    direct = {depth: float(found.trained[name].accuracy.max()) for depth, name in names.items()}
    seven, nine = found.trained["binary-curriculum-d7"], found.trained["binary-curriculum-d9"]
    never = max((min(values), stage) for stage, values in found.never.items())
    lowest = {7: float(seven.accuracy.min()), 9: float(nine.accuracy.min())}
    return Measurement(
        "B6",
        judge_statement(lowest[7] >= 0.999 and direct[7] < 0.5, contradicted=direct[7] >= 0.999),
        f"By curriculum {percent(lowest[7])} at depth 7 and {percent(lowest[9])} at depth 9 (lowest seed), and "
        f"{percent(never[0])} at depth 9 before it was ever trained on. Direct training on as many positions: "
        + ", ".join(f"{percent(value, 1)} at depth {depth}" for depth, value in direct.items())
        + " (best seed).",
        {"curriculum": lowest, "direct_best": direct, "depth_9_never_trained": never[0]},
        found.command,
        interval=share(*seven.pooled).interval,
        seeds=len(seven.runs),
    )


def _not_implied(found: Findings) -> Measurement:
    job, scores = found.trained["control-one-hot-wide"], found.scores("control-one-hot-wide")
    right = job.accuracy >= 0.99
    undivided, half = int((right & (scores <= UNDIVIDED)).sum()), int((right & (scores < 0.5)).sum())
    return Measurement(
        "B9",
        judge_statement(undivided > 0, contradicted=half == 0 and bool(right.all())),
        f"Fixed one-hot labels and wide heads: {int(right.sum())} of {len(scores)} models are right on 99 % of paths "
        f"or more; {undivided} with a specialisation of {UNDIVIDED} or less, {half} with less than .5 (lowest "
        f"{scores[right].min(initial=1.0):.3f}, median {np.median(scores):.3f}).",
        {"right": int(right.sum()), "undivided": undivided, "below_half": half, "specialisation": scores.tolist()},
        found.command,
        interval=share(undivided, len(scores)).interval,
        seeds=len(scores),
    )
