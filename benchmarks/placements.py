"""The cheapest placements of a program as a whole solution, lowered: bounds are held against it."""

from __future__ import annotations

from dataclasses import replace

from shardproof.synthesis.lower import Lowered, Placed
from shardproof.synthesis.optimum.best import SECONDS, Bound
from shardproof.synthesis.optimum.linear import solve, useful
from shardproof.synthesis.optimum.space import PICO
from shardproof.synthesis.planner.assign import Point, choices, split_states
from shardproof.synthesis.planner.cost import Estimate, estimate
from shardproof.synthesis.planner.scoring import Search
from shardproof.verifier.kernel.layout import Layout, whole


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
    made = state.lowering.whole(picked)
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
