"""Integer programs over choices, solved by HiGHS, and bounds on them that trust no solver."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

SCALE = 1 << 40
"""Duals are rounded to multiples of 1 / SCALE."""

GAP = 1e-4
"""How far from the best a whole solution may be, as a share of it."""

Terms = list[tuple[int, int]]
"""(variable, coefficient)."""


@dataclass
class Linear:
    """Minimise the sum of cost x variable, each variable between 0 and its top, where each row's
    sum lies between two bounds. All numbers are whole, so that nothing is rounded in a check."""

    cost: list[int] = field(default_factory=list[int])
    top: list[int] = field(default_factory=list[int])
    rows: list[Terms] = field(default_factory=list[Terms])
    low: list[int | None] = field(default_factory=list["int | None"])
    high: list[int | None] = field(default_factory=list["int | None"])

    def variable(self, cost: int = 0, top: int = 1) -> int:
        self.cost.append(cost)
        self.top.append(top)
        return len(self.cost) - 1

    def row(self, terms: Terms, low: int | None, high: int | None) -> None:
        self.rows.append(terms)
        self.low.append(low)
        self.high.append(high)

    def same(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Two sums of variables are equal."""
        self.row([*((v, 1) for v in left), *((v, -1) for v in right)], 0, 0)

    def at_most(self, left: Sequence[int], right: Sequence[int]) -> None:
        """One sum of variables is at most another."""
        self.row([*((v, 1) for v in left), *((v, -1) for v in right)], None, 0)

    def one_of(self, choices: Sequence[int]) -> None:
        self.row([(v, 1) for v in choices], 1, 1)

    def value(self, chosen: Sequence[float]) -> float:
        return sum(c * x for c, x in zip(self.cost, chosen, strict=True))


@dataclass(frozen=True)
class Solved:
    """What a solver says: values of variables, and duals of rows in multiples of 1 / SCALE."""

    values: tuple[float, ...]
    duals: tuple[int, ...]
    whole: bool
    """Whether the values are a choice, not a mixture."""


def bound(program: Linear, duals: Sequence[int]) -> Fraction:
    """A lower bound on every solution, from duals of any origin.

    For any y: cost x = y A x + (cost - y A) x. The first is at least y times the bound of each row
    on the side of y's sign, the second at least the negative reduced costs times the tops. A dual
    on a side without a bound counts as 0.
    """
    total, reduced = reduced_costs(program, duals)
    total += sum(r * top for r, top in zip(reduced, program.top, strict=True) if r < 0)
    return Fraction(total, SCALE)


def reduced_costs(program: Linear, duals: Sequence[int]) -> tuple[int, list[int]]:
    """What the rows give, and what each variable costs beside, in multiples of 1 / SCALE."""
    if len(duals) != len(program.rows):
        raise ValueError(f"{len(duals)} duals for {len(program.rows)} rows")
    reduced = [c * SCALE for c in program.cost]
    total = 0
    for y, terms, low, high in zip(duals, program.rows, program.low, program.high, strict=True):
        side = low if y > 0 else high
        if not y or side is None:
            continue
        total += y * side
        for variable, coefficient in terms:
            reduced[variable] -= y * coefficient
    return total, reduced


def useful(program: Linear, duals: Sequence[int], below: float) -> list[bool]:
    """Which variables may be 1 in a solution that costs less than `below`: for the others the
    bound and their reduced cost already come to more."""
    room = (Fraction(below) - bound(program, duals)) * SCALE
    _, reduced = reduced_costs(program, duals)
    return [top != 1 or r <= room for r, top in zip(reduced, program.top, strict=True)]


def within(gap: float) -> str:
    """What a bound says of the cost of a plan's ops, in words."""
    return (
        f"its ops cost at most {max(gap, 0.0):.1%} more than in any placement over tp (certified)"
    )


def solve(
    program: Linear, seconds: float, *, whole: bool = False, open_: Sequence[bool] | None = None
) -> Solved | None:
    """Solve the relaxation, or with `whole` the integer program; None where there is no solution
    or none was found in `seconds` of the processor. Variables that `open_` excludes stay 0."""
    import highspy
    import numpy as np

    # Each variable as a share of its top, so that all numbers are of one size.
    weight = [c * top for c, top in zip(program.cost, program.top, strict=True)]
    rows = [[(v, k * program.top[v]) for v, k in terms] for terms in program.rows]
    unit = max([1, *weight])
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.rows)
    model.col_cost_ = np.array(weight, dtype=float) / unit
    model.col_lower_ = np.zeros(len(program.cost))
    model.col_upper_ = np.ones(len(program.cost))
    if open_ is not None:
        model.col_upper_ = model.col_upper_ * np.array(open_, dtype=float)
    scale = [max((abs(k) for _, k in terms), default=1) for terms in rows]
    model.row_lower_ = np.array(
        [-math.inf if b is None else b / s for b, s in zip(program.low, scale, strict=True)]
    )
    model.row_upper_ = np.array(
        [math.inf if b is None else b / s for b, s in zip(program.high, scale, strict=True)]
    )
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    counts = np.array([len(terms) for terms in rows])
    model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(counts)])
    model.a_matrix_.index_ = np.array([v for terms in rows for v, _ in terms])
    model.a_matrix_.value_ = np.array(
        [k / s for terms, s in zip(rows, scale, strict=True) for _, k in terms]
    )
    if whole:
        kinds: list[Any] = [
            highspy.HighsVarType.kInteger if top == 1 else highspy.HighsVarType.kContinuous
            for top in program.top
        ]
        model.integrality_ = kinds
    highs: Any = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("mip_rel_gap", GAP)
    until = time.process_time() + seconds

    def stop(event: Any) -> None:
        if time.process_time() > until:
            event.interrupt()

    highs.cbMipInterrupt += stop
    highs.cbSimplexInterrupt += stop
    highs.passModel(model)
    highs.run()
    solution = highs.getSolution()
    if not solution.value_valid:
        return None
    values = tuple(x * t for x, t in zip(solution.col_value, program.top, strict=True))
    duals = () if whole else tuple(
        round(y * unit / s * SCALE) for y, s in zip(solution.row_dual, scale, strict=True)
    )  # fmt: skip
    mixed = any(1e-6 < x < 1 - 1e-6 for x, t in zip(values, program.top, strict=True) if t == 1)
    return Solved(values, duals, not mixed)
