"""Products as linear equations of logarithms: Gaussian elimination finds what they force."""

import math
from fractions import Fraction

from shardproof.verifier.refute.scale_down.system import Product, System

Exponent = int | Fraction
Row = dict[int, Exponent]
"""Class -> exponent; the product of all powers is 1."""


def simplify(system: System) -> None:
    """Replace the products by as many as are independent, and unify what they force to be equal.

    Each product then gives one class, the largest that could be chosen, by classes that no product
    gives: those are the ones to choose values for.
    """
    while _unify(system):
        pass


def _unify(system: System) -> bool:
    """One elimination; whether some classes became one."""
    kept: list[Product] = []
    rows: list[Row] = []
    for product in system.products:
        if any(system.values[v] == 0 for v in product.members):
            kept.append(product)
        elif row := _row(system, product):
            rows.append(row)
    pivots, fixed = _eliminated(system, rows)
    kept += map(_product, fixed)
    changed = False
    given: dict[frozenset[tuple[int, Exponent]], int] = {}
    for pivot, row in pivots.items():
        rest = {v: -e for v, e in row.items() if v != pivot}
        key = frozenset(rest.items())
        ((other, exponent),) = rest.items() if len(rest) == 1 else ((pivot, 0),)
        same = other if exponent == 1 else given.setdefault(key, pivot)
        if system.root(same) != system.root(pivot):
            system.same(same, pivot)
            changed = True
    system.products = [*kept, *(_product(row, pivot) for pivot, row in pivots.items())]
    return changed


def _row(system: System, product: Product) -> Row:
    row: Row = {}
    for side, sign in ((product.left, 1), (product.right, -1)):
        for v in side:
            root = system.root(v)
            if system.pinned.get(root) != 1:
                row[root] = row.get(root, 0) + sign
    return {v: e for v, e in row.items() if e}


def _eliminated(system: System, rows: list[Row]) -> tuple[dict[int, Row], list[Row]]:
    """Reduced rows by the free class that each gives, with exponent 1; rows of fixed classes."""
    free = set(system.free())
    pivots: dict[int, Row] = {}
    fixed: list[Row] = []
    for row in rows:
        for pivot, by in pivots.items():
            if pivot in row:
                row = _minus(row, by, row[pivot])
        choices = [v for v in row if v in free]
        if not choices:
            if row:
                fixed.append(row)
            continue
        chosen = max(choices, key=lambda v: (system.values[v], v))
        power = row[chosen]
        times = power if abs(power) == 1 else 1 / Fraction(power)
        row = {v: e * times for v, e in row.items()}
        for pivot, by in pivots.items():
            if chosen in by:
                pivots[pivot] = _minus(by, row, by[chosen])
        pivots[chosen] = row
    return pivots, fixed


def _minus(row: Row, by: Row, times: Exponent) -> Row:
    out = dict(row)
    for v, e in by.items():
        out[v] = out.get(v, 0) - times * e
    return {v: e for v, e in out.items() if e}


def _product(row: Row, first: int = -1) -> Product:
    """The row without denominators; the class `first` comes first."""
    scale = math.lcm(*(e.denominator for e in row.values()))
    left = [v for v, e in row.items() for _ in range(int(e * scale))]
    right = [v for v, e in row.items() for _ in range(int(-e * scale))]
    return Product(tuple(sorted(left, key=lambda v: v != first)), tuple(right))
