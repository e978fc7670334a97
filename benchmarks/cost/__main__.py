"""Fit constants on some models, and score them on others: `python -m benchmarks.cost`.

Models are dealt into two halves, source by source; each half is priced with constants that were
fitted on the other. `--sources` leaves out whole sources in turn instead: their software stack is
then not fitted at all. `--shipped` scores the constants that are in the package, fitted on all.
`--write` fits on all rows, and writes the constants into the package.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.cost.fit import Fitted, fit
from benchmarks.cost.score import Score, score
from benchmarks.cost.tables import Measured, groups, measured, rows
from benchmarks.cost.write import write
from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.strategy.answers import answer, said


def halves(data: list[Measured]) -> Callable[[Measured], int]:
    """Half 0 or 1: the models of a source in turn, or its groups where it has one model."""
    models = {s: len({x.row["model"] for x in data if x.source == s}) for s in sources(data)}

    def unit(x: Measured) -> str:
        return x.row["model" if models[x.source] > 1 else "group"]

    units = {s: sorted({unit(x) for x in data if x.source == s}) for s in models}
    return lambda x: units[x.source].index(unit(x)) % 2


def sources(data: list[Measured]) -> list[str]:
    """Sources by name."""
    return sorted({x.source for x in data})


def quarters(data: list[Measured]) -> Callable[[Measured], int]:
    """One of four by source."""
    names = sources(data)
    return lambda x: names.index(x.source) % 4


def left_out(
    data: list[Measured], fold: Callable[[Measured], int], rounds: int
) -> dict[str, dict[str, Any]]:
    """Answers for every row, with constants fitted on the rows of other folds."""
    out: dict[str, dict[str, Any]] = {}
    for at in sorted({fold(x) for x in data}):
        began = time.process_time()
        made = fit([x for x in data if fold(x) != at], rounds)
        own = [x for x in data if fold(x) == at]
        out |= answers(own, made)
        print(f"fold {at}: {len(own)} rows left out, {time.process_time() - began:.0f} CPU s")
    return out


def answers(data: Iterable[Measured], made: Fitted) -> dict[str, dict[str, Any]]:
    """Answers for rows with fitted constants."""
    out: dict[str, dict[str, Any]] = {}
    for x in data:
        machine = Machine(x.cluster, made.of(x))
        out[x.row["id"]] = said(x.row["id"], machine, x.model, x.plan)
    return out


def report(found: dict[str, dict[str, Any]]) -> Score:
    """Print the score of all rows and by source."""
    every = list(rows())
    whole = score(every, found)
    print(f"all: {whole}")
    for source in sorted({r["group"].split("-")[0] for r in every}):
        some = score([r for r in every if r["group"].split("-")[0] == source], found)
        if some.ran:
            print(f"  {source}: {some}")
    rest = score([r for r in every if not r["group"].startswith("playbook")], found)
    print(f"all but playbook: {rest}")
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] if __doc__ else "")
    parser.add_argument("--sources", action="store_true", help="leave out whole sources")
    parser.add_argument("--shipped", action="store_true", help="score what the package has")
    parser.add_argument("--write", action="store_true", help="fit on all rows, into the package")
    parser.add_argument(
        "--rounds", type=int, default=350, help="steps of each search, half of them"
    )
    parser.add_argument("--out", type=Path, help="file of JSON lines for the predictions")
    asked = parser.parse_args()
    if asked.shipped:
        found = {r["id"]: answer(r, groups()) for r in rows()}
    else:
        data = measured()
        if asked.write:
            made = fit(data, asked.rounds)
            write(made, data)
            found = answers(data, made)
        else:
            fold = quarters(data) if asked.sources else halves(data)
            found = left_out(data, fold, asked.rounds)
    report(found)
    if asked.out:
        asked.out.write_text("".join(json.dumps(line) + "\n" for line in found.values()))


if __name__ == "__main__":
    main()
