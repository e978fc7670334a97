"""Reverse-mode differentiation: a joint forward and backward program from a forward one.

Each op brings its own vector-Jacobian product. Composites that have none are expanded. A `scan`
keeps its carries step by step and is pulled back by a reversed scan that computes each step anew.
A collective is pulled back to its dual, in the convention of tensor parallelism where the
cotangent of a replicated value is the same on every rank: a value that is replicated but used by
each rank for its own part (the entry of a column-parallel layer) is named in `reduced`, and its
cotangent is summed over those mesh dims.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from shardproof.verifier.kernel.composites.expansion import results
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Input, Node, Output, Program
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, coordinates, within
from shardproof.verifier.ops import facets

Cotangents = dict[str, str]
Reduced = Mapping[str, Sequence[tuple[str, str]]]
Bodies = dict[int, tuple[Program, Program]]
"""By identity of a body: the body, which keeps it alive, and what was made of it."""


@dataclass(frozen=True)
class _Way:
    """What holds for the whole way back, and what was made of bodies that several nodes share."""

    stopped: frozenset[str]
    reduced: Reduced
    recorded: Bodies = field(default_factory=dict[int, tuple[Program, Program]])
    pulled: dict[tuple[int, int, int], tuple[Program, Program]] = field(
        default_factory=dict[tuple[int, int, int], tuple[Program, Program]]
    )


def grad(
    program: Program,
    *,
    loss: str | None = None,
    wrt: Collection[str] | None = None,
    stopped: Collection[str] = (),
    reduced: Reduced | None = None,
    along: Mapping[str, str] | None = None,
) -> Program:
    """The program followed by the gradients of its params, one output of role `grad` each.

    Args:
        loss: the scalar value to differentiate; the output of role `loss` by default. Where there
            is none, each float output gets a cotangent input of role `cotangent`.
        wrt: names of inputs; all params by default.
        stopped: values that pass no gradient on, such as the shift of a softmax.
        reduced: value -> (mesh dim, reduce) pairs: its cotangent is reduced over each in turn.
        along: value -> an input that is added to its cotangent, besides what the loss gives.

    Raises:
        IRError: an op on the way has no vjp, or the loss is not a scalar.
    """
    program = expand(program)
    b = Builder(program.name, program.mesh)
    b.reserve(program.types)
    for item in program.inputs:
        b.input(item.name, item.type, item.role, item.path, item.where)
    cts: Cotangents = {}
    roots = [loss] if loss else [o.value for o in program.outputs if o.role == "loss"]
    if not roots:
        for out in program.outputs:
            if out.role == "output" and program[out.value].is_float:
                name = b.input(f"ct.{out.path}", program[out.value], "cotangent", out.path)
                cts[out.value] = name
    way = _Way(frozenset(stopped), reduced or {})
    tape = [_recorded(b, node, way) for node in program.nodes]
    for value, ct in (along or {}).items():
        _accumulate(b, cts, value, ct)
    for root in roots:
        if program[root].shape:
            raise IRError(f"{program.name}: the loss %{root} is {program[root]}, expected a scalar")
        with b.on(**dict(b.held[root])):
            one = b.add("full", shape=(), value=Fraction(1), dtype=program[root].dtype)
        _accumulate(b, cts, root, one)
    _pull(b, tape, cts, way)
    for out in program.outputs:
        b.output(out.value, out.role, out.path)
    names = wrt if wrt is not None else [i.name for i in program.inputs if i.role == "param"]
    for name in names:
        b.output(_finished(b, cts, name, way.reduced), "grad", program.input(name).path)
    return b.build()


def expand(program: Program, bodies: Bodies | None = None) -> Program:
    """Expand composites that have no vjp of their own, in bodies too. Value names are kept.

    A body that several nodes share is expanded once; `bodies` holds what was.
    """
    bodies = {} if bodies is None else bodies
    b = Builder(program.name, program.mesh)
    b.reserve(program.types)
    for item in program.inputs:
        b.input(item.name, item.type, item.role, item.path, item.where)
    rename: dict[str, str] = {}
    for node in program.nodes:
        inputs = tuple(rename.get(v, v) for v in node.inputs)
        op = lookup(node.op)
        with b.at(node.source), b.on(**dict(node.where)):
            if op.expand is not None and facets(op.name).vjp_rule is None:
                made = op.expand(b, *inputs, **op.with_defaults(node.attrs))
                rename |= zip(node.outputs, results(made), strict=True)
            else:
                body = None
                if node.body is not None:
                    key = id(node.body)
                    if key not in bodies:
                        bodies[key] = node.body, expand(node.body, bodies)
                    body = bodies[key][1]
                b.append(replace(node, inputs=inputs, body=body))
    for out in program.outputs:
        b.output(rename.get(out.value, out.value), out.role, out.path)
    done = b.build()
    again = any(lookup(n.op).expand and not facets(n.op).vjp_rule for n in done.nodes)
    return expand(done, bodies) if again else done


def _recorded(b: Builder, node: Node, way: _Way) -> Node:
    """Append a node; a scan also returns the carries that each step starts from."""
    if node.body is None:
        b.append(node)
        return node
    carry = node.number("carry")
    starts = tuple(Output(i.name, "ys", f"start.{i.name}") for i in node.body.inputs[:carry])
    if (key := id(node.body)) not in way.recorded:
        outs = (*node.body.outputs, *starts)
        way.recorded[key] = node.body, replace(node.body, outputs=outs)
    body = way.recorded[key][1]
    kept = tuple(b.fresh("start") for _ in starts)
    outputs = (*node.outputs, *kept)
    full = Node(node.op, node.inputs, outputs, node.attrs, node.source, body, node.where)
    b.append(full)
    return full


def _accumulate(b: Builder, cts: Cotangents, value: str, ct: str) -> None:
    ct = _widened(b, ct, b.held[value])
    cts[value] = b.add("add", cts[value], ct) if value in cts else ct


def _widened(b: Builder, ct: str, where: Where) -> str:
    """The cotangent of a value on all ranks that hold it: zeros on those that do not read it."""
    if within(where, b.held[ct]):
        return ct
    for name in b.mesh.names:
        mine, wanted = (coordinates(w, b.mesh, name) for w in (b.held[ct], where))
        rest = tuple(c for c in wanted if c not in mine)
        if rest:
            type = b.types[ct]
            with b.on(**{**dict(b.held[ct]), name: rest}):
                zero = b.add("full", shape=type.shape, value=Fraction(0), dtype=type.dtype)
            ct = b.add("merge", ct, zero)
    return ct


def _zero(b: Builder, value: str) -> str:
    type = b.types[value]
    with b.on(**dict(b.held[value])):
        return b.add("full", shape=type.shape, value=Fraction(0), dtype=type.dtype)


def _finished(b: Builder, cts: Cotangents, value: str, reduced: Reduced) -> str:
    """The whole cotangent of a value that nothing else will add to."""
    ct = cts.get(value) or _zero(b, value)
    for mesh_dim, how in reduced.get(value, ()):
        ct = b.add("all_reduce", ct, mesh_dim=mesh_dim, reduce=how)
    return ct


def _pull(
    b: Builder,
    tape: Sequence[Node],
    cts: Cotangents,
    way: _Way,
) -> None:
    """Walk the tape backward, adding to the cotangents of what it reads."""
    for node in reversed(tape):
        live = [v for v in node.outputs if v in cts and v not in way.stopped]
        if not live or not node.inputs:
            continue
        done: list[str] = [_finished(b, cts, v, way.reduced) for v in node.outputs]
        moving = lookup(node.op).kind == "movement"
        region = EVERYWHERE if moving else b.held[node.outputs[0]]
        with b.at(node.source), b.on(**dict(region)):
            if node.body is not None:
                back = _pull_scan(b, node, done, way)
            else:
                rule = facets(node.op).vjp_rule
                if rule is None:
                    raise IRError(f"op {node.op} has no vjp  {node.source}")
                attrs = lookup(node.op).with_defaults(node.attrs)
                back = rule(b, node.inputs, node.outputs, done, attrs)
        for value, ct in zip(node.inputs, back, strict=True):
            if ct is not None and b.types[value].is_float:
                _accumulate(b, cts, value, ct)


def _pull_scan(
    b: Builder,
    node: Node,
    done: Sequence[str],
    way: _Way,
) -> list[str | None]:
    """The cotangents of a scan's operands, by a scan that runs the other way."""
    body = node.block
    carry, length = node.number("carry"), node.attrs["length"]
    ys = len(node.outputs) - 2 * carry
    c, x, k = scan_parts(node.attrs, len(node.inputs))
    starts = node.outputs[carry + ys :]
    float_carries = [i for i, t in enumerate(body.inputs[c]) if t.type.is_float]
    float_consts = [i for i, t in enumerate(body.inputs[k]) if t.type.is_float]
    float_ys = [i for i, o in enumerate(body.outputs[carry : carry + ys]) if body[o.value].is_float]
    float_xs = [i for i, t in enumerate(body.inputs[x]) if t.type.is_float]
    key = id(body), carry, x.stop - x.start
    if key not in way.pulled:
        way.pulled[key] = body, _pulled_body(node, body, way)
    back_body = way.pulled[key][1]
    operands = [
        *(done[i] for i in float_carries),
        *(_zero(b, node.inputs[k][i]) for i in float_consts),
        *starts,
        *node.inputs[x],
        *(done[carry + i] for i in float_ys),
        *node.inputs[k],
    ]
    results = b.add_node(
        "scan",
        operands,
        {
            "length": length,
            "carry": len(float_carries) + len(float_consts),
            "xs": len(starts) + len(node.inputs[x]) + len(float_ys),
            "reverse": not node.attrs.get("reverse", False),
        },
        body=back_body,
    )
    found = iter(results)
    back: list[str | None] = [None] * len(node.inputs)
    for i in float_carries:
        back[i] = next(found)
    for i in float_consts:
        back[k.start + i] = next(found)
    for i in float_xs:
        back[x.start + i] = next(found)
    return back


def _pulled_body(node: Node, body: Program, way: _Way) -> Program:
    """One step of the scan that runs the other way."""
    carry = node.number("carry")
    ys = len(node.outputs) - 2 * carry
    c, x, k = scan_parts(node.attrs, len(node.inputs))
    float_carries = [i for i, t in enumerate(body.inputs[c]) if t.type.is_float]
    float_consts = [i for i, t in enumerate(body.inputs[k]) if t.type.is_float]
    float_ys = [i for i, o in enumerate(body.outputs[carry : carry + ys]) if body[o.value].is_float]
    inner = Builder(f"{body.name}.back", body.mesh)
    inner.reserve(body.types)
    step_cts = _inputs(inner, "ct", [body.inputs[c][i] for i in float_carries], "carry")
    totals = _inputs(inner, "total", [body.inputs[k][i] for i in float_consts], "carry")
    for item in body.inputs[c]:
        inner.input(item.name, item.type, "xs")
    for item in body.inputs[x]:
        inner.input(item.name, item.type, "xs")
    outs = [body.outputs[carry + i] for i in float_ys]
    ys_cts = [inner.input(inner.fresh("ct"), body[o.value], "xs") for o in outs]
    for item in body.inputs[k]:
        inner.input(item.name, item.type, "const")
    tape = [_recorded(inner, child, way) for child in body.nodes]
    cts: Cotangents = {}
    for i, ct in zip(float_carries, step_cts, strict=True):
        _accumulate(inner, cts, body.outputs[i].value, ct)
    for out, ct in zip(outs, ys_cts, strict=True):
        _accumulate(inner, cts, out.value, ct)
    _pull(inner, tape, cts, way)
    for i in float_carries:
        inner.output(_finished(inner, cts, body.inputs[c][i].name, way.reduced), "carry")
    for i, total in zip(float_consts, totals, strict=True):
        share = _finished(inner, cts, body.inputs[k][i].name, way.reduced)
        inner.output(inner.add("add", total, share), "carry")
    for item in body.inputs[x]:
        if item.type.is_float:
            inner.output(_finished(inner, cts, item.name, way.reduced), "ys")
    return inner.build()


def _inputs(b: Builder, hint: str, like: Iterable[Input], role: str) -> list[str]:
    return [b.input(b.fresh(hint), item.type, role) for item in like]
