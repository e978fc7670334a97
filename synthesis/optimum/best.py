"""The cheapest placement of a program within a space, with a bound on all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from synthesis.assign import Point, choices, options, split, split_states
from synthesis.cost import Estimate, estimate
from synthesis.lower import Lowered, Placed, lower
from synthesis.optimum.linear import bound, solve, useful, within
from synthesis.optimum.space import PICO, Restriction, Space, SpaceError
from synthesis.roles import Module
from synthesis.scoring import Search
from verifier.kernel.layout import Layout, whole
from verifier.kernel.layout import bound as bound_dims

SECONDS = 20.0
"""Of the processor, for a search for a whole solution."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on the seconds of a step, whatever placements are chosen."""

    seconds: float
    duals: tuple[int, ...]
    """Its certificate: `synthesis.optimum.linear.bound` gives the bound from it."""
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

    def statement(self, step_s: float) -> str:
        """What the bound says of a plan, in words."""
        below = step_s < self.seconds * (1 - 1e-9)
        return "no bound is known" if below or not self.holds else within(step_s, self.seconds)


def lower_bound(state: Search, restriction: Restriction) -> Bound | None:
    """A bound on every placement of the space; None where there is none that fits, or where an op
    has no placement."""
    try:
        space = Space(state, restriction)
    except SpaceError:
        return None
    solved = solve(space.linear, SECONDS)
    if solved is None:
        return None
    seconds = float(bound(space.linear, solved.duals) / Fraction(PICO))
    return Bound(seconds, solved.duals, solved.values, space)


def cheapest(found: Bound, below: float) -> Placed | None:
    """The placements of the cheapest whole solution of less than `below` seconds a step; None where
    none was found in time."""
    linear = found.space.linear
    open_ = useful(linear, found.duals, below * PICO)
    solved = solve(linear, SECONDS, whole=True, open_=open_)
    if solved is None or linear.value(solved.values) > below * PICO:
        return None
    return found.space.decided(solved.values)


def lowered(state: Search, placed: Placed) -> tuple[Lowered, Estimate]:
    """The program of the ranks for these placements, and its price.

    Raises:
        LoweringError: an op whose placement cannot be written.
    """
    point = Point(tuple((m.path, "replicate") for m in state.modules))
    base = choices(
        state.program, state.owners, point, state.mesh, state.tp, state.dp, state.loss_parallel
    )
    inputs, compute, outputs = dict(base.inputs), dict(base.compute), dict(base.outputs)
    for item in state.program.inputs:
        if item.role == "param":
            layout = placed.inputs["", item.name]
            compute[item.name] = layout
            inputs[item.name] = outputs[f"grad:{item.path}"] = _stored(state, item.name, layout)
    picked = replace(base, inputs=inputs, compute=compute, outputs=outputs, placed=placed)
    made = lower(state.program, state.mesh, picked, state.prices, state.memo)
    return made, estimate(made.program, state.prices, made.stands_for)


def _stored(state: Search, name: str, layout: Layout) -> Layout:
    if not state.dp:
        return layout
    size = state.mesh[state.dp]
    if not state.owners[name][1].stacked:
        return split_states(layout, state.dp, size)
    length = state.program.types[name].shape[0]
    inner = split_states(Layout(layout.dims[1:], layout.partial), state.dp, size)
    return Layout((whole(length), *inner.dims), inner.partial)


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
