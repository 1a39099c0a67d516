"""An HTML document around figures: the palette, the rules, the scripts, and no request to anybody."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, SupportsFloat

import jinja2
from markupsafe import Markup

from headlab.interp.render import theme

# A wide drawing may shrink this far before the narrow one takes over: its smallest text is then still 10 px.
SHRINK = 0.87
CIRCUITSVIS = "circuitsvis"


def template(name: str) -> str:
    """The text of a file of `interp/render/templates`."""
    return files("headlab.interp.render").joinpath("templates", name).read_text(encoding="utf-8")


def rendered(name: str, values: Mapping[str, Any]) -> str:
    """A template filled in: every value is escaped but what is Markup; a missing value is an error."""
    loader = jinja2.FunctionLoader(template)
    machine = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return machine.get_template(name).render(**values)


def switch_css(widths: Iterable[SupportsFloat]) -> str:
    """The rules that show the narrow drawing where a wide one of these widths would have to shrink too far."""
    return "".join(
        f"@container hl (max-width:{int(width * SHRINK)}px){{.hl-w{width} .hl-narrow{{display:block}}"
        f".hl-w{width} .hl-wide:has(~.hl-narrow){{display:none}}}}"
        for width in sorted({round(float(width)) for width in widths})
    )


def scripts(names: Iterable[str]) -> str:
    """The inline scripts of these names, each once."""
    parts = []
    for name in dict.fromkeys(names):
        if name == CIRCUITSVIS:
            parts.append(f'<script type="text/plain" class="hl-circuitsvis">{_circuitsvis()}</script>')
        else:
            parts.append(f"<script>{template(name)}</script>")
    return "".join(parts)


@cache
def _circuitsvis() -> str:
    """The script that circuitsvis ships for pages, packed (gzip, base64): a third of its size, and no quoting."""
    code = files("circuitsvis").joinpath("dist", "cdn", "iife.js").read_text(encoding="utf-8")
    code = code.partition("//# sourceMappingURL=")[0].replace("</script", "<\\/script")
    return base64.b64encode(gzip.compress(code.encode(), 9, mtime=0)).decode()


def document(
    title: str,
    body: str,
    widths: Iterable[SupportsFloat],
    assets: Iterable[str] = (),
    *,
    lang: str = "en",
) -> str:
    """A whole HTML document around `body`, which holds figures of these widths that can use these scripts."""
    rules = f"{theme.page_css()}{template('page.css')}{template('figure.css')}{switch_css(widths)}"
    whole = rendered(
        "document.html.j2",
        {
            "lang": lang,
            "title": title,
            "rules": Markup(rules),
            "body": Markup(body),
            "scripts": Markup(scripts(assets)),
        },
    )
    return theme.without_fallbacks(whole)
