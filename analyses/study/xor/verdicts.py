"""From measured numbers to verdicts: one rule per claim, stated where it is applied."""

from __future__ import annotations

import numpy as np

from headlab.analyses.claims import Measurement, judge_bound, judge_statement
from headlab.analyses.study.xor.equality import BAR
from headlab.analyses.study.xor.maps import LEARNED, MapResult
from headlab.analyses.study.xor.measure import Results
from headlab.analyses.study.xor.networks import smallest_networks
from headlab.analyses.study.xor.one_step import OneStep
from headlab.interp.statistics import median, share, slope

SHARP = 0.99  # attention on a head's target
SMALL_LOSS = 1e-3


def claims(results: Results, command: str) -> list[Measurement]:
    """Every claim that `results` can decide, in the order of the claims."""
    found = [
        _one_step(results, command),
        _parameters(results, command),
        _maps(results, command),
        _sharp(results, command),
        _starts(results, command),
        _equal(results, command),
        _beyond_two(results, command),
        _normalised(results, command),
    ]
    if results.samples is not None:
        found += [_samples(results, command), _sample_exponents(results, command)]
    return sorted(found, key=lambda row: (row.id[0] == "B", row.id))


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _one_step(results: Results, command: str) -> Measurement:
    """Holds: from d = 1024 on, at m = 6 ln d, at least 90 % of seeds succeed and the exact interval of each stays above
    80 %. Fails: under half of them do at the largest d."""
    large = [cell for cell in results.bars if cell.bits >= 1024]
    last = max(results.bars, key=lambda cell: cell.bits)
    supported = bool(large) and all(c.one_to_one.value >= 0.9 and c.one_to_one.low > 0.8 for c in large)
    shares = {str(cell.bits): cell.one_to_one.value for cell in results.bars}
    timed = [
        {
            "bits": s.bits,
            "width": s.width,
            "one_to_one": s.one_to_one,
            "seconds": s.draw_seconds + s.step_seconds,
            "peak_gib": s.peak_bytes / 2**30,
        }
        for s in results.scales
    ]
    said = ", ".join(f"{_percent(cell.one_to_one.value)} at d = {cell.bits}" for cell in results.bars)
    if results.scales:
        big = max(results.scales, key=lambda s: s.bits)
        said += (
            f". At d = {big.bits}, m = {big.width}, one seed takes {big.draw_seconds + big.step_seconds:.1f} s of one "
            f"core and {big.peak_bytes / 2**30:.2f} GiB, and {'succeeds' if big.one_to_one else 'fails'}"
        )
    return Measurement(
        "X1",
        judge_statement(supported, last.one_to_one.high < 0.5),
        f"Both heads on a target of their own after one step, m = 6 ln d: {said}.",
        {"one_to_one": shares, "widths": {str(c.bits): c.width for c in results.bars}, "timed": timed},
        command,
        paper="theorem, with high probability",
        interval=last.one_to_one.interval,
        seeds=last.seeds,
    )


def _parameters(results: Results, command: str) -> Measurement:
    """Holds: the smallest networks that learn grow with d with a slope of .8 to 1.2 in log-log, the smallest attention
    models with one under .5. Fails: a network with fewer parameters than bits learned."""
    nets, attention = smallest_networks(results.networks), results.attention
    fewer = [n for n in results.networks if n.learned.successes and n.parameters < n.bits]
    sizes = sorted(nets)
    measured = {
        "networks": {str(bits): nets[bits].parameters for bits in sizes},
        "neurons": {str(bits): nets[bits].neurons for bits in sizes},
        "attention": {str(bits): 2 * cell.width for bits, cell in sorted(attention.items())},
        "four_neurons": {
            str(n.bits): {"parameters": n.parameters, "learned": n.learned.value}
            for n in results.networks
            if n.neurons == 4
        },
    }
    if len(sizes) < 3 or len(attention) < 3:
        return Measurement("X2", "not reached", "Too few sizes learned.", measured, command, paper="lower bound")
    grow = slope(np.log(sizes), np.log([nets[bits].parameters for bits in sizes]))
    less = slope(np.log(sorted(attention)), np.log([2 * attention[bits].width for bits in sorted(attention)]))
    measured |= {"network_slope": grow.value, "attention_slope": less.value, "attention_slope_interval": less.interval}
    four = [n for n in results.networks if n.neurons == 4]
    learned = share(sum(n.learned.successes for n in four), sum(n.learned.trials for n in four))
    largest = max(sizes)
    return Measurement(
        "X2",
        judge_statement(0.8 <= grow.value <= 1.2 and less.value < 0.5, bool(fewer)),
        f"Four hidden neurons, 4d + 9 parameters, learn it in {_percent(learned.value)} of {learned.trials} runs: a "
        f"network does not fail, it pays for every bit. Smallest that learn: {nets[largest].parameters} parameters at "
        f"d = {largest} (slope {grow.value:.2f}), against {2 * attention[max(attention)].width} query parameters at "
        f"d = {max(attention)} (slope {less.value:.2f}).",
        measured,
        command,
        paper="lower bound, linear in d",
        interval=grow.interval,
        seeds=four[0].learned.trials if four else None,
    )


def _pick(results: Results, start: str) -> dict[str, MapResult]:
    return {each.kind: each for each in results.maps if each.start == start}


def _maps(results: Results, command: str) -> Measurement:
    """Holds: after one step at the best of the shared sizes every other map's median alignment is under .1, and after
    many steps its median loss is above one half, while softmax aligns to above .9 in one step. Fails: another map
    learned (median loss under .1)."""
    by_start = {start: _pick(results, start) for start in dict.fromkeys(each.start for each in results.maps)}
    paired = by_start["antisymmetric"]
    others = {kind: each for kind, each in paired.items() if kind != "softmax"}
    everywhere = [e for found in by_start.values() for kind, e in found.items() if kind != "softmax"]
    best = max(float(np.median(each.once)) for each in others.values())
    losses = [float(np.median(each.many_loss)) for each in everywhere]
    soft = paired["softmax"]
    supported = best < 0.1 and min(losses) > 0.5 and float(np.median(soft.once)) > 0.9
    independent = by_start.get("independent", {})
    apart = [each.one_to_one for kind, each in independent.items() if kind != "softmax"]
    return Measurement(
        "X3",
        judge_statement(supported, any(loss < LEARNED for loss in losses)),
        f"One step, best of the same step sizes: alignment {float(np.median(soft.once)):.2f} with softmax, at most "
        f"{best:.2f} with linear and erf. After up to {max(soft.steps)} steps their loss is {min(losses):.2f} to "
        f"{max(losses):.2f}. From the antisymmetric start both heads stay on one target, since an odd map keeps "
        f"b = -a; from independent starts they part ({_percent(float(np.mean(apart or [0])))} one to one) and still "
        "do not concentrate.",
        {
            f"{start} {kind}": {
                "alignment_after_one_step": float(np.median(e.once)),
                "smallest_loss_after_one_step": e.once_best_loss,
                "alignment_after_many": float(np.median(e.many)),
                "loss_after_many": float(np.median(e.many_loss)),
                "one_to_one": e.one_to_one,
                "together": e.together,
                "solved_at_step": e.solved,
            }
            for start, found in by_start.items()
            for kind, e in found.items()
        },
        command,
        paper="they fail, need many more steps, or collapse",
        interval=median(soft.once, seed=0).interval,
        seeds=len(soft.once),
    )


def _sharp(results: Results, command: str) -> Measurement:
    """Holds: at every d, at least 99 % of the one-to-one seeds have more than .99 of each head's attention on its
    target and a loss under .001. Fails: their median attention is under .9."""
    cells = results.bars
    sharp = [float(((c.attention > SHARP) & (c.loss < SMALL_LOSS)).mean()) for c in cells]
    lowest = min(float(c.attention.min()) for c in cells)
    median = min(float(np.median(c.attention)) for c in cells)
    total = sum(len(c.loss) for c in cells)
    right = sum(int(((c.attention > SHARP) & (c.loss < SMALL_LOSS)).sum()) for c in cells)
    exact = share(right, total)
    return Measurement(
        "X4",
        judge_statement(min(sharp) >= 0.99, median < 0.9),
        f"{right} of {total} one-to-one seeds have more than {SHARP} of each head's attention on its target and a loss "
        f"under {SMALL_LOSS:g}; the smallest attention is {lowest:.4f}.",
        {
            "share": exact.value,
            "smallest_attention": lowest,
            "largest_loss": max(float(c.loss.max()) for c in cells),
            "by_kappa": {f"{c.kappa:.4g}": float((c.attention > SHARP).mean()) for c in results.kappas},
        },
        command,
        paper="near 1.0",
        interval=exact.interval,
        seeds=sum(c.seeds for c in cells),
    )


def _pooled(cells: list[OneStep]) -> tuple[float, float, float]:
    found = share(sum(c.together.successes for c in cells), sum(c.seeds for c in cells))
    return found.value, found.low, found.high


def _starts(results: Results, command: str) -> Measurement:
    """Holds: from independent starts at least a quarter more of the seeds put both heads on one target. Fails: the
    exact interval of that share stays under one quarter for independent AND orthogonal starts: queries that are no
    opposites part as well."""
    pooled = {start: _pooled(cells) for start, cells in results.starts.items()}
    more = pooled["independent"][0] - pooled["antisymmetric"][0]
    refuted = max(pooled["independent"][2], pooled["orthogonal"][2]) < 0.25
    rate = {
        start: float(np.mean([c.together.value * np.sqrt(c.bits) for c in cells]))
        for start, cells in results.starts.items()
    }
    shown = ", ".join(
        f"{start} {_percent(value)} [{_percent(low)}, {_percent(high)}]" for start, (value, low, high) in pooled.items()
    )
    return Measurement(
        "X5",
        judge_statement(more >= 0.25, refuted),
        f"Both heads on one target, d = {results.starts['equal'][0].bits} to {results.starts['equal'][-1].bits}: "
        f"{shown}. Any two different queries part, because head A prefers target i exactly where head B prefers j "
        f"(a_i b_j > a_j b_i); opposites only make ties rarer ({rate['antisymmetric']:.2f} / sqrt d against "
        f"{rate['independent']:.2f} / sqrt d).",
        {
            "together": {
                start: {str(c.bits): [c.together.value, *c.together.interval] for c in cells}
                for start, cells in results.starts.items()
            },
            "pooled": {start: list(values) for start, values in pooled.items()},
            "times_sqrt_d": rate,
        },
        command,
        paper="this start is what parts the heads",
        interval=pooled["independent"][1:],
        seeds=results.starts["equal"][0].seeds,
    )


def _samples(results: Results, command: str) -> Measurement:
    """Holds: the exponent of the samples that one step needs lies in [.7, 1.3] with its whole interval. Fails: its
    interval lies above 1.5, so that `about d` is not what one step does; d^4 remains an upper bound either way."""
    samples = results.samples
    assert samples is not None
    once, many = samples.once_exponent, samples.many_exponent
    supported = once.low >= 0.7 and once.high <= 1.3
    largest = max(once.needed)
    return Measurement(
        "X6",
        judge_statement(supported, once.low > 1.5),
        f"One step succeeds in half of the seeds at n = {once.needed[largest] / largest**2:.2f} d^2 (exponent "
        f"{once.value:.2f} [{once.low:.2f}, {once.high:.2f}] over d = {min(once.needed)} to {largest}), within the "
        f"d^4 bound and not about d. Many steps: exponent {many.value:.2f} [{many.low:.2f}, {many.high:.2f}], "
        f"n = {many.needed[largest] / largest:.1f} d at d = {largest}.",
        _exponents(results),
        command,
        paper="d^4 suffices, about d in practice",
        interval=(once.low, once.high),
        seeds=len(samples.once[-1].one_to_one),
    )


def _sample_exponents(results: Results, command: str) -> Measurement:
    """Holds: the one-step exponent's interval meets [1.7, 2.3] and the many-step exponent's lies within [.7, 1.3].
    Fails: the many-step exponent's interval lies above 1.3 or the one-step exponent's misses [1.7, 2.3]."""
    samples = results.samples
    assert samples is not None
    once, many, wide = samples.once_exponent, samples.many_exponent, samples.wide_exponent
    square = once.high >= 1.7 and once.low <= 2.3
    linear = many.low >= 0.7 and many.high <= 1.3
    enough = {
        curve.bits: curve.one_to_one[:, curve.counts.index(16 * curve.bits)].mean()
        for curve in samples.many
        if 16 * curve.bits in curve.counts
    }
    return Measurement(
        "B7",
        judge_statement(square and linear, not square or many.low > 1.3),
        f"One step: exponent {once.value:.2f} [{once.low:.2f}, {once.high:.2f}]. Many normalised steps at m = 6 ln d: "
        f"{many.value:.2f} [{many.low:.2f}, {many.high:.2f}], between d and d^2, though 16 d samples still do for "
        + ", ".join(f"{_percent(value)} at d = {bits}" for bits, value in enough.items())
        + f". With wide queries, m = d: {wide.value:.2f} [{wide.low:.2f}, {wide.high:.2f}]; to see the targets at all "
        f"one step needs samples as m^{samples.support_by_width.value:.2f} at one d.",
        _exponents(results) | {"at_16_d": {str(bits): float(value) for bits, value in enough.items()}},
        command,
        interval=(many.low, many.high),
        seeds=len(samples.many[-1].one_to_one),
    )


def _exponents(results: Results) -> dict[str, object]:
    samples = results.samples
    assert samples is not None
    named = {
        "one_step": samples.once_exponent,
        "one_step_on_support": samples.support_exponent,
        "many_steps": samples.many_exponent,
        "many_steps_wide": samples.wide_exponent,
        "one_step_on_support_by_width": samples.support_by_width,
    }
    return {
        name: {
            "exponent": each.value,
            "interval": [each.low, each.high],
            "t_interval": [each.fit.low, each.fit.high],
            "samples_at_half": {str(size): count for size, count in each.needed.items()},
        }
        for name, each in named.items()
    }


def _equal(results: Results, command: str) -> Measurement:
    """Holds: no output, loss or gradient differs by more than 1e-12. Fails: one does."""
    worst = max(each.worst for each in results.equality)
    off = sum(each.worst > BAR for each in results.equality)
    return Measurement(
        "X7",
        judge_bound(off, len(results.equality)),
        f"Transformer, formula and brute force over all inputs agree in outputs, loss and gradient to {worst:.1e} in "
        f"float64 ({len(results.equality)} models: {', '.join(dict.fromkeys(e.kind for e in results.equality))}; 2 to "
        f"{max(e.heads for e in results.equality)} heads).",
        {"models": len(results.equality), "worst": worst, "above_bar": off, "bar": BAR},
        command,
        paper="equal",
    )


def _beyond_two(results: Results, command: str) -> Measurement:
    """Holds: for every k > 2 fewer than half of the seeds are one to one after one step from any start. Fails: nine in
    ten are, for every k."""
    once = [cell for cell in results.parity if cell.method == "one-step"]
    highest = max(once, key=lambda cell: cell.one_to_one.value)
    shown = []
    for heads in dict.fromkeys(cell.heads for cell in once):
        cells = [cell for cell in once if cell.heads == heads]
        pooled = share(sum(c.one_to_one.successes for c in cells), sum(c.one_to_one.trials for c in cells))
        on = share(sum(c.on_support.successes for c in cells), sum(c.on_support.trials for c in cells))
        shown.append(
            f"k = {heads} {_percent(pooled.value)} (chance {_percent(cells[0].chance)}; {_percent(on.value)} have "
            "every head on some target)"
        )
    return Measurement(
        "X8",
        judge_statement(
            all(cell.one_to_one.value < 0.5 for cell in once), all(cell.one_to_one.value >= 0.9 for cell in once)
        ),
        f"One step puts the heads on targets but not on different ones: {', '.join(shown)}.",
        {_key(cell): [cell.one_to_one.value, *cell.one_to_one.interval] for cell in once},
        command,
        paper="not covered",
        interval=highest.one_to_one.interval,
        seeds=once[0].one_to_one.trials,
    )


def _normalised(results: Results, command: str) -> Measurement:
    """Holds: at least 95 % of the seeds are one to one in every cell. Fails: the exact interval of one cell stays under
    one half."""
    cells = [cell for cell in results.parity if cell.method == "normalised"]
    turned = [cell for cell in results.parity if cell.method == "in-turn"]
    worst = min(cells, key=lambda cell: cell.one_to_one.value)
    total = share(sum(c.one_to_one.successes for c in cells), sum(c.one_to_one.trials for c in cells))
    said = (
        f"{total.successes} of {total.trials} trainings with 150 normalised steps are one to one (k = "
        f"{', '.join(str(k) for k in dict.fromkeys(c.heads for c in cells))}; d = "
        f"{', '.join(str(d) for d in dict.fromkeys(c.bits for c in cells))}; every start); the worst cell has "
        f"{_percent(worst.one_to_one.value)}."
    )
    if turned:
        low, high = (pick(c.one_to_one.value for c in turned) for pick in (min, max))
        said += f" Large steps in turn: {_percent(low)} to {_percent(high)}."
    return Measurement(
        "B8",
        judge_statement(worst.one_to_one.value >= 0.95, any(c.one_to_one.high < 0.5 for c in cells)),
        said,
        {f"{_key(c)} {c.method}": [c.one_to_one.value, *c.one_to_one.interval] for c in (*cells, *turned)},
        command,
        interval=total.interval,
        seeds=worst.one_to_one.trials,
    )


def _key(cell) -> str:
    return f"k={cell.heads} d={cell.bits} {cell.start}"
