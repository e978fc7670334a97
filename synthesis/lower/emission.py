"""Builds one local op: finds the local attributes that mean the one-device op, and its factor, and
which layouts a value is to be had in: as it stands, moved by collectives, or through its view.

A change of layout travels up through views, so that a gather happens on the tensor the owner
wrote, and values made from nothing wait until a layout is wanted.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from shardproof.synthesis.lower.local_attributes import (
    Reading,
    localize,
    source_layout,
)
from shardproof.synthesis.lower.redistribute import path, volumes
from shardproof.synthesis.lower.state import ONE, LoweringError, State, Value
from shardproof.verifier.kernel.layout import Layout, split_leading, whole
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import ITEMSIZE
from shardproof.verifier.ops.classes import REARRANGING, SCATTERS, SPREADING, TRANSPARENT
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


INFINITE = float("inf")
TIE = 1e-9
"""Seconds added to each move, so that of two ways at one price the one with fewer steps wins."""


def primary(state: State, name: str) -> Value:
    """The first layout a value has; values made from nothing are made whole."""
    if name not in state.values:
        node = state.producer[name]
        if node.op in REARRANGING:
            emit(state, node, [primary(state, node.inputs[0])], reading(state, node))
        else:
            _materialise(state, node, _natural(state, node))
    return state.values[name][0]


def available(state: State, name: str) -> list[Value]:
    """Every layout a value has, at least one."""
    primary(state, name)
    return state.values[name]


def lazy(state: State, name: str) -> bool:
    """Whether a value has not been made and takes any layout that is asked of it."""
    if name in state.values:
        return False
    return waits(state, state.producer[name])


def waits(state: State, node: Node) -> bool:
    """Whether a node is made only when its result is wanted: constants, broadcasts, their views."""
    return node.op in SPREADING or (node.op in REARRANGING and lazy(state, node.inputs[0]))


def _natural(state: State, node: Node) -> Layout:
    shape = state.program.types[node.outputs[0]].shape
    if not node.inputs:
        return Layout.replicate(shape)
    source = primary(state, node.inputs[0]).layout
    extra = len(shape) - len(source.dims)
    dims = [
        source.dims[i - extra] if i >= extra and source.dims[i - extra] else whole(n)
        for i, n in enumerate(shape)
    ]
    return Layout(tuple(dims), source.partial)


def _materialise(state: State, node: Node, layout: Layout) -> Value:
    """Make a constant or a broadcast in a wanted layout."""
    name = node.outputs[0]
    inputs: list[str] = []
    factor = ONE
    if node.inputs:
        shape = state.program.types[node.inputs[0]].shape
        extra = len(layout.dims) - len(shape)
        dims = tuple(layout.dims[extra + i] if n != 1 else () for i, n in enumerate(shape))
        source = get(state, node.inputs[0], Layout(dims, layout.partial), node)
        if source is None:
            raise LoweringError(node, f"its operand is not to be had as {Layout(dims)}")
        inputs, factor = [source.name], source.factor
    attrs = next(localize(node, (), reading(state, node, layout)))
    made = Value(state.add(node, inputs, attrs, (), layout), layout, factor)
    state.bind(name, made)
    return made


def get(state: State, name: str, layout: Layout, reader: Node | None = None) -> Value | None:
    """The value in a layout, with the collectives it takes; None where there is no way.

    `reader` is the op that wants it: what moves an input of the scope is written down there.
    """
    node = state.producer.get(name)
    if node is not None and lazy(state, name):
        if node.op not in REARRANGING:
            return _materialise(state, node, layout)
        made = _through_view(state, name, layout, reader)
        if made is not None:
            return made
        primary(state, name)
    for value in state.values[name]:
        if value.layout == layout:
            return value
    state.setting.moved.add((state.scope, name, layout))
    best, cost = _cheapest(state, name, layout)
    if best is None:
        return _through_view(state, name, layout, reader)
    if cost and node is not None and node.op in TRANSPARENT and len(state.values[name]) == 1:
        through = _through_view(state, name, layout, reader, limit=cost)
        if through is not None:
            return through
    return _move(state, name, best, layout, reader)


def price(state: State, name: str, layout: Layout) -> float:
    """Seconds that `get` would add; infinite where it would find no way.

    A move that another reader was found to need is nearly free: they share it.
    """
    cost = _price(state, name, layout)
    shared = TIE < cost < INFINITE and (state.scope, name, layout) in state.setting.paid
    return TIE if shared else cost


def _price(state: State, name: str, layout: Layout) -> float:
    _, cost = _cheapest(state, name, layout)
    if cost != INFINITE:
        return cost
    producer = state.producer.get(name)
    if producer is None or producer.op not in TRANSPARENT:
        return INFINITE
    source = producer.inputs[0]
    wanted = source_layout(producer, layout, state.program.types[source].shape)
    if wanted is None or source not in state.values:
        return INFINITE
    return _cheapest(state, source, wanted)[1] + TIE


def _cheapest(state: State, name: str, layout: Layout) -> tuple[Value | None, float]:
    best: Value | None = None
    least = INFINITE
    for value in state.values[name]:
        cost = _move_cost(state, value.layout, layout, state.program.types[name].dtype)
        if cost < least:
            best, least = value, cost
    return best, least


def _move_cost(state: State, source: Layout, target: Layout, dtype: str) -> float:
    mesh, prices, memo = state.setting.mesh, state.setting.prices, state.setting.memo
    key = ("move", source, target, dtype)
    found = memo.get(key)
    if found is None:
        steps = path(source, target, mesh)
        if steps is None:
            found = INFINITE
        else:
            size = ITEMSIZE[dtype]
            found = sum(
                prices.exposed(op, n, count * size) + TIE for op, n, count in volumes(source, steps)
            )
        memo[key] = found
    return found


def _move(state: State, name: str, value: Value, layout: Layout, reader: Node | None) -> Value:
    mesh, dp = state.setting.mesh, state.setting.choices.dp
    mean = dp if dp and value.factor == mesh[dp] and value.layout.fold(dp) else None
    steps = path(value.layout, layout, mesh, mean)
    assert steps is not None
    current, factor = value.name, value.factor
    made = state.producer.get(name, reader)
    source = made.source if made is not None else None
    for step in steps:
        attrs = dict(step.attrs)
        (current,) = state.builder.add_node(step.op, [current], attrs, source=source)
        if attrs.get("reduce") == "avg":
            factor /= mesh[str(attrs["mesh_dim"])]
        if step.layout.global_shape == layout.global_shape:
            state.bind(name, Value(current, step.layout, factor))
    return state.values[name][-1]


def _through_view(
    state: State, name: str, layout: Layout, reader: Node | None, limit: float = INFINITE
) -> Value | None:
    """Change the layout of a view by changing the layout of what it views."""
    node = state.producer.get(name)
    if node is None or node.op not in TRANSPARENT:
        return None
    source = node.inputs[0]
    if source not in state.values and not lazy(state, source):
        return None
    wanted = source_layout(node, layout, state.program.types[source].shape)
    if wanted is None:
        return None
    if limit != INFINITE:
        if source not in state.values:
            return None
        best, cost = _cheapest(state, source, wanted)
        if best is not None and cost >= limit and not (cost == limit and _beside(state, node)):
            return None
    value = get(state, source, wanted, node)
    if value is None:
        return None
    made = emit(state, node, [value], Reading(layout.global_shape, layout))
    return made if made is not None and made.layout == layout else None


def _beside(state: State, view: Node) -> bool:
    """Whether a view and what it views belong to one module, so that either may be moved."""
    made = state.producer.get(view.inputs[0])
    return made is None or made.source.module == view.source.module
