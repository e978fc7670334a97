"""`report.md`: sized for a comment on a pull request; what is left out is pointed at."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from shardproof.agent.report import facts, text as write
from shardproof.agent.report.model import ModuleRow, Parameter, Report

MOST_BYTES = 60_000
"""GitHub refuses comments above 65,536 characters."""


@dataclass(frozen=True, slots=True)
class Limits:
    rows: int
    diff_lines: int
    cell: int
    """Characters of one value."""


LEVELS = (
    Limits(80, 600, 400),
    Limits(40, 300, 300),
    Limits(24, 120, 200),
    Limits(10, 40, 120),
    Limits(3, 0, 60),
)
"""Tried in order until the whole fits."""


class Marked(str):
    """Text that is markdown already; everything else is escaped on its way into the template."""

    __slots__ = ()


def render_markdown(report: Report) -> str:
    """The report as GitHub markdown of less than `MOST_BYTES`. Strings are escaped, so that names
    and source lines cannot become markup, mentions or links."""
    shown = write.legible(report)
    for limits in LEVELS:
        page = _render(shown, limits)
        if len(page.encode()) < MOST_BYTES:
            return page
    bare = Report(title=shown.title, verdict=shown.verdict, headline=shown.headline)
    return _render(bare, LEVELS[-1])


def _render(report: Report, limits: Limits) -> str:
    template = environment(limits).get_template("report.md.j2")
    page = template.render(facts.context(report, limits.diff_lines))
    return re.sub(r"\n{3,}", "\n\n", page).strip() + "\n"


@cache
def environment(limits: Limits) -> Environment:
    """Every value a template prints is escaped, unless a filter has made it `Marked`: `finalize`
    stands in for the autoescape of HTML."""

    def finalize(value: Any) -> str:
        return value if isinstance(value, Marked) else plain(write.clip(str(value), limits.cell))

    def short_code(value: Any) -> Marked:
        return code(write.clip(str(value), limits.cell))

    def short_cell(value: Any) -> Marked:
        return cell(write.clip(str(value), limits.cell))

    def few(items: Sequence[Any]) -> Sequence[Any]:
        return items[: limits.rows]

    def rest(items: Sequence[Any], where: str) -> Marked:
        hidden = len(items) - limits.rows
        return Marked(f"*{hidden} more in {where}.*" if hidden > 0 else "")

    def parameters(module: ModuleRow) -> Marked:
        return Marked("<br>".join(cell(_parameter(p)) for p in module.parameters[: limits.rows]))

    def row(values: Iterable[Any]) -> Marked:
        return Marked("| " + " | ".join(finalize(value) for value in values) + " |")

    filters: dict[str, Callable[..., Any]] = {
        "number": write.number,
        "parameters": parameters,
        "few": few,
        "rest": rest,
        "row": row,
        "rule": rule,
        "code": short_code,
        "cell": short_cell,
        "block": block,
    }
    return facts.environment(filters, finalize=finalize)


def rule(columns: int) -> Marked:
    """The line below the head of a table."""
    return Marked("|" + " --- |" * columns)


def _parameter(parameter: Parameter) -> str:
    placed = " ".join(f"{name}={where}" for name, where in parameter.placements.items())
    return f"{parameter.name} {write.shape(parameter.shape)} {placed}".rstrip()


def plain(text: str) -> str:
    """Text on one line with nothing in it read as markup, HTML, a mention or a reference."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"([\\`*\[\]<>|~])", r"\\\1", text)
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    text = re.sub(r"&(?=#?\w+;)", "&amp;", text)
    text = re.sub(r"(?<!\w)([@#])(?=\w)", r"\1<!-- -->", text)
    text = re.sub(r"^(\d+)(?=[.)](\s|$))", r"\1\\", text)
    return re.sub(r"^(?=[-+#=](\s|$))", r"\\", text)


def code(text: str) -> Marked:
    """A code span, whatever the backticks in it."""
    text = " ".join(text.split())
    if not text:
        return Marked("")
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return Marked(f"{fence}{pad}{text}{pad}{fence}")


def cell(text: str) -> Marked:
    """A code span inside a table, where a bar must be escaped even in code."""
    return Marked(code(text).replace("|", "\\|"))


def block(text: str, language: str = "") -> Marked:
    """A fenced block, whatever the fences in it."""
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return Marked(f"{fence}{language}\n{text}\n{fence}")
