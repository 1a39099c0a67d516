"""The study from the plan to the report: in which order things are made, and what is written where."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pandas as pd

from headlab.analyses.claims import Measurement, count_verdicts
from headlab.analyses.options.xor import StudyOptions
from headlab.analyses.progress import Report
from headlab.analyses.study.claims_section import claims_figure, heading_of
from headlab.analyses.study.folder import require_folder, write_report
from headlab.analyses.study.xor import growth_figures, head_figures, map_figures, sample_figures, step_figures
from headlab.analyses.study.xor.measure import Results, measure
from headlab.analyses.study.xor.page import Pictures, build_page, opening
from headlab.analyses.study.xor.plan import FULL, QUICK
from headlab.analyses.study.xor.verdicts import claims
from headlab.interp.errors import RequestError
from headlab.models.checkpoints import versions

STAGES = 10


def run(options: StudyOptions, report: Report | None = None) -> dict[str, Any]:
    """Do the study and write its folder; returns what results.json holds, with where the report is.

    Raises ValueError for a folder that cannot be written, and for a device other than the CPU, on which the closed
    forms run; no file is left half-written.
    """
    started = time.monotonic()
    if options.common.device != "cpu":
        raise RequestError(f"the sparse XOR study runs on the CPU, not on {options.common.device}: leave out --device")
    plan = QUICK if options.quick else FULL
    require_folder(options.out)
    done = 0

    def stage(name: str) -> None:
        nonlocal done
        if report:
            report(f"study: {name}", done, STAGES)
        done += 1

    results = measure(plan, options.out / "checkpoints", seed=options.common.seed, stage=stage)
    stage("report")
    found = publish(results, options, skipped=plan.left_out, started=started)
    stage("done")
    return found


def publish(
    results: Results, options: StudyOptions, *, skipped: Sequence[str] = (), started: float | None = None
) -> dict[str, Any]:
    """Verdicts, figures, tables, results.json and the page of what was measured, in `options.out`."""
    out, command = options.out, _command(options)
    measurements = claims(results, command)
    pictures = draw(results)
    page = build_page(
        results,
        pictures,
        measurements,
        claims_figure(measurements, skipped),
        heading_of({str(verdict): count for verdict, count in count_verdicts(measurements).items()}),
        footer=f"Offline report, one file, no requests. Made by “{command}” on one CPU core.",
    )
    found = {
        **opening(results).to_json(),
        "specialisation": {
            "trained": [each.score.specialisation for each in results.looks],
            "untrained": results.chance,
        },
        "comparison": [
            {"qk": each.comparison.qk, "ov": each.comparison.ov, "in_use": each.comparison.in_use}
            for each in results.looks
        ],
        "claims": [each.to_json() for each in measurements],
        "skipped": list(skipped),
        "command": command,
        "device": "cpu",
        "versions": versions(),
        "seconds": None if started is None else time.monotonic() - started,
    }
    return write_report(out, page, found, _tables(results, measurements), vars(pictures))


def draw(results: Results) -> Pictures:
    """Every figure of the report."""
    maps = map_figures.attention_maps(results)
    samples = results.samples
    return Pictures(
        one_step=step_figures.one_step_curves(results),
        step_sizes=step_figures.step_sizes(results),
        attention=head_figures.attention_before_and_after(results),
        which_bit=head_figures.which_bit(results),
        usage=head_figures.usage(results),
        small_steps=head_figures.small_steps(results),
        maps_once=maps[0],
        maps_many=maps[1] if len(maps) > 1 else None,
        starts=step_figures.starts(results),
        sample_success=sample_figures.sample_success(samples) if samples else None,
        samples_needed=sample_figures.samples_needed(samples) if samples else None,
        parameters=growth_figures.parameters(results),
        more_bits=growth_figures.more_bits(results),
    )


def _command(options: StudyOptions) -> str:
    parts = ["headlab study xor"]
    if options.quick:
        parts.append("--quick")
    if options.common.seed:
        parts.append(f"--seed {options.common.seed}")
    return " ".join(parts)


def _tables(results: Results, measurements: list[Measurement]) -> dict[str, pd.DataFrame]:
    cells = [*results.bars, *results.kappas]
    cells += [cell for group in (*results.widths.values(), *results.starts.values()) for cell in group]
    steps = [
        {
            "bits": c.bits,
            "width": c.width,
            "start": c.start,
            "kappa": c.kappa,
            "seeds": c.seeds,
            "one_to_one": c.one_to_one.value,
            "low": c.one_to_one.low,
            "high": c.one_to_one.high,
            "together": c.together.value,
            "on_support": c.on_support.value,
        }
        for c in cells
    ]
    samples = results.samples
    curves = [
        {
            "method": method,
            "bits": c.bits,
            "width": c.width,
            "samples": n,
            "one_to_one": c.one_to_one[:, k].mean(),
            "on_support": c.on_support[:, k].mean(),
            "seeds": len(c.one_to_one),
        }
        for method, group in (
            ("one step", samples.once if samples else []),
            ("many steps", samples.many if samples else []),
            ("many steps, m = d", samples.wide if samples else []),
        )
        for c in group
        for k, n in enumerate(c.counts)
    ]
    maps = [
        {
            "map": each.kind,
            "start": each.start,
            "seed": index,
            "alignment_once": value,
            "loss_once": each.once_loss[index],
            "size_once": each.once_size,
        }
        for each in results.maps
        for index, value in enumerate(each.once)
    ]
    parity = [
        {
            "heads": c.heads,
            "bits": c.bits,
            "start": c.start,
            "method": c.method,
            "one_to_one": c.one_to_one.value,
            "low": c.one_to_one.low,
            "high": c.one_to_one.high,
            "seeds": c.one_to_one.trials,
            "chance": c.chance,
            "median_loss": c.loss,
        }
        for c in results.parity
    ]
    networks = [
        {"bits": n.bits, "neurons": n.neurons, "parameters": n.parameters, "learned": n.learned.value}
        for n in results.networks
    ]
    named = {
        "one_step": steps,
        "samples": curves,
        "maps": maps,
        "parity": parity,
        "networks": networks,
        "alignment": results.traced.to_frame().to_dict("records"),
        "claims": [each.to_row() for each in measurements],
    }
    return {name: pd.DataFrame(table) for name, table in named.items()}
