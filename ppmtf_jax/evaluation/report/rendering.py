"""From a report to one page of HTML, which contains its style sheet and pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from itertools import count

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ppmtf_jax.evaluation.report.blocks import Finding, Picture, Report, Status
from ppmtf_jax.runtime.files import has_mark

MAKER = "ppmtf_jax report"
TEMPLATE, STYLE_SHEET = "page.html.jinja", "style.css"
# Whether `render` made the page in a file.
is_report = partial(has_mark, mark=rb'(?s)\A.{0,2000}<meta name="generator" content="%b"' % MAKER.encode())


def render(report: Report) -> str:
    """The page of a report."""
    loader = PackageLoader("ppmtf_jax.evaluation.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["with_code"] = with_code
    style, _, _ = loader.get_source(environment, STYLE_SHEET)
    return environment.get_template(TEMPLATE).render(
        report=report,
        style=Markup(style),
        maker=MAKER,
        version=version("ppmtf_jax"),
        statuses=list(Status),
        tally=tally,
        svg=partial(_svg, count(1)),
    )


def with_code(text: str) -> Markup:
    """Escaped text, with code between backticks."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(Markup.escape(text))))


def tally(findings: list[Finding]) -> str:
    """How many findings have each status, such as "2 good, 1 poor"."""
    counts = {status: sum(finding.status is status for finding in findings) for status in Status}
    return ", ".join(f"{n} {status.word.lower()}" for status, n in counts.items() if n)


def _svg(numbers: Iterator[int], picture: Picture) -> Markup:
    """A picture as an SVG element that scales with the page; its number makes its ids differ from all others."""
    svg, prefix = picture.svg, f"picture{next(numbers)}-"
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
    svg = re.sub(r'href="#', f'href="#{prefix}', svg)
    view = re.search(r'viewBox="([^"]*)"', svg)
    begin = svg.index(">") + 1
    box = view[1] if view else "0 0 1 1"
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'viewBox="{box}" style="max-width: {picture.width_px}px" aria-label="{Markup.escape(picture.alt)}">'
    )
    return Markup(opening + svg[begin:])
