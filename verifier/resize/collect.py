"""Reads the unknowns of a program and the ties between them off its ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

from verifier.ir.program import Node, Program
from verifier.ir.types import Affine, Attr
from verifier.ops import lookup
from verifier.ops.collectives import mesh_dims
from verifier.ops.control import scan_parts
from verifier.ops.linalg import parse
from verifier.resize.keep import RATIO
from verifier.resize.system import Declined, System

Dims = tuple[int, ...]
"""The unknowns of a shape."""
NEAR = 2
"""A number this close to an extent is that extent and a constant."""
SMALL_COUNT = 8
"""Counts of entries up to this are kept."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A sum of unknowns: the constant part, then one coefficient for each mesh dim."""

    const: tuple[tuple[int, int], ...]
    """(factor, unknown)."""
    rest: int
    terms: tuple[tuple[str, tuple[tuple[int, int], ...], int], ...]


Sized = int | Dims | Offset


@dataclass(frozen=True, slots=True)
class Origin:
    """What the numbers of a value come from: ramps of these extents, and inputs."""

    ramps: frozenset[int] = frozenset()
    data: bool = False


@dataclass
class Sizes:
    """The unknowns of one program: of each value, and of the attributes of each node."""

    program: Program
    origins: dict[str, Origin] = field(default_factory=dict[str, Origin])
    dims: dict[str, Dims] = field(default_factory=dict[str, Dims])
    attrs: list[dict[str, Sized]] = field(default_factory=list[dict[str, Sized]])
    bodies: list[Sizes | None] = field(default_factory=list["Sizes | None"])


@dataclass(frozen=True, slots=True)
class Reading:
    """What a rule is given."""

    system: System
    mesh: Mapping[str, int]
    """The unknown of each mesh dim."""
    node: Node
    ins: tuple[Dims, ...]
    outs: tuple[Dims, ...]

    def number(self, name: str) -> int:
        value = lookup(self.node.op).with_defaults(self.node.attrs)[name]
        assert isinstance(value, int)
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        value = lookup(self.node.op).with_defaults(self.node.attrs)[name]
        assert isinstance(value, tuple)
        return cast(tuple[int, ...], value)

    def alike(self, a: Dims, b: Dims) -> None:
        if len(a) != len(b):
            raise Declined(f"{self.node.op} changes the number of dims")
        for x, y in zip(a, b, strict=True):
            self.system.same(x, y)

    def group(self) -> tuple[int, ...]:
        """The unknowns of the mesh dims of a collective."""
        value = cast(str | tuple[str, ...], self.node.attrs["mesh_dim"])
        return tuple(self.mesh[name] for name in mesh_dims(value))


Rule = Callable[[Reading], dict[str, Sized]]
RULES: dict[str, Rule] = {}
KINDS: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def declare(body: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, body))
        return body

    return declare


def collect(
    system: System,
    program: Program,
    mesh: Mapping[str, int],
    inputs: list[Dims] | None = None,
    origins: list[Origin] | None = None,
) -> Sizes:
    """The unknowns of a program in primitive ops, with its ties added to `system`.

    Raises:
        Declined: an op, or a number, of which it is not known how it follows the extents.
    """
    out = Sizes(program)
    for i, item in enumerate(program.inputs):
        out.dims[item.name] = inputs[i] if inputs else system.shape(item.type.shape)
        out.origins[item.name] = origins[i] if origins else Origin(data=True)
    for node in program.nodes:
        out.attrs.append({})
        out.bodies.append(None)
        if node.body is not None:
            _scan(system, mesh, node, out)
            continue
        outs = tuple(system.shape(program.types[v].shape) for v in node.outputs)
        out.dims.update(zip(node.outputs, outs, strict=True))
        ins = tuple(out.dims[v] for v in node.inputs)
        reading = Reading(system, mesh, node, ins, outs)
        op = lookup(node.op)
        rule = RULES.get(node.op) or KINDS.get(op.kind, _unchanged)
        try:
            out.attrs[-1] = rule(reading)
        except Declined as declined:
            raise Declined(f"{node.op} of %{node.outputs[0]}: {declined}") from None
        _trace(reading, out)
    return out


INDEXED = {"take": 1, "take_along": 1, "index_add": 1, "put_along": 1}
"""Ops that look rows up, and which operand is the index."""


def _trace(r: Reading, out: Sizes) -> None:
    """Notes what the result comes from; ties the rows of a lookup to the ramps it goes along."""
    given = [out.origins[v] for v in r.node.inputs if out.program.types[v].kind != "bool"]
    ramps = frozenset(v for o in given for v in o.ramps)
    if r.node.op == "iota":
        ramps = frozenset({r.outs[0][r.number("dim")]})
    origin = Origin(ramps, any(o.data for o in given))
    out.origins.update(dict.fromkeys(r.node.outputs, origin))
    at = INDEXED.get(r.node.op)
    if at is None:
        return
    index = out.origins[r.node.inputs[at]]
    s, adds = r.system, r.node.op in ("index_add", "put_along")
    dim = 0 if r.node.op == "index_add" else r.number("dim")
    rows = r.outs[0][dim] if adds else r.ins[0][dim]
    ramps = {v for v in index.ramps if s.values[v] > 1}
    if index.data:
        if ramps:
            s.caveats.append(f"the index of %{r.node.outputs[0]} is of data and of positions")
        return
    for v in sorted(ramps):
        for sizes in _blocks(r):
            if math.prod(s.values[n] for n in (*sizes, v)) == s.values[rows]:
                s.multiply((rows,), (*sizes, v))
                return
    for v in (rows, *ramps):
        s.pin(v)


def _scan(system: System, mesh: Mapping[str, int], node: Node, out: Sizes) -> None:
    body = node.body
    assert body is not None
    carries, xs, consts = scan_parts(node.attrs, len(node.inputs))
    ins = [out.dims[v] for v in node.inputs]
    length_now = node.attrs["length"]
    assert isinstance(length_now, int)
    length = system.new(length_now)
    for dims in ins[xs]:
        system.same(dims[0], length)
    passed = [*ins[carries], *(d[1:] for d in ins[xs]), *ins[consts]]
    given = [out.origins[v] for v in node.inputs]
    made = frozenset(v for o in given for v in o.ramps)
    carried = Origin(made, any(o.data for o in given))
    inner = collect(
        system, body, mesh, passed, [*([carried] * (carries.stop or 0)), *given[carries.stop :]]
    )
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


PLAIN = frozenset(["dim", "exclusive", "mesh_dim", "reduce", "index", "src", "dst", "shift"])
"""Attributes that count no entries."""


def _unchanged(r: Reading) -> dict[str, Sized]:
    """Ops whose results have the shape of their operand, entry by entry."""
    for dims in r.outs:
        like = next((d for d in r.ins if _values(r, d) == _values(r, dims)), None)
        if like is None or not set(r.node.attrs) <= PLAIN:
            raise Declined("it is not known how its result follows the extents")
        r.alike(like, dims)
    return {}


def _values(r: Reading, dims: Dims) -> tuple[int, ...]:
    return tuple(r.system.values[v] for v in dims)


def _map(r: Reading) -> dict[str, Sized]:
    (out,) = r.outs
    for dims in r.ins:
        for mine, theirs in zip(dims[::-1], out[::-1], strict=False):
            if r.system.values[mine] == r.system.values[theirs]:
                r.system.same(mine, theirs)
    return {}


def _einsum(r: Reading) -> dict[str, Sized]:
    operands, result = parse(lookup(r.node.op).signature)
    extents: dict[str, int] = {}
    for dims, factors in zip((*r.ins, *r.outs), (*operands, result), strict=True):
        for v, factor in zip(dims, factors, strict=True):
            r.system.same(extents.setdefault(factor, v), v)
    return {}


def _reduce(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    dims = r.numbers("dims")
    if not lookup(r.node.op).with_defaults(r.node.attrs)["keepdim"]:
        r.alike(tuple(v for i, v in enumerate(x) if i not in dims), out)
        return {}
    for i, (a, b) in enumerate(zip(x, out, strict=True)):
        if i not in dims:
            r.system.same(a, b)
    return {}


KINDS.update({"map": _map, "einsum": _einsum, "reduce": _reduce})


@_rule("reshape")
def _reshape(r: Reading) -> dict[str, Sized]:
    """Aligns both sides from the left, splitting the larger of two factors by the smaller."""
    (x,), (out,), s = r.ins, r.outs, r.system
    if not s.align(x, out):
        for v in (*x, *out):
            s.pin(v)
    return {"shape": out}


@_rule("permute")
def _permute(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    r.alike(tuple(x[d] for d in r.numbers("dims")), out)
    return {}


@_rule("expand")
def _expand(r: Reading) -> dict[str, Sized]:
    return {**_map(r), "shape": r.outs[0]}


@_rule("full")
def _full(r: Reading) -> dict[str, Sized]:
    return {"shape": r.outs[0]}


@_rule("iota")
def _iota(r: Reading) -> dict[str, Sized]:
    (out,) = r.outs
    return {"shape": out, "offset": _offset(r, out[r.number("dim")])}


@_rule("slice")
def _slice(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    s, dim, step = r.system, r.number("dim"), r.number("step")
    start, stop = s.new(r.number("start")), s.new(r.number("stop"))
    count = s.values[out[dim]]
    short = step * count - (s.values[stop] - s.values[start])
    s.add(stop, ((1, start), (step, out[dim])), -short)
    s.add(x[dim], ((1, stop), (1, s.new(s.values[x[dim]] - s.values[stop]))))
    r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"start": start, "stop": stop}


@_rule("pad")
def _pad(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    dim, lo, hi = r.number("dim"), r.system.new(r.number("lo")), r.system.new(r.number("hi"))
    r.system.add(out[dim], ((1, lo), (1, x[dim]), (1, hi)))
    r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"lo": lo, "hi": hi}


@_rule("concat")
def _concat(r: Reading) -> dict[str, Sized]:
    (out,) = r.outs
    dim = r.number("dim")
    r.system.add(out[dim], tuple((1, x[dim]) for x in r.ins))
    for x in r.ins:
        r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {}


@_rule("take")
def _take(r: Reading) -> dict[str, Sized]:
    (x, index), (out,) = r.ins, r.outs
    dim = r.number("dim")
    r.alike((*x[:dim], *index, *x[dim + 1 :]), out)
    return {"offset": _offset(r, x[dim])}


@_rule("take_along")
def _take_along(r: Reading) -> dict[str, Sized]:
    (x, index), (out,) = r.ins, r.outs
    dim = r.number("dim")
    r.alike(index, out)
    r.alike((*x[:dim], *x[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"offset": _offset(r, x[dim])}


@_rule("index_add")
def _index_add(r: Reading) -> dict[str, Sized]:
    (g, index), (out,) = r.ins, r.outs
    r.alike(index, g[: len(index)])
    r.alike(g[len(index) :], out[1:])
    return {"size": out[0], "offset": _offset(r, out[0])}


@_rule("put_along")
def _put_along(r: Reading) -> dict[str, Sized]:
    (g, index), (out,) = r.ins, r.outs
    dim = r.number("dim")
    r.alike(g, index)
    r.alike((*g[:dim], *g[dim + 1 :]), (*out[:dim], *out[dim + 1 :]))
    return {"size": out[dim], "offset": _offset(r, out[dim])}


def _tied(r: Reading, many: Dims, few: Dims, dim: int) -> None:
    """`many[dim]` is `few[dim]` times the ranks of the group."""
    r.system.multiply((many[dim],), (*r.group(), few[dim]))


def _but(dims: Dims, *out: int) -> Dims:
    return tuple(v for i, v in enumerate(dims) if i not in out)


@_rule("all_gather", "gather")
def _all_gather(r: Reading) -> dict[str, Sized]:
    (x,), (out,), dim = r.ins, r.outs, r.number("dim")
    _tied(r, out, x, dim)
    r.alike(_but(x, dim), _but(out, dim))
    return {}


@_rule("reduce_scatter", "shard_slice", "scatter")
def _chunk(r: Reading) -> dict[str, Sized]:
    (x,), (out,), dim = r.ins, r.outs, r.number("dim")
    _tied(r, x, out, dim)
    r.alike(_but(x, dim), _but(out, dim))
    return {}


@_rule("merge")
def _merge(r: Reading) -> dict[str, Sized]:
    for x in r.ins:
        r.alike(x, r.outs[0])
    return {}


@_rule("topk_mask")
def _topk(r: Reading) -> dict[str, Sized]:
    """So many of the entries of a dim; a small number is kept, and so many entries are left."""
    (x,), (out,), s = r.ins, r.outs, r.system
    r.alike(x, out)
    count, among = r.number("k"), x[r.number("dim")]
    if count == s.values[among]:
        return {"k": among}
    if count > SMALL_COUNT:
        s.loose.append(s.new(count))
        return {"k": s.loose[-1]}
    s.floors[among] = max(s.floors.get(among, 0), min(count + 1, s.values[among]))
    return {}


@_rule("all_to_all")
def _all_to_all(r: Reading) -> dict[str, Sized]:
    (x,), (out,) = r.ins, r.outs
    split, concat = r.number("split_dim"), r.number("concat_dim")
    _tied(r, x, out, split)
    _tied(r, out, x, concat)
    r.alike(_but(x, split, concat), _but(out, split, concat))
    return {}


def _offset(r: Reading, extent: int) -> Offset:
    """An offset along a dim with this local extent: each of its numbers by the extent it counts."""
    given: Attr = lookup(r.node.op).with_defaults(r.node.attrs)["offset"]
    affine = given if isinstance(given, Affine) else Affine.of(int(str(given)))
    const, rest = _counted(r, extent, affine.const)
    terms: list[tuple[str, tuple[tuple[int, int], ...], int]] = []
    for name, coefficient in affine.terms:
        terms.append((name, *_counted(r, extent, coefficient)))
    return Offset(const, rest, tuple(terms))


def _counted(r: Reading, extent: int, number: int) -> tuple[tuple[tuple[int, int], ...], int]:
    """A number as multiples of unknowns and a constant: of the extent at hand, where it is one."""
    s = r.system
    local = s.values[extent]
    if abs(number) <= NEAR:
        return (), number
    readings: list[tuple[int, int, int, tuple[int, ...]]] = []
    for sizes in _blocks(r):
        block = math.prod((local, *(s.values[v] for v in sizes)))
        times = round(Fraction(number, block)) if block else 0
        rest = number - times * block
        if 1 <= abs(times) <= RATIO and (rest == 0 or (abs(rest) <= NEAR and local > 4 * NEAR)):
            readings.append((abs(rest), abs(times), times, sizes))
    if readings and local > 1:
        rest, _, times, sizes = min(readings, key=lambda x: (x[0], x[1], len(x[3])))
        total = extent
        if sizes:
            total = s.new(math.prod((local, *(s.values[v] for v in sizes))))
            s.multiply((total,), (*sizes, extent))
        return ((times, total),), number - times * s.values[total]
    if local <= 4 * NEAR and abs(number) <= RATIO * 4 * NEAR and local > 1:
        s.pin(extent)
        return (), number
    alone = s.new(abs(number))
    s.loose.append(alone)
    return ((1 if number > 0 else -1, alone),), 0


def _blocks(r: Reading) -> list[tuple[int, ...]]:
    """Mesh dims whose ranks may lie side by side between the extent and the number."""
    sizes = list(r.mesh.values())
    pairs = [(a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :]]
    return [(), *((v,) for v in sizes), *pairs]
