"""Entries of JSON tables as numbers and words, with errors that name them."""

import re
from collections.abc import Mapping
from typing import Any


class PriceError(ValueError):
    """A configuration that cannot be priced: which entry, what it is, what was expected."""


Table = Mapping[str, Any]
MOST = 1e12
"""No entry is larger."""


def number(table: Table, key: str) -> float | None:
    """A positive number, or None where the entry is missing, null or text."""
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= MOST:
        raise PriceError(f"{key} is {value:.3g}, expected 0 to {MOST:.0g}")
    return float(value) or None


def whole(table: Table, key: str) -> int | None:
    """A positive whole number, or None as for `number`."""
    value = number(table, key)
    if value is not None and value != int(value):
        raise PriceError(f"{key} is {value}, expected a whole number")
    return None if value is None else int(value)


def degree(table: Table, key: str) -> int | None:
    """A whole number of at least 1, or the first one in a text such as "8 (derived)"."""
    value = table.get(key)
    if isinstance(value, str):
        found = re.search(r"\d{1,9}", value)
        return int(found[0]) or None if found else None
    if value == 0:
        raise PriceError(f"{key} is 0, expected at least 1")
    return whole(table, key)


def words(table: Table, key: str) -> str:
    """The entry as text in lower case; empty where it is missing."""
    value = table.get(key)
    return "" if value is None else str(value).lower()
