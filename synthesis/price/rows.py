"""Rows of JSON that describe a model, hardware and a plan."""

from collections.abc import Mapping
from typing import cast

from shardproof.synthesis.price.constants import Machine, constants_of, find, stack_of
from shardproof.synthesis.price.model import Model, read_model
from shardproof.synthesis.price.plan import Plan, read_plan
from shardproof.synthesis.price.reading import PriceError, Table, words


def read_row(row: Table, tables: Table) -> tuple[Machine, Model, Plan]:
    """What a row describes.

    `tables` may hold `models` and `hardware` by name, and `groups` with their `source`.

    Raises:
        PriceError: an entry is missing, unknown or contradicts another.
    """
    plan, name = _table(row, "plan"), row.get("hardware")
    if not isinstance(name, str):
        raise PriceError("hardware is missing")
    model = read_model(_model(row, tables), _layers(plan))
    group = _named(tables, "groups", str(row.get("group")))
    source, system = (str(x or "") for x in (group.get("source"), plan.get("system")))
    stack = stack_of(str(row.get("stack") or ""), name, system, source)
    device, cluster = find(name, _named(tables, "hardware", name), words(plan, "precision"))
    made = constants_of(device, stack)
    return Machine(cluster, made), model, read_plan(plan, model, round(made.zero))


def _layers(plan: Table) -> int | None:
    value = plan.get("layers")
    return value if isinstance(value, int) else None


def _model(row: Table, tables: Table) -> Table:
    said = row.get("model")
    if isinstance(said, str):
        found = _named(tables, "models", said)
        if not found:
            raise PriceError(f"unknown model {said!r}: describe it, or give a file that does")
        return found
    return _table(row, "model")


def _table(row: Table, key: str) -> Table:
    value = row.get(key)
    if not isinstance(value, Mapping):
        raise PriceError(f"{key} is {'missing' if value is None else 'not a table'}")
    return cast(Table, value)


def _named(tables: Table, key: str, name: str) -> Table:
    found = tables.get(key)
    entry = cast(Table, found).get(name) if isinstance(found, Mapping) else None
    return cast(Table, entry) if isinstance(entry, Mapping) else {}
