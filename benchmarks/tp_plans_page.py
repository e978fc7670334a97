"""The tensor-parallel plans of transformers that were checked, and what was found.

`python -m benchmarks.tp_plans_page` writes `benchmarks/results/tp_plans.md`, and the totals in
docs/models.md, of what `make check-zoo` and `--confirm` left in
`benchmarks/results/tp_plans.jsonl`. A class is named as wrong only where a run on real processes
differs, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable

from benchmarks.blocks import DOCS, RESULTS as BESIDE, write
from benchmarks.tp_plans import RAISES, Row, found

RESULTS = BESIDE / "tp_plans.jsonl"
PAGE = RESULTS.with_suffix(".md")
MESHES = ("tp=2", "tp=4")
HEAD = """# Published tensor-parallel plans

Written by `python -m benchmarks.tp_plans_page`; do not edit.

`make check-zoo` takes every causal language model of the installed transformers ({version}) that is
published with a tensor-parallel plan. Each is built small: two layers, and for each rank two heads
of queries, one of keys and two experts. It is checked as `shardproof check hf:CLASS --mesh tp=2
--load made-up` does: outputs, the loss, the gradient of every parameter, and what `from_pretrained`
gives each rank. A run takes {minutes:.0f} minutes of the processor; one that was stopped goes on.

"""
FOUND = """
## What is wrong

What was found was run again by the library alone, on processes with gloo in float64, against one
process (`python -m benchmarks.tp_plan_run CLASS 2`). Named is what differs there, too. *The library
raises*: an error on the ranks that one device does not raise. A repair is a rule which, put beside
those of the plan (`--tp-plan`), gives a plan that is proved.

"""
OPEN = """
## Without a verdict

"""
GRADIENT = re.compile(r"grad:([\w.]+)\.\w+\[")


def rows() -> list[Row]:
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    return sorted((Row(**json.loads(line)) for line in lines), key=lambda r: (r.mesh, r.name))


def cause(row: Row) -> str:
    """What is wrong or missing, without what differs from class to class."""
    what = row.what.split("\n")[0]
    if row.load == "wrong":
        return "`from_pretrained` gives ranks other elements than their placements say"
    if gradient := GRADIENT.search(what):
        module = re.sub(r"\.\d+\.", ".*.", gradient[1])
        return f"the gradient of `{module}` is that of a rank's own part"
    if row.end == "unknown":
        return "no relation to the one-device program was found, and no difference"
    return re.sub(r"\d+", "n", what)[:160].replace("|", "\\|")


def counts(all_rows: list[Row]) -> Iterable[str]:
    yield f"| | {' | '.join(MESHES)} |"
    yield "|---|---|---|"

    def line(name: str, holds: Callable[[Row], bool]) -> str:
        numbers = Counter(r.mesh for r in all_rows if holds(r))
        return f"| {name} | {' | '.join(str(numbers[m]) for m in MESHES)} |"

    def decided(row: Row) -> bool:
        return row.end in ("proved", "refuted")

    yield line("classes with a plan", lambda r: True)
    yield line("do not build so small, on one device", lambda r: r.end == "does not build")
    yield line("**the library raises** on ranks", lambda r: r.end == RAISES)
    yield line("**proved**, loaded right", lambda r: (r.end, r.load) == ("proved", "right"))
    yield line("**proved**, loaded wrong", lambda r: (r.end, r.load) == ("proved", "wrong"))
    yield line(
        "**proved**, load not judged",
        lambda r: r.end == "proved" and r.load not in ("right", "wrong"),
    )
    yield line("**refuted**", lambda r: r.end == "refuted")
    yield line("without a verdict", lambda r: r.end in ("unknown", "refused", "fault"))
    built = [r for r in all_rows if r.end != "does not build"]
    shares: list[str] = []
    for mesh in MESHES:
        here = [r for r in built if r.mesh == mesh]
        able = [r for r in here if r.end != RAISES]
        both = sum(decided(r) or r.end == RAISES for r in here) / max(len(here), 1)
        shares.append(f"{sum(map(decided, able)) / max(len(able), 1):.1%} ({both:.1%})")
    yield f"| share with a verdict, of plans that run | {' | '.join(shares)} |"
    yield ""
    yield "In brackets: of all that build on one device, an error of the library being an answer."


def grouped(some: Iterable[Row], more: Callable[[Row], str]) -> Iterable[str]:
    named: dict[tuple[str, str, str, str], list[str]] = {}
    for r in some:
        end = "loaded wrong" if r.end == "proved" else r.end
        where = r.where.partition("   ")[0] if r.end == RAISES else ""
        key = r.mesh, end, cause(r) + (f" (`{where}`)" if where else ""), more(r)
        named.setdefault(key, []).append(r.name.removesuffix("ForCausalLM"))
    for (mesh, end, what, beside), names in sorted(named.items()):
        yield f"| {mesh} | {end} | {what} | {', '.join(names)} | {beside} |"


def page(all_rows: list[Row]) -> str:
    minutes = sum(r.cpu for r in all_rows) / 60
    versions = ", ".join(sorted({r.version for r in all_rows}))
    held = [r for r in all_rows if found(r) and r.run]
    open_ones = [r for r in all_rows if r.end in ("unknown", "refused", "fault")]
    others = [r for r in all_rows if found(r) and not r.run]
    out = [*counts(all_rows), FOUND, "| mesh | verdict | what | classes | repair |"]
    out += ["|---|---|---|---|---|", *grouped(held, lambda r: r.repair and f"`{r.repair}`")]
    if others:
        out += ["", f"Not confirmed by a run, so not named: {len(others)}."]
    out += [OPEN, "| mesh | verdict | what | classes | at |", "|---|---|---|---|---|"]
    out += grouped(open_ones, lambda r: f"`{r.where.partition('   ')[0]}`" if r.where else "")
    return HEAD.format(version=versions, minutes=minutes) + "\n".join(out) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(rows()), encoding="utf-8")
    write(DOCS / "models.md", "published plans", "\n".join(counts(rows())) + "\n")
