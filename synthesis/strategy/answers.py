"""Answers to rows of `shardproof.synthesis.price.rows`: what a configuration costs, a line each.

A row that states no degrees takes the fastest that fits of all that have what it does state.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan
from shardproof.synthesis.price.reading import PriceError, Table
from shardproof.synthesis.price.rows import read_row
from shardproof.synthesis.price.step import Price, price
from shardproof.synthesis.strategy.search import Search
from shardproof.synthesis.strategy.space import RECOMPUTE, Space
from shardproof.synthesis.strategy.words import short


def chosen(machine: Machine, model: Model, plan: Plan) -> Plan:
    """The plan; where its layout is open, the fastest that fits with the rest of it, else the
    leanest with that.

    Raises:
        PriceError: no degrees make that many devices of the model.
    """
    if "layout" not in plan.open:
        return plan
    fixed: dict[str, int | str] = {} if "cp" in plan.open else {"cp": plan.cp}
    if "recompute" not in plan.open and plan.recompute in RECOMPUTE:
        fixed["recompute"] = plan.recompute
    space = Space(
        machine, model, plan.gpus, plan.step_tokens // plan.seq, plan.seq, plan.precision,
        fixed=tuple(fixed.items()),
    )  # fmt: skip
    search = Search(space)
    best = next(search.plans(), None)
    if best is not None:
        return best.plan
    if not search.too_large:
        raise PriceError(f"no degrees make {plan.gpus} devices of this model")
    region = min(search.too_large, key=lambda r: search.too_large[r].total)
    ways = (space.plan(region, c, z) for c in space.recomputes() for z in space.zeros(region))
    return min(ways, key=lambda p: search.memory(p).total)


def answer(row: Table, tables: Table) -> dict[str, Any]:
    """The line that answers a row."""
    try:
        return said(row.get("id"), *read_row(row, tables))
    except PriceError as error:
        return {"id": row.get("id"), "error": str(error)}


def said(key: Any, machine: Machine, model: Model, plan: Plan) -> dict[str, Any]:
    """A price as a line; where it does not fit, which kind of memory takes most."""
    taken = chosen(machine, model, plan)
    found: Price = price(machine, model, taken)
    out: dict[str, Any] = {
        "id": key,
        "step_s": found.step_s,
        "memory_bytes": round(found.memory.total),
        "mfu": found.mfu,
        "bubble": found.bubble,
        "exposed_comm_s": found.exposed_comm_s,
    }
    if not found.fits:
        out["does_not_fit"] = found.memory.largest
    assumed = [*model.assumed, *([short(taken)] if "layout" in plan.open else [])]
    if assumed:
        out["assumed"] = assumed
    return out


def answers(lines: Iterable[str], tables: Table) -> Iterator[dict[str, Any]]:
    """One answer for each line that is not empty; a line that is no row is an error of its own."""
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            yield {"id": None, "error": f"line {at}: {error}"}
            continue
        if isinstance(row, dict):
            yield answer(cast(Table, row), tables)
        else:
            yield {"id": None, "error": f"line {at}: not an object"}
