"""The tables of a campaign, as Markdown."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.patches.campaign import BAD, ENDS, Row


def report(rows: Sequence[Row]) -> str:
    """Ends by mesh and by feature, the share of right patches that are proved, what was refused
    and why, and every wrong patch that is proved."""
    by_mesh: dict[str, list[Row]] = defaultdict(list)
    by_feature: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_mesh[row.mesh].append(row)
        for feature in row.features:
            by_feature[feature].append(row)
    tool, truth = sum(row.tool_s for row in rows), sum(row.truth_s for row in rows)
    parts = [
        f"{len({row.name for row in rows})} models, {len(rows)} cases; the tool took {tool:.0f} s, "
        f"the truth {truth:.0f} s",
        "\n".join(f"- {end}: {meaning}" for end, meaning in ENDS.items()),
        _table("mesh", {**by_mesh, "all": list(rows)}),
        *(_listed(rows, end) for end in (*BAD, "lost", "fault")),
        _messages("refused", (row.message for row in rows if row.end == "refused")),
        _table("feature", dict(sorted(by_feature.items()))),
        _excused(rows),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(name: str, groups: dict[str, list[Row]]) -> str:
    lines = [
        f"| {name} | cases | {' | '.join(ENDS)} | right ones proved |",
        "|---|" + "---|" * (len(ENDS) + 2),
    ]
    for key, rows in groups.items():
        ends = Counter(row.end for row in rows)
        right = ends["proved"] + ends["lost"]
        share = f"{100 * ends['proved'] / right:.1f} %" if right else ""
        counts = " | ".join(str(ends[end] or "") for end in ENDS)
        lines.append(f"| {key} | {len(rows)} | {counts} | {share} |")
    return "\n".join(lines)


def _listed(rows: Iterable[Row], end: str) -> str:
    """The cases of one end, with what was said of the patch, or found."""
    lines = [
        f"- {row.name}, {row.mesh}: {row.found if end in BAD or not row.message else row.message}"
        f"  [{', '.join(row.features)}]"
        for row in rows
        if row.end == end
    ]
    return "\n".join([f"{ENDS[end]}: {len(lines)}", *lines]) if lines else ""


def _messages(title: str, messages: Iterable[str]) -> str:
    """Messages with their numbers and names left out, by how often they came."""
    counts = Counter(re.sub(r"\[.*|\d+|/\S+|'[^']*'", "…", m)[:160] for m in messages)
    lines = [f"- {n}: {message}" for message, n in counts.most_common()]
    return "\n".join([f"{title}: {sum(counts.values())}", *lines]) if lines else ""


def _excused(rows: Sequence[Row]) -> str:
    n = sum(1 for row in rows if row.excused and row.end == "proved")
    return (
        f"{n} proved patches differ where labels are counted unequally, which they forbid"
        if n
        else ""
    )
