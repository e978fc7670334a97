"""Builds one local op: finds the local attributes that mean the one-device op, and its factor."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from shardproof.synthesis.lower.local_attributes import Reading, localize
from shardproof.synthesis.lower.state import ONE, State, Value
from shardproof.verifier.kernel.layout import Layout, split_leading, whole
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.ops.classes import SCATTERS
from shardproof.verifier.provers.placement import Operands, Placed, place as placements


def reading(state: State, node: Node, result: Layout | None = None) -> Reading:
    """What the local counterpart of a node has to mean."""
    rows: Layout | None = None
    if node.op in SCATTERS:
        size = node.number("size")
        rows = state.setting.rows.get((node.op, size))
    return Reading(state.program.types[node.outputs[0]].shape, result, rows)


def readings(state: State, node: Node) -> list[Reading]:
    """What the local counterpart of a node may mean: sums by rows may be of a rank's rows alone."""
    tp = state.setting.choices.tp
    if node.op not in SCATTERS or not tp:
        return [reading(state, node)]
    size = node.number("size")
    shape = state.program.types[node.outputs[0]].shape
    rows = split_leading(whole(size), state.setting.mesh[tp], tp)
    return [Reading(shape), *([Reading(shape, None, Layout((rows,)))] if rows else [])]


def place(
    state: State, node: Node, layouts: tuple[Layout, ...], wanted: Reading
) -> tuple[Placed, dict[str, Any]] | None:
    """The reading of a local op that means the one-device op, if the rule accepts it."""
    op = lookup(node.op)
    mesh, memo = state.setting.mesh, state.setting.memo
    attrs = tuple(sorted(op.with_defaults(node.attrs).items()))
    zeros = frozenset(i for i, v in enumerate(node.inputs) if state.is_zero(v))
    key = ("place", node.op, attrs, layouts, wanted, zeros)
    if key in memo:
        return memo[key]
    found: tuple[Placed, dict[str, Any]] | None = None
    for option in localize(node, layouts, wanted):
        given = tuple(sorted(op.with_defaults(option).items()))
        try:
            placed = placements(op, Operands(layouts, given, mesh, zeros))
        except Refused:
            continue
        match = next((p for p in placed if _means(p, attrs, wanted)), None)
        if match is not None:
            found = match, option
            break
    memo[key] = found
    return found


def _means(placed: Placed, attrs: tuple[Any, ...], wanted: Reading) -> bool:
    same = tuple(sorted(placed.attrs)) == attrs
    return same and wanted.result in (None, placed.layouts[0])


def emit(state: State, node: Node, values: Sequence[Value], wanted: Reading) -> Value | None:
    """Build the local op on these operands; None where no rule accepts them."""
    layouts = tuple(v.layout for v in values)
    placed = place(state, node, layouts, wanted)
    if placed is None:
        return None
    option, attrs = placed
    factor = _factor(state, node, values)
    if factor is None:
        return None
    name = state.add(node, [v.name for v in values], attrs, layouts, option.layouts[0])
    made = Value(name, option.layouts[0], factor * option.scale)
    state.bind(node.outputs[0], made)
    return made


def _factor(state: State, node: Node, values: Sequence[Value]) -> Fraction | None:
    """The factor of a result; None where the op does not carry the factors of its operands."""
    factors = [v.factor for v in values]
    if all(f == 1 for f in factors):
        return ONE
    if node.op == "div":
        return factors[0] / factors[1]
    if node.op == "reciprocal":
        return 1 / factors[0]
    op = lookup(node.op)
    groups = op.linear
    if op.kind == "view":
        groups = (frozenset(range(len(values))),)
    out, covered = ONE, set[int]()
    for group in groups:
        inside = {factors[i] for i in group if not state.is_zero(node.inputs[i])}
        if len(inside) > 1:
            return None
        out *= inside.pop() if inside else ONE
        covered |= group
    if any(f != 1 for i, f in enumerate(factors) if i not in covered):
        return None
    return out


def rescale(state: State, name: str, value: Value, factor: Fraction = ONE) -> Value:
    """The value at another factor, multiplied where it stands at a different one."""
    if value.factor == factor:
        return value
    scaled = state.builder.add("mul_scalar", value.name, value=factor / value.factor)
    made = Value(scaled, value.layout, factor)
    state.bind(name, made)
    return made
