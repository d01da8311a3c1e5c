"""Pages: what self-contained HTML pages have in common: their templates and style, numbers, pictures within the page."""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import Any

import jinja2

from dp_dask.core.privacy import rounded_up

__all__ = ["figures", "inline_svg", "template"]


def template(name: str) -> jinja2.Template:
    """Return a page's template: all that it is given is escaped, and what is missing is an error."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["figures"] = figures
    environment.filters["rounded_up"] = rounded_up
    return environment.get_template(name)


def figures(value: float | None) -> str:
    """Show a number with four significant figures, and one that there is not as none."""
    return "none" if value is None else f"{value:.4g}"


def inline_svg(figure: Any, label: str) -> str:
    """Return a Matplotlib figure as an SVG element with a label for those who do not see it."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" ', 1)
