"""`headlab render`: attention patterns and the attention circuit of one example, as a page or a picture."""

from __future__ import annotations

from typing import Any

from headlab.analyses.commands.ablate import examples_of
from headlab.analyses.commands.heads import load_with_heads
from headlab.analyses.commands.tables import print_facts
from headlab.analyses.options.instruments import Render
from headlab.analyses.pictures import attention_figure, circuit_figure, head_badges
from headlab.analyses.systems import system
from headlab.interp.errors import OutOfRange, RequestError
from headlab.interp.render import Section, bold, report_page
from headlab.interp.render.figure import write

FORMATS = (".html", ".svg", ".png")


def run(options: Render) -> dict[str, Any]:
    """Write the file and say what is in it. Raises RequestError for another format, IndexError for no such example."""
    if options.out.suffix not in FORMATS:
        raise RequestError(f"'{options.out}' has no known format: end its name in {', '.join(FORMATS)}")
    checkpoint = load_with_heads(options.dir, options.common.device)
    task = system(checkpoint.task).task(checkpoint)
    examples = examples_of(task, options.common.seed, 256)
    if not 0 <= options.example < len(examples):
        raise OutOfRange(f"there is no example {options.example}: there are 0 to {len(examples) - 1}")
    example = examples[options.example : options.example + 1].to(options.common.device)
    badges = head_badges(checkpoint, task, options.common.seed)
    circuit = circuit_figure(checkpoint, task, example, badges)
    if options.out.suffix == ".html":
        attention = attention_figure(checkpoint, task, example, badges)
        origin = checkpoint.variant or "learned"
        page = report_page(
            title=f"headlab: {checkpoint.task}, {origin}",
            kicker=[bold("headlab"), f" {checkpoint.task}, {origin} weights"],
            headline=["Attention and circuit", "of one example"],
            summary=" ".join(task.token_labels(example.inputs[0])[:40]),
            sections=[
                Section("Attention", "Where each head looks", figures=[attention]),
                Section("Circuit", "What it carries to the logits", figures=[circuit]),
            ],
            footer=f"Made from {checkpoint.directory.name if checkpoint.directory else 'a checkpoint'}.",
        )
        write(options.out, page.encode())
    else:
        circuit.save(options.out)
    return {
        "out": str(options.out),
        "bytes": options.out.stat().st_size,
        "task": checkpoint.task,
        "example": options.example,
        "figures": ["attention", "circuit"] if options.out.suffix == ".html" else ["circuit"],
    }


def show(result: dict[str, Any]) -> None:
    """Print where it is."""
    print_facts(result)
