"""The cheapest placement of a program within a space, with a bound on all of them."""

from dataclasses import dataclass
from fractions import Fraction

from shardproof.synthesis.lower import Placed
from shardproof.synthesis.optimum.linear import bound, solve
from shardproof.synthesis.optimum.space import PICO, Restriction, Space, SpaceError
from shardproof.synthesis.planner.assign import Point, options, split
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.scoring import Search
from shardproof.verifier.kernel.layout import Layout, bound as bound_dims

LARGE = 6000
"""Ops of a program for which no bound is looked for: solvers take minutes for it."""
SECONDS = 20.0
"""Of the processor, for a search for a whole solution."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on the seconds of a step, whatever placements are chosen."""

    seconds: float
    duals: tuple[int, ...]
    """Its certificate: `shardproof.synthesis.optimum.linear.bound` gives the bound from it."""
    values: tuple[float, ...]
    """The relaxed solution that it belongs to."""
    space: Space

    def check(self) -> Fraction:
        """The bound worked out anew in rationals, in seconds."""
        return bound(self.space.linear, self.duals) / Fraction(PICO)

    @property
    def holds(self) -> bool:
        """Whether the certificate gives as much as is claimed."""
        return self.check() >= Fraction(self.seconds) * (1 - Fraction(1, 10**12))

    def gap(self, step_s: float) -> float | None:
        """By what share a plan's ops cost more; None where the bound does not hold."""
        below = step_s < self.seconds * (1 - 1e-9)
        return None if below or not self.holds else step_s / self.seconds - 1


def lower_bound(state: Search, restriction: Restriction) -> Bound | None:
    """A bound on every placement of the space; None where there is none that fits, where an op
    has no placement, or where the program is too large for a solver."""
    if sum(1 for _ in state.program.walk()) > LARGE:
        return None
    try:
        space = Space(state, restriction)
    except SpaceError:
        return None
    solved = solve(space.linear, SECONDS)
    if solved is None:
        return None
    seconds = float(bound(space.linear, solved.duals) / Fraction(PICO))
    return Bound(seconds, solved.duals, solved.values, space)


def suggested(found: Bound) -> Point:
    """The point of module styles that is nearest to the placements of the relaxed solution."""
    state, placed = found.space.state, found.space.decided(found.values)
    size = state.mesh[state.tp] if state.tp else 1
    styles = tuple((m.path, _style(m, placed, state.tp or "", size)) for m in state.modules)
    carries = [
        layout
        for (scope, _), layout in placed.inputs.items()
        if scope and len(layout.dims) == 3 and state.tp in bound_dims(layout.dims[1])
    ]
    return Point(styles, "S(1)" if carries else "R")


def _style(module: Module, placed: Placed, tp: str, size: int) -> str:
    for style in options(module, size):
        want = [split(module, p, style, tp, size) for p in module.params]
        have = [placed.inputs.get(("", p.name)) for p in module.params]
        if all(
            w == (Layout(h.dims[1:], h.partial) if p.stacked else h)
            for w, h, p in zip(want, have, module.params, strict=True)
            if h is not None
        ):
            return style
    return "replicate"
