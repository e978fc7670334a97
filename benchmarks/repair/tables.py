"""The results as a page of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.repair.outcome import STAGES, Outcome, Row

LEFT = 60
"""Programs that were not repaired, of which at most so many are listed."""


def page(
    name: str,
    about: Mapping[str, str],
    rows: Mapping[str, Row],
    kinds: Mapping[str, Mapping[str, int]],
    outcomes: Sequence[Outcome],
) -> str:
    """Rates, seconds, acceptance by tactic, and what was left."""
    machine = "; ".join(f"{k} {v}" for k, v in about.items())
    parts = [f"# {name}\n\n{machine}.\n"]
    if rows:
        heads = list(next(iter(rows.values())))
        body = [[group, *(_shown(row[head]) for head in heads)] for group, row in rows.items()]
        parts.append(_turned(["", *heads], body))
    if kinds:
        parts.append("Edits by kind:\n")
        shown = [[kind, *(str(row[stage]) for stage in STAGES)] for kind, row in kinds.items()]
        parts.append(table(["edit", *STAGES], shown))
    left = [o for o in outcomes if not o.repaired and not o.none]
    if left:
        parts.append("Not repaired:\n")
        shown = [[f"{o.part}: {o.name}", str(o.faults or "-"), _cut(o.what)] for o in left[:LEFT]]
        parts.append(table(["program", "faults", "what"], shown))
    return "\n".join(parts)


def _shown(value: float | int | str) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cut(what: Sequence[str]) -> str:
    text = "; ".join(what).replace("|", "/")
    return text if len(text) <= 120 else f"{text[:117]}..."


def _turned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its columns as lines."""
    body = [[head, *(row[i] for row in rows)] for i, head in enumerate(heads) if i]
    return table(["", *(row[0] for row in rows)], body)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
