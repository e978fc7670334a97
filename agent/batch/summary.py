"""`summary.json`, `summary.md` and `summary.html` of a batch, from its rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup
from pydantic import BaseModel

from shardproof.agent.batch.rows import MEANING, ORDER, Row, Status, sort_key
from shardproof.agent.report import html, markdown
from shardproof.agent.report.markdown import Limits, Marked
from shardproof.agent.report.text import count, duration, legible, size

FORMAT = 1
FILES = ("summary.json", "summary.md", "summary.html")
MOST_ROWS = 400
"""Rows that the markdown shows; the others are pointed at."""
LONGEST = 60
"""Jobs whose time is shown by part: those that took longest."""
PARTS: Mapping[str, tuple[str, ...]] = {
    "capture": ("capture", "inspect", "reuse"),
    "plan": ("plan",),
    "prove": ("verify", "check", "read"),
    "emit and run": ("emit", "run", "report"),
}
"""What is told together; the rest is starting the process."""


def split(row: Row) -> dict[str, float]:
    """Seconds by part; they add up to those of the row."""
    parts = {name: sum(row.phases.get(p, 0.0) for p in names) for name, names in PARTS.items()}
    return {**parts, "the rest": max(row.seconds - sum(parts.values()), 0.0)}


class Group(BaseModel, frozen=True, extra="forbid"):
    """Jobs that are not proved for one cause."""

    status: Status
    message: str
    """Of the first of them."""
    alike: bool
    """Whether all say exactly this."""
    where: str = ""
    hint: str = ""
    jobs: list[str]


class Summary(BaseModel, frozen=True, extra="forbid"):
    """All of a batch. The schema of `summary.json`: fields are added, never renamed."""

    format: int = FORMAT
    shardproof: str
    command: str
    complete: bool
    """Whether every job that was selected came to an end."""
    counts: dict[Status, int]
    """Jobs by status, those of them that were done before included."""
    useless: int = 0
    """Jobs that are proved and whose plan splits less than half of what the mesh could split."""
    kept: int
    models: int
    """Distinct models among the jobs."""
    captures: int
    """Captures of this run, those that were refused included."""
    reused: int
    """Jobs of this run whose model was captured by another one."""
    seconds: float
    """Of this run, by the clock."""
    job_seconds: float
    """Of the jobs of this run, added up."""
    proof_s: float
    """Of these, proving and checking certificates."""
    versions: dict[str, str]
    causes: list[Group]
    jobs: list[Row]


def summarised(rows: Iterable[Row], *, models: int, **said: Any) -> Summary:
    """The summary of rows, sorted: what needs a look comes first."""
    ordered = sorted(rows, key=sort_key)
    tally = Counter(row.status for row in ordered)
    fresh = [row for row in ordered if not row.kept]
    return Summary(
        counts={status: tally[status] for status in ORDER if tally[status]},
        useless=sum(row.status == "proved" and row.useful is False for row in ordered),
        kept=sum(row.kept for row in ordered),
        models=models,
        captures=sum("capture" in row.phases for row in fresh),
        reused=sum(row.model_reused for row in fresh),
        job_seconds=round(sum(row.seconds for row in fresh), 3),
        proof_s=round(sum(row.proof_s for row in fresh), 3),
        causes=causes(ordered),
        jobs=ordered,
        **said,
    )


def rows_in(root: Path) -> dict[str, Row]:
    """The rows of the summary of an earlier run by name; none where there is no such summary."""
    try:
        found = Summary.model_validate_json((root / FILES[0]).read_bytes())
    except (OSError, ValueError):
        return {}
    return {row.name: row for row in found.jobs}


def causes(rows: Sequence[Row]) -> list[Group]:
    """One line a cause, the most frequent first."""
    found: dict[tuple[Status, str], list[Row]] = {}
    for row in rows:
        if row.cause is not None and row.status != "not run":
            found.setdefault((row.status, row.cause.group), []).append(row)
    groups: list[Group] = []
    for (status, _), alike in found.items():
        said = [row.cause for row in alike if row.cause is not None]
        places, hints = {c.where for c in said}, {c.hint for c in said}
        groups.append(
            Group(
                status=status,
                message=said[0].message,
                alike=len({c.message for c in said}) == 1,
                where=said[0].where if len(places) == 1 else "",
                hint=said[0].hint if len(hints) == 1 else "",
                jobs=[row.name for row in alike],
            )
        )
    return sorted(groups, key=lambda g: (ORDER.index(g.status), -len(g.jobs)))


def texts(found: Summary) -> dict[str, str]:
    """The three files by name."""
    return {
        "summary.json": found.model_dump_json(indent=1) + "\n",
        "summary.md": _markdown(found),
        "summary.html": _html(found),
    }


def headline(found: Summary) -> str:
    """`12 jobs: 9 proved, 2 refused, 1 timeout; 4 of them done before`."""
    total = len(found.jobs)
    parts = ", ".join(f"{n} {status}" for status, n in reversed(found.counts.items()))
    useless = f"; {found.useless} proved but not useful" if found.useless else ""
    kept = f"; {found.kept} of them done before" if found.kept else ""
    return f"{total} job{'' if total == 1 else 's'}: {parts}{useless}{kept}"


def worst(found: Summary) -> str:
    """The class of the page: proved, refuted or unknown."""
    if found.counts.get("refuted") or found.counts.get("failed"):
        return "refuted"
    return "proved" if set(found.counts) == {"proved"} else "unknown"


def stats(found: Summary) -> list[tuple[str, str, str]]:
    """Figures first: label, value, note."""
    total = len(found.jobs)
    proved = found.counts.get("proved", 0)
    ran = found.captures + found.reused
    out = [
        ("Proved", f"{proved} of {total}", f"{found.kept} done before" if found.kept else ""),
        ("Proved and useful", f"{proved - found.useless} of {total}", ""),
        ("Models", count(found.models), f"{found.captures} captured, {found.reused} reused"),
        ("Time of the batch", duration(found.seconds), f"jobs: {duration(found.job_seconds)}"),
    ]
    if ran:
        share = found.proof_s / found.job_seconds if found.job_seconds else 0.0
        out.append(("Proving", duration(found.proof_s), f"{share:.0%} of the jobs' time"))
    return out


def collectives(row: Row) -> str:
    return ", ".join(f"{n} {op}" for op, n in row.collectives.items())


def detail(row: Row) -> str:
    """The plan in short, or why there is none."""
    return row.strategy if row.cause is None else row.cause.message.split("\n")[0]


def ran(row: Row) -> str:
    """What came of running the patch."""
    if row.agrees is None:
        return "–"
    return "agrees" if row.agrees else "differs"


def useful(row: Row) -> str:
    """Whether the plan splits at least half of what could be split, in a word."""
    if row.useful is None or row.status == "not run":
        return "–"
    return "yes" if row.useful else "no"


def _context(found: Summary) -> dict[str, Any]:
    return {
        "s": found,
        "headline": headline(found),
        "stats": stats(found),
        "meaning": MEANING,
        "collectives": collectives,
        "detail": detail,
        "ran": ran,
        "useful": useful,
        "located": {name for group in found.causes if group.where for name in group.jobs},
        "waiting": found.counts.get("not run", 0),
    }


def _loaded(environment: Environment) -> Environment:
    ours = PackageLoader("shardproof.agent.batch", "templates")
    before = environment.loader
    return environment.overlay(
        loader=ChoiceLoader([ours, *([before] if before is not None else [])])
    )


def _markdown(found: Summary) -> str:
    environment = _loaded(markdown.environment(Limits(MOST_ROWS, 0, 300)))
    template = environment.get_template("summary.md.j2")
    return template.render(**_context(_legible(found)), link=_link).strip() + "\n"


def _link(text: str, to: str) -> Marked:
    """Names of jobs and paths made of them need no escape in a link."""
    return Marked(f"[{text}]({to})" if to else text)


def _html(found: Summary) -> str:
    shown = _legible(found)
    ran = sorted((r for r in shown.jobs if r.seconds > 0), key=lambda r: -r.seconds)
    return html.render(
        _loaded(html.environment()).get_template("summary.html.j2"),
        html.stylesheet() + Markup(STYLE),
        worst=worst(shown),
        longest=[(row, split(row)) for row in ran[:LONGEST]],
        size=size,
        script=Markup(SORT),
        script_hash=html.digest(SORT),
        **_context(shown),
    )


SORT = resources.files("shardproof.agent.batch").joinpath("templates/sort.js").read_text("utf-8")
STYLE = """
.mark.failed { color: var(--bad); background: var(--bad-bg); }
.mark.timeout, .mark.refused { color: var(--warn); background: var(--warn-bg); }
.mark.not-run { color: var(--muted); background: var(--sunk); }
.page { grid-template-columns: minmax(0, 1fr); }
td.why { min-width: 15rem; max-width: 24rem; }
td.why .under, #causes .under { white-space: normal; overflow-wrap: anywhere; }
#jobs thead th { cursor: pointer; }
#jobs th[aria-sort="ascending"]::after { content: " ▲"; }
#jobs th[aria-sort="descending"]::after { content: " ▼"; }
#jobs th, #jobs td { padding-left: .45rem; padding-right: .45rem; }
"""


def _legible(found: Summary) -> Summary:
    """The same with hidden characters of every string made visible."""
    return Summary.model_validate(legible(found.model_dump()))
