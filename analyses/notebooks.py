"""The notebooks: executed from their percent scripts, kept as pictures that every viewer shows, and made into pages."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from headlab.interp.errors import MissingFile, MissingPackage, UnknownName, WorkFailed
from headlab.interp.render.document import document, rendered

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
SECONDS = 600
MISSING = "notebooks need jupytext, nbclient, nbconvert and ipykernel: pip install 'headlab[notebooks]'"
WIDTHS = (1080, 620)
# Warnings are errors in what the cells do, not in what importing these two libraries does.
_SETUP = r"""
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch
    import headlab.models.hooked
torch.set_num_threads(1)
warnings.simplefilter("error")
for own in ("ipykernel", "jupyter_client", "IPython", "zmq", "tornado", "traitlets", "asyncio"):
    warnings.filterwarnings("ignore", module=own + r"(\.|$)")
"""
_END = "warnings.simplefilter('ignore')  # the kernel's own shutdown may warn"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CAPTION = re.compile(r"<figcaption>(.*?)</figcaption>", re.DOTALL)
_SPAN = re.compile(r"</?span[^>]*>")
_MARKDOWN = re.compile(r"([\\*_`|$\[\]])")


def sources(names: Sequence[str] = (), folder: Path | None = None) -> list[Path]:
    """The percent scripts of the notebooks in reading order; of `names` alone where some are given.

    Raises MissingFile where this is not a checkout, UnknownName, with what there is, for an unknown name.
    """
    folder = FOLDER if folder is None else folder
    scripts = sorted(folder.glob("[0-9]*.py"))
    if not scripts:
        raise MissingFile(f"there are no notebooks in {folder}: they come with the repository, not the package")
    for name in names:
        if name not in [path.stem for path in scripts]:
            raise UnknownName(f"there is no notebook '{name}': there are {', '.join(path.stem for path in scripts)}")
    return [path for path in scripts if not names or path.stem in names]


def read(source: Path) -> NotebookNode:
    """The notebook that a percent script stands for, not executed, with the same cell ids every time."""
    try:
        import jupytext
    except ImportError:
        raise MissingPackage(MISSING) from None
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook


def execute(source: Path) -> NotebookNode:
    """Run a script's cells in a fresh kernel, where a warning is an error, from the repository's root.

    What comes back holds no times and no versions of the moment, so that the same cells give the same file. Raises
    RuntimeError, with the cell and what it said, for a cell that fails or that writes to stderr.
    """
    try:
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError
        from nbformat.v4 import new_code_cell
    except ImportError:
        raise MissingPackage(MISSING) from None
    notebook = read(source)
    notebook.cells = [new_code_cell(_SETUP), *notebook.cells, new_code_cell(_END)]
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--log-level=50"],
        resources={"metadata": {"path": str(ROOT)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise WorkFailed(f"{source.name}: {_COLOURS.sub('', str(error)).strip()}") from None
    notebook.cells = notebook.cells[1:-1]
    notebook.metadata.pop("language_info", None)
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        cell.execution_count = number + 1
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number + 1
            if output.output_type == "stream" and output.name == "stderr":
                raise WorkFailed(f"{source.name}: a cell wrote to stderr: {output.text.strip()}\n{cell.source}")
    return notebook


def static(notebook: NotebookNode) -> NotebookNode:
    """The notebook as it is kept: a figure is its SVG, which GitHub, nbviewer and editors show, and its caption."""
    from copy import deepcopy

    copied = deepcopy(notebook)
    for cell in copied.cells:
        if cell.cell_type == "code":
            cell.outputs = [part for output in cell.outputs for part in _static(output)]
    return copied


def _static(output: Any) -> list[Any]:
    from nbformat.v4 import new_output

    data = output.get("data", {})
    if "image/svg+xml" not in data:
        return [output]
    markup = data.pop("text/html", "")
    caption = _CAPTION.search(markup)
    if caption is None:
        return [output]
    words = _MARKDOWN.sub(r"\\\1", _SPAN.sub("", caption.group(1)))
    texts = {"text/markdown": words, "text/plain": html.unescape(re.sub(r"<[^>]*>", "", caption.group(1)))}
    return [output, new_output("display_data", data=texts)]


def write(notebook: NotebookNode) -> str:
    """The notebook as the text of an `.ipynb` file."""
    import nbformat

    return nbformat.writes(notebook) + "\n"


def page(notebook: NotebookNode, title: str) -> str:
    """An executed notebook as one HTML file that opens offline: words, code, and figures with their controls."""
    try:
        from nbconvert.filters.highlight import Highlight2HTML
        from nbconvert.filters.markdown import markdown2html
        from pygments.formatters import HtmlFormatter
    except ImportError:
        raise MissingPackage(MISSING) from None
    highlight = Highlight2HTML(pygments_lexer="python")
    cells = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cells.append({"words": Markup(markdown2html(cell.source)), "code": None, "outputs": []})
        elif cell.cell_type == "code":
            code = Markup(highlight(cell.source))
            cells.append({"words": None, "code": code, "outputs": [Markup(_shown(each)) for each in cell.outputs]})
    styles = HtmlFormatter(style="bw", cssclass="highlight").get_style_defs(".highlight")
    body = rendered("notebook.html.j2", {"cells": cells, "styles": Markup(styles)})
    return document(title, body, WIDTHS)


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"<pre>{html.escape(output.text)}</pre>"
    data = output.data
    for kind in ("text/html", "image/svg+xml"):
        if kind in data:
            return data[kind]
    return f"<pre>{html.escape(data.get('text/plain', ''))}</pre>"
