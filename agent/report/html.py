"""`report.html`: one file with its style and pictures inside, nothing fetched.

Its one script makes the buttons that copy code; without scripts everything else is there."""

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, Template
from markupsafe import Markup

from shardproof.agent.report import facts, text
from shardproof.agent.report.drawings.block import draw_block, style_class
from shardproof.agent.report.drawings.mesh import draw_mesh
from shardproof.agent.report.drawings.step import draw_front, draw_step
from shardproof.agent.report.model import Report

MOST_ROWS = 2000
MOST_DIFF_LINES = 5000
NARROW, WIDE = 312.0, 520.0
"""Pixels a picture is drawn for; the page shows the one that fits its column."""


@cache
def environment() -> Environment:
    """With templates that are compiled once in a process."""
    return facts.environment(
        {"leaf": text.leaf, "style_class": style_class, "number": text.number}, autoescape=True
    )


def render(template: Template, css: str, **context: Any) -> str:
    """A page with its style inside, and with a policy that allows that style alone."""
    return template.render(css=css, style_hash=digest(css), **context)


def digest(text: str) -> str:
    """What a policy names a style or a script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def stylesheet() -> Markup:
    path = resources.files("shardproof.agent.report").joinpath("templates/report.css")
    return Markup(path.read_text("utf-8"))


def render_html(report: Report) -> str:
    """The whole page. Strings are escaped and their hidden characters made visible."""
    shown = text.legible(report)
    script = (
        resources.files("shardproof.agent.report").joinpath("templates/copy.js").read_text("utf-8")
    )
    return render(
        environment().get_template("report.html.j2"),
        stylesheet(),
        pictures=_pictures(shown),
        script=Markup(script),
        script_hash=digest(script),
        most_rows=MOST_ROWS,
        **facts.context(shown, MOST_DIFF_LINES),
    )


def _pictures(report: Report) -> dict[str, Markup | None]:
    """Each picture at both widths, wrapped so that the stylesheet can choose."""
    draw: dict[str, Callable[[float, str], Markup | None]] = {
        "mesh": lambda width, key: draw_mesh(report.mesh, width, key),
        "block": lambda width, key: draw_block(report, width, key),
    }
    if (chosen := report.configuration) is not None:
        draw["step"] = lambda width, key: draw_step(chosen.steps, width, key)
        draw["front"] = lambda width, key: draw_front(chosen.front, width, key)
    out: dict[str, Markup | None] = {}
    for name, drawing in draw.items():
        narrow, wide = drawing(NARROW, f"{name}-narrow"), drawing(WIDE, f"{name}-wide")
        form = Markup('<div class="narrow">{}</div><div class="wide">{}</div>')
        out[name] = form.format(narrow, wide) if narrow and wide else None
    return out
