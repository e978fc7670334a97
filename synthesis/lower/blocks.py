"""Lowers the ops of a scope in order, and repeated blocks by lowering their body once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from shardproof.synthesis.lower.emission import (
    emit,
    get,
    place,
    primary,
    reading,
    readings,
    rescale,
    waits,
)
from shardproof.synthesis.lower.local_attributes import Reading, split, without
from shardproof.synthesis.lower.operands import cheapest
from shardproof.synthesis.lower.state import LoweringError, State, Value, scope_state, sources
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.layout import Layout, bound, whole
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import LOOKUPS, TRANSPARENT

MAX_ROUNDS = 6
"""How often a body is lowered anew because a carry left it in another layout than it came in."""


@dataclass
class Body:
    """One lowering of a body: what it returns, and the layouts that carries should start in."""

    program: Program
    results: list[Value]
    changed: list[Layout | None]
    """For each carry the layout it leaves in, where that is not the one it came in."""


def run(state: State, nodes: Sequence[Node]) -> None:
    """Lower nodes of a scope, in order."""
    for node in nodes:
        if node.op == "scan":
            _scan(state, node)
        elif not waits(state, node):
            _op(state, node)


def compute(state: State, name: str, layout: Layout) -> None:
    """Gather a stored parameter to the layout the ops use."""
    stored = state.values[name][0]
    if stored.layout != layout:
        get(state, name, layout)
        state.values[name].reverse()


def _op(state: State, node: Node) -> None:
    chosen = _chosen(state, node)
    layouts = chosen[0] if chosen is not None else cheapest(state, node)
    if layouts is None:
        shown = ", ".join(str(primary(state, v).layout) for v in node.inputs)
        raise LoweringError(node, f"no rule accepts its operands as {shown}")
    values: list[Value] = []
    for v, layout in zip(node.inputs, layouts, strict=True):
        value = get(state, v, layout, node)
        if value is None:
            raise LoweringError(node, f"%{v} is not to be had as {layout}")
        values.append(value)
    wanted = chosen[1] if chosen is not None else reading(state, node)
    made = emit(state, node, values, wanted)
    if node.op in TRANSPARENT and node.inputs[0] in state.weights:
        state.weights.add(node.outputs[0])
    if made is None:
        values = [rescale(state, v, x) for v, x in zip(node.inputs, values, strict=True)]
        made = emit(state, node, values, wanted)
    if made is None:
        raise LoweringError(node, "its operands stand at different factors")
    _remember_rows(state, node, values[0].layout)
    _balance(state, node, made)


def _chosen(state: State, node: Node) -> tuple[tuple[Layout, ...], Reading] | None:
    """The layouts that were chosen for the operands, and the reading with the chosen result."""
    placed = state.setting.choices.placed
    choice = placed.nodes.get((state.scope, node.outputs[0])) if placed is not None else None
    if choice is None:
        return None
    layouts, result = choice
    for wanted in readings(state, node):
        found = place(state, node, layouts, wanted)
        if found is not None and found[0].layouts[0] == result:
            return layouts, wanted
    raise LoweringError(node, f"no rule gives {result}")


def _entry(state: State, node: Node, k: int) -> Layout | None:
    """The layout that was chosen for an input of a body."""
    placed, body = state.setting.choices.placed, node.body
    if placed is None or body is None:
        return None
    return placed.inputs.get((node.outputs[0], body.inputs[k].name))


def _remember_rows(state: State, node: Node, layout: Layout) -> None:
    """Keep how a lookup read its rows, for the adjoint that comes with the backward pass."""
    if node.op not in LOOKUPS:
        return
    adjoint = "index_add" if node.op == "take" else "put_along"
    dim = node.attrs.get("dim", 0)
    assert isinstance(dim, int)
    rows = layout.dims[dim]
    if bound(rows):
        size = state.program.types[node.inputs[0]].shape[dim]
        state.setting.rows[adjoint, size] = Layout((rows,))


def _balance(state: State, node: Node, made: Value) -> None:
    """Take a local count of labels for its share of the whole, as FSDP does."""
    choices, name = state.setting.choices, node.outputs[0]
    dp = choices.dp
    if dp and name in state.counts and made.layout.fold(dp) == "sum":
        rest = (p for p in made.layout.partial if p[0] != dp)
        share = made.factor / state.setting.mesh[dp]
        state.values[name].insert(0, Value(made.name, made.layout.with_partial(rest), share))
        state.setting.balanced.add(name)


def _scan(state: State, node: Node) -> None:
    parts = scan_parts(node.attrs, len(node.inputs))
    carried, length = node.inputs[parts[0]], node.number("length")
    entries = [_entry(state, node, k) for k in range(len(node.inputs))]
    xs = [
        _stacked(state, v, length, entry)
        for v, entry in zip(node.inputs[parts[1]], entries[parts[1]], strict=True)
    ]
    consts = [
        _start(state, v, entry)
        for v, entry in zip(node.inputs[parts[2]], entries[parts[2]], strict=True)
    ]
    starts = [
        _start(state, v, entry or _carry_layout(state, v))
        for v, entry in zip(carried, entries, strict=False)
    ]
    pairs = len(state.setting.pairs)
    for _ in range(MAX_ROUNDS):
        del state.setting.pairs[pairs:]
        body = _body(state, node, starts, xs, consts)
        if all(layout is None for layout in body.changed):
            break
        starts = [
            start if layout is None else _start(state, v, layout)
            for v, start, layout in zip(carried, starts, body.changed, strict=True)
        ]
    else:
        raise LoweringError(node, "the layouts of the carries do not settle")
    names = tuple(v.name for v in (*starts, *xs, *consts))
    outputs = state.builder.append(replace(node, inputs=names, body=body.program))
    for k, (name, value) in enumerate(zip(outputs, body.results, strict=True)):
        layout = value.layout
        if k >= len(carried):
            layout = Layout((whole(length), *layout.dims), layout.partial)
        state.bind(node.outputs[k], Value(name, layout, value.factor))


def _stacked(state: State, name: str, length: int, entry: Layout | None) -> Value:
    """What a scan goes through slice by slice: whole along the steps."""
    value = primary(state, name)
    if entry is not None and name not in state.weights:
        wanted = Layout((whole(length), *entry.dims), entry.partial)
        return get(state, name, wanted) or value
    if value.layout.dims and bound(value.layout.dims[0]):
        return get(state, name, Layout((whole(length), *value.layout.dims[1:]))) or value
    return value


def _carry_layout(state: State, name: str) -> Layout | None:
    """The residual stream is laid out as the plan says; other carries as they come."""
    choices, mesh = state.setting.choices, state.setting.mesh
    tp, shape = choices.tp, state.program.types[name].shape
    if len(shape) != 3 or not tp or mesh[tp] == 1:
        return None
    plain = without(primary(state, name).layout, (tp,))
    return plain if choices.stream == "R" else split(plain, tp, mesh[tp], 1)


def _start(state: State, name: str, layout: Layout | None) -> Value:
    if layout is None:
        return primary(state, name)
    value = get(state, name, layout)
    if value is None:
        raise LoweringError(state.producer[name], f"%{name} is not to be had as {layout}")
    return value


def _body(
    state: State,
    node: Node,
    starts: Sequence[Value],
    xs: Sequence[Value],
    consts: Sequence[Value],
) -> Body:
    body = node.block
    inner = scope_state(state.setting, body, node.outputs[0])
    inner.gradients = sources(
        inner.producer,
        (o.value for o, v in zip(body.outputs, node.outputs, strict=True) if v in state.gradients),
    )
    slices = [replace(x, layout=Layout(x.layout.dims[1:], x.layout.partial)) for x in xs]
    for item, value in zip(body.inputs, (*starts, *slices, *consts), strict=True):
        inner.enter(
            item.name, replace(value, name=item.name), item.type.dtype, item.role, item.path
        )
    for item, outer in zip(body.inputs[len(starts) :], node.inputs[len(starts) :], strict=True):
        if outer in state.weights:
            inner.weights.add(item.name)
        computed = state.setting.choices.compute.get(outer)
        if computed is not None:
            compute(inner, item.name, Layout(computed.dims[1:], computed.partial))
    run(inner, body.nodes)
    changed: list[Layout | None] = []
    results: list[Value] = []
    for k, out in enumerate(body.outputs):
        if k < len(starts):
            value, layout = _carried(inner, out.value, starts[k], state.is_zero(node.inputs[k]))
            changed.append(layout)
        else:
            final = any(o.value == node.outputs[k] for o in state.program.outputs)
            value = _returned(inner, out.value, _result_layout(state, node, k), final=final)
        results.append(value)
    for value, out in zip(results, body.outputs, strict=True):
        inner.builder.output(value.name, out.role, out.path)
    return Body(inner.builder.build(), results, changed)


def _carried(inner: State, name: str, start: Value, zero: bool) -> tuple[Value, Layout | None]:
    """A carry as it leaves the body, and the layout it should have come in where that differs.

    A carry that starts at zero starts in any layout and at any factor; one that becomes split over
    the batch starts so.
    """
    factor: Fraction = start.factor
    natural = primary(inner, name)
    changed = _batched(inner, natural.layout, start.layout)
    value = get(inner, name, changed or start.layout)
    if value is None or (zero and natural.layout != start.layout):
        value, changed = natural, natural.layout
    return (value if zero else rescale(inner, name, value, factor)), changed


def _batched(inner: State, natural: Layout, start: Layout) -> Layout | None:
    """The layout that a carry starts in, split over the batch as it is behind the body; None where
    it is no other."""
    dp = inner.setting.choices.dp
    if not dp or dp not in natural.sharded or dp in start.sharded:
        return None
    dim = next(d for d, atoms in enumerate(natural.dims) if dp in bound(atoms))
    return split(start, dp, inner.setting.mesh[dp], dim)


def _returned(inner: State, name: str, target: Layout | None, *, final: bool) -> Value:
    value = get(inner, name, target) if target is not None else None
    value = value or primary(inner, name)
    return rescale(inner, name, value) if final and target is not None else value


def _result_layout(state: State, node: Node, k: int) -> Layout | None:
    """For a stacked result that was chosen or is an output of the program: its layout in one
    step."""
    placed = state.setting.choices.placed
    if placed is not None:
        return placed.inputs[state.scope, node.outputs[k]]
    outputs = state.setting.choices.outputs
    for out in state.program.outputs:
        if out.value == node.outputs[k] and output_key(out) in outputs:
            layout = outputs[output_key(out)]
            return Layout(layout.dims[1:], layout.partial)
    return None
