"""The page of the models of packages: how far they came at first, and how far they come now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.kept import NOT_TRIED, Kept, counts, lines
from benchmarks.wild.listed import Listed

HEAD = """# Models that nobody tuned

Written by `make zoo-wild`; do not edit. The models are drawn by a seed from the lists of
`benchmarks/wild/listed.txt`, which were written before any of them was tried: models of packages of
the Python index that run on one device, with at most 50 layers that have weights and 5 million
parameters. Of every package, some are drawn. What a first trial could not build on one device got
other arguments, or was left out.

*First* is what the command made of a model the first time that it met it; *now* is after causes
were mended. *Proved* is said of the patch, *run* of its processes against one; a plan is *useful*
where it splits at least half of what the mesh could split, and `--require-useful` does not refuse
it.

"""

DRAWS = """# Models of later draws

Written by `python -m benchmarks.wild --drawn CLONES`; do not edit. The models of
`benchmarks/wild/drawn.txt` are of packages of the Python index and of repositories. Those of a draw
were named before any of them was tried. *First* is before anything was changed for them, and is
never run again. The first rows of the fourteen are of arguments that were not kept: those of the
list were written down later. Where that is all that is known, *useful* stands for at least half.
"""


def page(first: Sequence[Kept], now: Sequence[Kept]) -> str:
    """Markdown: totals, what is left, and a line a model; both in the same order."""
    left = [r for r in _tried(now) if not r.useful]
    mended = [r.name for a, r in zip(first, now, strict=True) if r.useful and not a.useful]
    out = [HEAD + totals(first, now), "## What is left", "", *lines(left)]
    out += ["", f"Useful now and not at first: {len(mended)}.", ""]
    out += ["## The first time", "", *lines(_tried(first)), ""]
    out += ["## Now", "", *lines(_tried(now)), "", "## Not tried", ""]
    out += [f"- {r.name}: {r.said}" for r in now if r.verdict == NOT_TRIED]
    return "\n".join(out) + "\n"


def draws(models: Iterable[Listed], first: Sequence[Kept], now: Sequence[Kept]) -> str:
    """Markdown: of every draw, totals, and what came of each model at first and comes now."""
    of = {one.name: one.draw for one in models}
    out = [DRAWS]
    for draw in dict.fromkeys(of.values()):
        pairs = [(a, r) for a, r in zip(first, now, strict=True) if of[r.name] == draw]
        out += [f"## {draw}\n\n" + totals([a for a, _ in pairs], [r for _, r in pairs])]
        out += ["| model | mesh | first | now |\n|---|---|---|---|"]
        out += [f"| {r.name} | {r.mesh} | {_told(a)} | {_told(r)} |" for a, r in pairs]
        out += [""]
    return "\n".join(out)


def _told(row: Kept) -> str:
    said = row.said.replace("|", "\\|").replace("*", "\\*")
    return "useful" if row.useful else said or row.verdict


def totals(first: Sequence[Kept], now: Sequence[Kept]) -> str:
    """Markdown: how many of each mesh."""
    names = "models | proved | run | useful | of those tried | without a verdict"
    out = [f"| mesh | when | {names} |", "|---|---|---|---|---|---|---|---|"]
    for mesh in dict.fromkeys(r.mesh for r in now):
        for when, rows in (("first", first), ("now", now)):
            some = [r for r in _tried(rows) if r.mesh == mesh]
            numbers = counts(some)
            lost = sum(r.verdict in ("crash", "hang") for r in some)
            cells = [mesh, when, *numbers, f"{numbers[-1] / max(1, len(some)):.0%}", lost]
            out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(out) + "\n\n"


def _tried(rows: Sequence[Kept]) -> list[Kept]:
    return [r for r in rows if r.verdict != NOT_TRIED]
