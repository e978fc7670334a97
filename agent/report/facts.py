"""What both renderers derive from a report: the figures up front, warnings, totals, sections, and
the lines of the diff."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from shardproof.agent.report.model import Report
from shardproof.agent.report.text import count, duration, shape, short, size, small, times
from shardproof.synthesis.execute.run.running import Difference
from shardproof.synthesis.planner.plan import CollectiveUse
from shardproof.synthesis.strategy.words import TERMS


@dataclass(frozen=True, slots=True)
class Stat:
    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    """Also the anchor and the template."""
    heading: str


WORDS = {"proved": "Proved", "refuted": "Refuted", "unknown": "Unknown"}


def environment(filters: dict[str, Callable[..., Any]], **options: Any) -> Environment:
    """Templates of reports, with the filters of both forms and more."""
    made = Environment(
        loader=PackageLoader("shardproof.agent.report", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **options,
    )
    common = {f.__name__: f for f in (size, duration, count, small, shape, short)}
    cast("dict[str, Callable[..., Any]]", made.filters).update(common | filters)
    return made


def context(report: Report, most_lines: int) -> dict[str, Any]:
    """What templates are given; at most so many lines of the diff."""
    lines = diff_lines(report.patch.diff) if report.patch else ()
    return {
        "r": report,
        "word": WORDS[report.verdict],
        "sections": sections(report),
        "stats": stats(report),
        "alerts": alerts(report),
        "totals": totals(report.collectives),
        "groups": grouped(report.collectives),
        "differences": ranked(report.execution.differences) if report.execution else (),
        "diff_lines": parallelize_first(lines)[:most_lines],
        "diff_hidden": max(len(lines) - most_lines, 0),
        "diff_changed": changed(lines),
        "mesh_names": [dim.name for dim in report.mesh],
        "terms": TERMS,
    }


def sections(report: Report) -> tuple[Section, ...]:
    """Those with something to show, in reading order: a failure comes before the plan."""
    proved = report.verdict == "proved"
    claimed = report.scope or report.assumptions or report.not_proved
    pictured = report.mesh or report.plan or report.memory or report.time
    evidence = report.proof or report.refuter or report.execution or report.patch_standing
    possible = (
        ("missing", "What was missing", report.missing),
        ("counterexample", "Counterexample", report.counterexample),
        ("claim", "What was proved" if proved else "What was checked", claimed),
        ("configuration", "Training configuration", report.configuration),
        ("glance", "At a glance", pictured),
        ("plan", "Plan by module", report.plan),
        ("collectives", "Collectives", report.collectives),
        ("cost", "Memory and time", report.memory or report.time),
        ("evidence", "Evidence", evidence),
        ("patch", "Patch", report.patch or report.obligations),
        ("candidates", "Rejected candidates", report.candidates),
        ("reproduce", "Reproduce", True),
    )
    return tuple(Section(name, heading) for name, heading, shown in possible if shown)


def stats(report: Report) -> tuple[Stat, ...]:
    """The figures a reader wants first; only those that are known."""
    out: list[Stat] = []
    if report.mesh:
        ranks = math.prod(dim.size for dim in report.mesh)
        named = " × ".join(f"{d.name} {d.size}" for d in report.mesh)
        out.append(Stat("Ranks", count(ranks), named))
    if report.memory:
        before, after = (sum(m.values()) for m in (report.memory.before, report.memory.after))
        note = f"{size(before)} on one device"
        if 0 < after < 0.95 * before:
            note = f"{times(before, after)} less than {size(before)}"
        out.append(Stat("Memory per rank", size(after), note))
    if report.collectives:
        moved = sum(use.total for use in report.collectives)
        uses = sum(use.count for use in report.collectives)
        out.append(Stat("Communicated per step", size(moved), f"{count(uses)} collectives"))
    if report.time:
        share = report.time.exchange / report.time.total if report.time.total > 0 else 0.0
        note = f"{share:.0%} communication"
        out.append(Stat("Step, estimated", duration(report.time.total), note))
    if report.proof and report.proof.seconds is not None:
        engine = f"engine: {report.proof.engine}, " if report.proof.engine else ""
        note = f"{engine}checker: {report.proof.checker}"
        out.append(Stat("Proof", duration(report.proof.seconds), note))
    if report.execution:
        worst = largest(report.execution.differences)
        shown = small(worst) if worst is not None else "–"
        note = f"{report.execution.world_size} processes against one"
        out.append(Stat("Largest difference", shown, note))
    return tuple(out)


def largest(differences: tuple[Difference, ...]) -> float | None:
    """The worst relative difference; nan counts as worst."""
    values = [d.relative for d in differences]
    if any(math.isnan(v) for v in values):
        return math.nan
    return max(values, default=None)


def ranked(differences: tuple[Difference, ...]) -> tuple[Difference, ...]:
    """Worst first, nan before everything."""

    def key(difference: Difference) -> float:
        value = difference.relative
        return -math.inf if math.isnan(value) else -value

    return tuple(sorted(differences, key=key))


def alerts(report: Report) -> tuple[str, ...]:
    """Evidence that speaks against the verdict; a reader must not miss it."""
    out: list[str] = []
    proved = report.verdict == "proved"
    if report.execution and not report.execution.agrees:
        out.append(
            "The executed patch differs from one process although it was proved: do not use it, "
            "and report this as a defect."
            if proved
            else "The executed patch differs from one process."
        )
    if proved and report.proof and report.proof.checker == "rejected":
        out.append("The certificate checker rejected the certificate: this is not a proof.")
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Group:
    """Collectives of one op over one mesh dim in one pass."""

    op: str
    mesh_dim: str
    phase: str
    uses: tuple[CollectiveUse, ...]

    @property
    def count(self) -> int:
        return sum(use.count for use in self.uses)

    @property
    def total(self) -> int:
        return sum(use.total for use in self.uses)

    @property
    def reasons(self) -> str:
        return "; ".join(dict.fromkeys(use.reason for use in self.uses if use.reason))


def grouped(collectives: tuple[CollectiveUse, ...]) -> tuple[Group, ...]:
    """Most bytes first."""
    found: dict[tuple[str, str, str], list[CollectiveUse]] = {}
    for use in collectives:
        found.setdefault((use.op, use.mesh_dim, use.phase), []).append(use)
    groups = (Group(*key, tuple(uses)) for key, uses in found.items())
    return tuple(sorted(groups, key=lambda g: -g.total))


def totals(collectives: tuple[CollectiveUse, ...]) -> tuple[tuple[str, str, int, int], ...]:
    """(mesh dim, phase, number, bytes) in the order they first appear."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for use in collectives:
        number, moved = sums.get((use.mesh_dim, use.phase), (0, 0))
        sums[use.mesh_dim, use.phase] = (number + use.count, moved + use.total)
    return tuple((dim, phase, n, moved) for (dim, phase), (n, moved) in sums.items())


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: str
    """"add", "del", "hunk", "file", "note" or "same"."""
    number: int | None
    """In the new file; in the old file for a deleted line."""
    text: str


def diff_lines(diff: str) -> tuple[DiffLine, ...]:
    """Hunk headers say how many lines follow, so that `--- x` inside a hunk is a deleted `-- x`."""
    out: list[DiffLine] = []
    old = new = old_left = new_left = 0
    for text in diff.removesuffix("\n").split("\n") if diff else ():
        header = re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", text)
        if text.startswith("\\"):
            out.append(DiffLine("note", None, text))
        elif old_left > 0 or new_left > 0:
            sign = text[:1]
            kind = {"+": "add", "-": "del"}.get(sign, "same")
            out.append(DiffLine(kind, old if kind == "del" else new, text))
            if kind != "add":
                old, old_left = old + 1, old_left - 1
            if kind != "del":
                new, new_left = new + 1, new_left - 1
        elif header:
            old, new = int(header[1]), int(header[3])
            old_left, new_left = int(header[2] or 1), int(header[4] or 1)
            out.append(DiffLine("hunk", None, text))
        else:
            out.append(DiffLine("file", None, text))
    return tuple(out)


def parallelize_first(lines: tuple[DiffLine, ...]) -> tuple[DiffLine, ...]:
    """The same with the hunks of each file that add `parallelize` before its others."""
    files: list[tuple[list[DiffLine], list[list[DiffLine]]]] = []
    for item in lines:
        if not files or (item.kind == "file" and files[-1][1]):
            files.append(([], []))
        head, hunks = files[-1]
        if item.kind == "hunk":
            hunks.append([])
        (hunks[-1] if hunks else head).append(item)

    def later(hunk: list[DiffLine]) -> bool:
        return not any(i.kind == "add" and "def parallelize(" in i.text for i in hunk)

    return tuple(
        item for head, hunks in files for part in (head, *sorted(hunks, key=later)) for item in part
    )


def changed(lines: tuple[DiffLine, ...]) -> tuple[int, int]:
    """(added, deleted)"""
    kinds = [item.kind for item in lines]
    return kinds.count("add"), kinds.count("del")
