"""Fitted constants as TOML, with the rows and sources they come from and the error on them."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cost.fit import SWITCHES, Fitted
from benchmarks.cost.tables import Measured, groups
from shardproof.synthesis.price.constants import Machine, stacks
from shardproof.synthesis.price.memory import memory
from shardproof.synthesis.price.step import price

PACKAGE = Path(__file__).parents[2] / "synthesis"
MEASURED = "# What a patch runs: "
"""How the remark on the table begins that is written by hand and stays."""
TOP = """\
# Constants of the price by software stack; synthesis/price/constants.py says what each means.
# Written by `python -m benchmarks.cost --write`, which fits them to benchmarks/tables; `names`,
# and flash, last and zero, are read in the sources and written by hand, and so is `patched`.
"""


def write(made: Fitted, data: Sequence[Measured]) -> None:
    """Write the tables of stacks, and that of each device."""
    blocks = [TOP]
    text = (PACKAGE / "price" / "stacks.toml").read_text("utf-8")
    for stack in stacks():
        if stack == "patched":
            blocks.append(MEASURED + text.partition(MEASURED)[2])
            continue
        own = [x for x in data if x.stack == stack] if stack != "default" else list(data)
        kept = {k: v for k, v in stacks()[stack].items() if k == "names" or k in SWITCHES}
        values = made.default if stack == "default" else made.stack.get(stack, {})
        blocks.append(f"{remark(made, own)}[{stack}]\n{entries({**kept, **values})}")
    (PACKAGE / "price" / "stacks.toml").write_text("\n".join(blocks), "utf-8")
    for path in sorted((PACKAGE / "hardware").glob("*.toml")):
        values = made.device.get(path.stem, {})
        text = re.split(r"\n(?:# [^\n]*\n)*\[price\]", path.read_text("utf-8"))[0].rstrip() + "\n"
        if values:
            own = [x for x in data if x.device == path.stem]
            text += f"\n{remark(made, own)}[price]\n{entries(values)}"
        path.write_text(text, "utf-8")


def entries(values: Mapping[str, object]) -> str:
    """Entries of a table: numbers to three digits."""
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, list):
            lines.append(f"{name} = {json.dumps(value)}")
        else:
            lines.append(f"{name} = {float(format(value, '.3g'))!r}")
    return "".join(line + "\n" for line in lines)


def remark(made: Fitted, rows: Sequence[Measured]) -> str:
    """A comment: how many rows of which sources, and the mean error on them."""
    if not rows:
        return ""
    said = {groups()["groups"][x.row["group"]]["source"].split(" (")[0] for x in rows}
    names = "; ".join(sorted(said)) if len(said) < 6 else f"{len(said)} sources"
    timed = [abs(price(_machine(made, x), x.model, x.plan).step_s / x.step_s - 1)
             for x in rows if x.step_s]  # fmt: skip
    full = [abs(memory(_machine(made, x), x.model, x.plan).total / x.memory - 1)
            for x in rows if x.memory]  # fmt: skip
    errors = [f"{what} {statistics.mean(e):.0%} on {len(e)}"
              for what, e in (("seconds", timed), ("memory", full)) if e]  # fmt: skip
    words = f"{names}. Mean error of the fit: {', '.join(errors) or 'not measured'} rows.".split()
    lines = ["#"]
    for word in words:
        if len(lines[-1]) + len(word) > 97:
            lines.append("#")
        lines[-1] += f" {word}"
    return "\n".join(lines) + "\n"


def _machine(made: Fitted, x: Measured) -> Machine:
    return Machine(x.cluster, made.of(x))
