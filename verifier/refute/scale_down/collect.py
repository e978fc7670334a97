"""Reads the unknowns of a program and the ties between them off its ops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import SCATTERS
from shardproof.verifier.refute.scale_down.reading import Dims, Reading, Sized, blocks
from shardproof.verifier.refute.scale_down.rules import KINDS, RULES, unchanged
from shardproof.verifier.refute.scale_down.system import Declined, System


@dataclass(frozen=True, slots=True)
class Origin:
    """What the numbers of a value come from: ramps of these extents, and inputs."""

    ramps: frozenset[int] = frozenset()
    data: bool = False
    among: frozenset[int] = frozenset()
    """Extents of the rows that a `topk_index` among them names entries of."""


@dataclass
class Sizes:
    """The unknowns of one program: of each value, and of the attributes of each node."""

    program: Program
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    dims: dict[str, Dims] = field(default_factory=dict[str, Dims])
    attrs: list[dict[str, Sized]] = field(default_factory=list[dict[str, Sized]])
    bodies: list[Sizes | None] = field(default_factory=list["Sizes | None"])


def collect(
    system: System,
    program: Program,
    mesh: Mapping[str, int],
    inputs: list[Dims] | None = None,
    origins: list[Origin] | None = None,
    shared: Shared | None = None,
) -> Sizes:
    """The unknowns of a program in primitive ops, with its ties added to `system`.

    A body that several nodes share has one set of unknowns: it has the same extents in all of them.

    Raises:
        Declined: an op, or a number, of which it is not known how it follows the extents.
    """
    out, shared = Sizes(program), {} if shared is None else shared
    for i, item in enumerate(program.inputs):
        out.dims[item.name] = inputs[i] if inputs else system.shape(item.type.shape)
        out.origins[item.name] = origins[i] if origins else Origin(data=True)
    for node in program.nodes:
        out.attrs.append({})
        out.bodies.append(None)
        if node.body is not None:
            _scan(system, mesh, node, out, shared)
            continue
        outs = tuple(system.shape(program.types[v].shape) for v in node.outputs)
        out.dims.update(zip(node.outputs, outs, strict=True))
        ins = tuple(out.dims[v] for v in node.inputs)
        reading = Reading(system, mesh, node, ins, outs)
        op = lookup(node.op)
        rule = RULES.get(node.op) or KINDS.get(op.kind, unchanged)
        try:
            out.attrs[-1] = rule(reading)
        except Declined as declined:
            raise Declined(f"{node.op} of %{node.outputs[0]}: {declined}") from None
        _trace(reading, out)
    return out


Shared = dict[tuple[int, tuple[Origin, ...]], Sizes]
"""Bodies of repeated blocks by identity, and by what enters them."""


def _trace(r: Reading, out: Sizes) -> None:
    """Notes what the result comes from; ties the rows of a lookup to the ramps it goes along."""
    given = [out.origins[v] for v in r.node.inputs if out.program.types[v].kind != "bool"]
    ramps = frozenset(v for o in given for v in o.ramps)
    if r.node.op == "iota":
        ramps = frozenset({r.outs[0][r.number("dim")]})
    if r.node.op == "topk_index":
        origin = Origin(data=True, among=frozenset({r.ins[0][r.number("dim")]}))
    else:
        among = frozenset(v for o in given for v in o.among)
        origin = Origin(ramps, any(o.data for o in given), among)
    out.origins.update(dict.fromkeys(r.node.outputs, origin))
    at = lookup(r.node.op).traits.index
    if at is None:
        return
    index = out.origins[r.node.inputs[at]]
    s, adds = r.system, r.node.op in SCATTERS
    dim = 0 if r.node.op == "index_add" else r.number("dim")
    rows = r.outs[0][dim] if adds else r.ins[0][dim]
    ramps = {v for v in index.ramps if s.values[v] > 1}
    for v in index.among:
        if s.values[v] == s.values[rows]:
            s.same(v, rows)
    if index.data:
        if ramps:
            s.caveats.append(f"the index of %{r.node.outputs[0]} is of data and of positions")
        return
    for v in sorted(ramps):
        for sizes in blocks(r):
            if math.prod(s.values[n] for n in (*sizes, v)) == s.values[rows]:
                s.multiply((rows,), (*sizes, v))
                return
    for v in (rows, *ramps):
        s.pin(v)


def _scan(system: System, mesh: Mapping[str, int], node: Node, out: Sizes, shared: Shared) -> None:
    body = node.block
    carries, xs, consts = scan_parts(node.attrs, len(node.inputs))
    ins = [out.dims[v] for v in node.inputs]
    length_now = node.number("length")
    length = system.new(length_now)
    system.lengths.add(length)
    for dims in ins[xs]:
        system.same(dims[0], length)
    passed = [*ins[carries], *(d[1:] for d in ins[xs]), *ins[consts]]
    given = [out.origins[v] for v in node.inputs]
    made = frozenset(v for o in given for v in o.ramps)
    carried = Origin(made, any(o.data for o in given))
    entering = [*([carried] * (carries.stop or 0)), *given[carries.stop :]]
    key = id(body), tuple(entering)
    inner = shared.get(key)
    if inner is None:
        inner = shared[key] = collect(system, body, mesh, passed, entering, shared)
    else:
        for item, dims in zip(body.inputs, passed, strict=True):
            for a, b in zip(inner.dims[item.name], dims, strict=True):
                system.same(a, b)
    out.origins.update(dict.fromkeys(node.outputs, carried))
    results = [inner.dims[o.value] for o in body.outputs]
    count = len(ins[carries])
    for given, back in zip(ins[carries], results[:count], strict=True):
        for a, b in zip(given, back, strict=True):
            system.same(a, b)
    made = [*results[:count], *((length, *d) for d in results[count:])]
    out.dims.update(zip(node.outputs, made, strict=True))
    out.attrs[-1] = {"length": length}
    out.bodies[-1] = inner
