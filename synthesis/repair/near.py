"""Edits around one op that need no knowledge of what it should compute.

Likelier faults come first; nothing is tried here.
"""

from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations
from typing import cast

from shardproof.synthesis.repair.edits import Attrs, Edit
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, named_mesh_dims
from shardproof.verifier.kernel.program.where import ranks_where
from shardproof.verifier.ops.classes import MESSAGES

FOLDS = ("sum", "avg", "max", "min")
OTHERS = 12
"""Values of the same type that are tried as another operand, nearest first."""
ALIKE = 8
"""Ops of the same attributes that are changed together, at most."""
EXCHANGED = (
    ("all_reduce", "broadcast", "on_coord", "ring_shift"),
    ("reduce_scatter", "shard_slice"),
    ("gelu", "relu", "silu", "gelu_tanh", "sigmoid", "tanh"),
    ("gelu_grad", "relu_grad", "silu_grad", "gelu_tanh_grad", "sigmoid"),
    ("exp", "expm1"),
    ("log", "log1p"),
    ("sqrt", "rsqrt", "reciprocal"),
    ("add", "sub", "mul", "div", "maximum", "minimum"),
    ("lt", "le", "gt", "ge", "eq", "ne"),
    ("sum", "amax", "mean"),
)
"""Ops that are taken for one another."""


def near(program: Program, node: Node) -> Iterator[Edit]:
    """Edits of one node, or right after it."""
    yield from dropped(program, node)
    yield from attributes(program, node)
    yield from alike(program, node)
    yield from exchanged(program, node)
    yield from reordered(program, node)
    yield from placed(program, node)
    if program.types[node.outputs[0]].is_float:
        yield from collectives(program, node.outputs[0])
    yield from rewired(program, node)
    yield from messages(program, node)
    if node.timing.asynchronous:
        yield Edit("after", node.outputs[0], "wait")


def dropped(program: Program, node: Node) -> Iterator[Edit]:
    if len(node.outputs) == 1 and node.body is None:
        type = program.types[node.outputs[0]]
        for index, value in enumerate(node.inputs):
            if program.types[value] == type or lookup(node.op).kind == "collective":
                yield Edit("drop", node.outputs[0], node.op, index=index)


def attributes(program: Program, node: Node) -> Iterator[Edit]:
    """Every attribute of the node, changed in the ways of its kind."""
    declared = lookup(node.op).with_defaults(node.attrs)
    shape = program.types[node.inputs[0]].shape if node.inputs else ()
    mesh = program.mesh
    for name, now in declared.items():
        for value in _values(name, now, shape, node, program, mesh):
            if value != now:
                yield Edit("set", node.outputs[0], attrs=((name, value),))
    yield from _pairs(node, declared, shape)


def alike(program: Program, node: Node) -> Iterator[Edit]:
    """The same change of every op that is as this one, as where one line of source makes many."""
    same = [n for n in program.nodes if n.op == node.op and n.attrs == node.attrs]
    if not 1 < len(same) <= ALIKE or lookup(node.op).kind not in ("collective", "create", "view"):
        return
    name = node.outputs[0]
    for edit in attributes(program, node):
        yield Edit("set_alike", name, attrs=edit.attrs)
    for edit in dropped(program, node):
        yield Edit("drop_alike", name, node.op, index=edit.index)


def skipped(program: Program, among: Sequence[Node]) -> Iterator[Edit]:
    """Lines of source left out that make some of these nodes, and more than one."""
    lines: dict[object, list[Node]] = {}
    for node in among:
        lines.setdefault((node.source, node.source.calls), []).append(node)
    for same in lines.values():
        if len(same) > 1 and same[0].source.file:
            for index in range(2):
                yield Edit("skip", same[0].outputs[0], index=index)


def averaged(among: Sequence[Node], dims: Collection[str]) -> Iterator[Edit]:
    """The reductions over some mesh dims as means where they are sums, and as sums where means."""
    other = {"sum": "avg", "avg": "sum"}
    folds = [n for n in among if n.attrs.get("reduce") in other]
    over = (n for n in folds if {*named_mesh_dims("mesh_dim", n.attrs["mesh_dim"])} <= {*dims})
    found = {(n.op, str(n.attrs)): n for n in over}
    for node in found.values():
        fold = other[str(node.attrs["reduce"])]
        yield Edit("set_alike", node.outputs[0], attrs=(("reduce", fold),))


def _values(
    name: str, now: object, shape: tuple[int, ...], node: Node, program: Program, mesh: Mesh
) -> Iterator[Attr]:
    match name:
        case "reduce":
            yield from FOLDS
        case "mesh_dim":
            yield from mesh.names
            if lookup(node.op).kind == "collective" and len(mesh.names) > 1:
                ordered = node.op not in ("all_reduce", "on_coord", "broadcast")
                for count in range(2, len(mesh.names) + 1):
                    yield from (permutations if ordered else combinations)(mesh.names, count)
        case "dim" | "split_dim" | "concat_dim":
            yield from range(max(len(shape), len(program.types[node.outputs[0]].shape)))
        case "reverse" | "keepdim" | "causal" | "exclusive":
            yield not now
        case "dims":
            rank = len(shape)
            chosen = permutations if node.op == "permute" else combinations
            yield from chosen(range(rank), len(node.numbers("dims")))
        case "offset" | "q_offset" | "k_offset":
            yield from offsets(now, program, node)
        case "value" | "scale" | "exponent" | "eps" if isinstance(now, int | Fraction):
            for factor in factors(mesh):
                yield Fraction(now) * factor
        case "index" | "src" | "dst" | "shift" if isinstance(now, int):
            names = named_mesh_dims("mesh_dim", node.attrs.get("mesh_dim", ()))
            for size in {mesh[n] for n in names}:
                yield from range(size)
        case "stream" if isinstance(now, int):
            yield from range(3)
        case _:
            return


def _pairs(node: Node, declared: dict[str, Attr], shape: tuple[int, ...]) -> Iterator[Edit]:
    """Attributes that move together: both ends of a cut, both sides of an exchange."""
    name = node.outputs[0]
    for low, high in (("start", "stop"), ("lo", "hi")):
        a, b = declared.get(low), declared.get(high)
        if not (isinstance(a, int) and isinstance(b, int)):
            continue
        steps = {(1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)}
        extent = b - a if low == "start" else a + b
        moves = [(a + i, b + j) for i, j in sorted(steps)]
        if low == "start" and extent > 0:
            whole = shape[int(str(declared["dim"]))] if shape else 0
            moves += [(s, s + extent) for s in range(0, whole - extent + 1, extent)]
        moves.append((b, a) if low == "lo" else (a, b))
        for i, j in moves:
            if i >= 0 and j >= 0 and (i, j) != (a, b):
                yield Edit("set", name, attrs=((low, i), (high, j)))
    for one, other in (("src", "dst"), ("split_dim", "concat_dim")):
        if one in declared and other in declared:
            turned = ((one, declared[other]), (other, declared[one]))
            yield Edit("set", name, attrs=turned)
    if node.op == "iota":
        cut = declared["shape"]
        assert isinstance(cut, tuple)
        for dim in range(len(cut)):
            yield Edit("set", name, attrs=(("dim", dim),))
            yield Edit("set", name, attrs=(("dim", dim), ("shape", cut[::-1])))
    if node.op in ("reshape", "expand"):
        cut = declared["shape"]
        assert isinstance(cut, tuple)
        for order in list(permutations(cut))[:6]:
            if order != cut:
                yield Edit("set", name, attrs=(("shape", cast("tuple[int, ...]", order)),))


def offsets(now: object, program: Program, node: Node) -> Iterator[Attr]:
    """Offsets that are a multiple of a coordinate, near the one given."""
    mesh = program.mesh
    at = now if isinstance(now, Affine) else Affine(int(str(now)))
    terms = dict(at.terms)
    extents = {n for v in (*node.inputs, *node.outputs) for n in program.types[v].shape if n > 1}
    for size in sorted(extents):
        for name in mesh.names:
            yield Affine.of(0, {name: size})
    for step in (1, -1):
        yield Affine.of(at.const + step, terms)
        for name, size in terms.items():
            yield Affine.of(at.const, {**terms, name: size + step})
    yield Affine.of(at.const)
    for name, size in terms.items():
        for other in mesh.names:
            yield Affine.of(at.const, {other: size})
        for factor in (2, 4):
            yield Affine.of(at.const, {**terms, name: size * factor})
            if size % factor == 0:
                yield Affine.of(at.const, {**terms, name: size // factor})
    for a, b in permutations(mesh.names, 2):
        yield Affine.of(at.const, {a: mesh[b], b: 1})
    yield Affine()
    yield 0


def factors(mesh: Mesh) -> list[Fraction]:
    """What a constant may be off by."""
    sizes = [Fraction(1)]
    for _, size in mesh.dims:
        sizes += [s * size for s in sizes if s * size not in sizes]
    found = [Fraction(2), *sizes, Fraction(-1), Fraction(4), Fraction(10)]
    return list(dict.fromkeys(f for s in found for f in (s, 1 / s) if f != 1))


def exchanged(program: Program, node: Node) -> Iterator[Edit]:
    """Another op of the same use; another collective with every dim it could have."""
    for group in EXCHANGED:
        if node.op in group:
            for op in group:
                attrs = _fitting(op, node)
                folds = FOLDS if "reduce" in lookup(op).attrs else ()
                for fold in () if op == node.op else folds or ("",):
                    more = (("reduce", fold),) if fold else ()
                    yield Edit("replace", node.outputs[0], op, (*attrs, *more))
    if lookup(node.op).kind in ("collective", "movement") and "mesh_dim" in node.attrs:
        over = node.attrs["mesh_dim"]
        rank = len(program.types[node.inputs[0]].shape)
        for op, attrs in _communications(rank):
            if op != node.op:
                yield Edit("replace", node.outputs[0], op, (("mesh_dim", over), *attrs))


def _fitting(op: str, node: Node) -> Attrs:
    known = lookup(op).attrs
    kept = ((k, v) for k, v in sorted(node.attrs.items()) if k in known and k != "reduce")
    return tuple(kept)


def _communications(rank: int) -> Iterator[tuple[str, Attrs]]:
    yield "all_reduce", (("reduce", "sum"),)
    for dim in range(rank):
        yield "all_gather", (("dim", dim),)
        yield "reduce_scatter", (("dim", dim), ("reduce", "sum"))
        yield "shard_slice", (("dim", dim),)
    yield "all_reduce", (("reduce", "avg"),)
    yield "all_reduce", (("reduce", "max"),)
    for a, b in permutations(range(rank), 2):
        yield "all_to_all", (("concat_dim", b), ("split_dim", a))
    yield "broadcast", (("index", 0),)
    yield "ring_shift", (("shift", 1),)


def collectives(program: Program, value: str) -> Iterator[Edit]:
    """Every collective after a value, over every mesh dim; sums over all of them too."""
    names = [n for n, size in program.mesh.dims if size > 1]
    rank = len(program.types[value].shape)
    for op, attrs in _communications(rank):
        for name in names:
            yield Edit("after", value, op, (("mesh_dim", name), *attrs))
    for count in range(2, len(names) + 1):
        for several in combinations(names, count):
            for how in ("sum", "avg"):
                yield Edit("after", value, "all_reduce", (("mesh_dim", several), ("reduce", how)))


def scaled(mesh: Mesh, value: str) -> Iterator[Edit]:
    for factor in factors(mesh):
        yield Edit("after", value, "mul_scalar", (("value", factor),))


def reordered(program: Program, node: Node) -> Iterator[Edit]:
    name = node.outputs[0]
    made = program.producers()
    if len(node.inputs) == 1:
        before = made.get(node.inputs[0])
        for index in range(len(before.inputs) if before is not None else 0):
            yield Edit("commute", name, node.op, index=index)
    else:
        for index, value in enumerate(node.inputs):
            if value in made and len(made[value].inputs) == 1:
                yield Edit("commute", name, node.op, index=index)
    if node.body is None and len(node.inputs) < 5:
        for i, j in combinations(range(len(node.inputs)), 2):
            if node.inputs[i] != node.inputs[j]:
                inputs = list(node.inputs)
                inputs[i], inputs[j] = inputs[j], inputs[i]
                yield Edit("swap", name, operands=tuple(inputs))


def placed(program: Program, node: Node) -> Iterator[Edit]:
    """The node on other ranks: one coordinate else, or all."""
    mesh, limited = program.mesh, dict(node.where)
    for name in limited:
        for other in range(mesh[name]):
            where = ranks_where(mesh, {**limited, name: (other,)})
            if where != node.where:
                yield Edit("on", node.outputs[0], where=where)
        rest = {k: v for k, v in limited.items() if k != name}
        yield Edit("on", node.outputs[0], where=ranks_where(mesh, rest))


def rewired(program: Program, node: Node) -> Iterator[Edit]:
    """Another value of the same type for one operand; another piece to merge."""
    order = list(program.types)
    place = {v: i for i, v in enumerate(order)}
    here = place[node.outputs[0]]
    inside = _after(program, node)
    read = {v for n in program.nodes for v in n.inputs} | {o.value for o in program.outputs}
    by_type: dict[object, list[str]] = {}
    for value in order:
        if value not in inside:
            by_type.setdefault(program.types[value], []).append(value)

    def nearest(value: str) -> list[str]:
        same = by_type.get(program.types[value], [])
        return sorted(same, key=lambda v: (v in read, abs(place[v] - here)))[:OTHERS]

    for index, value in enumerate(node.inputs):
        for other in nearest(value):
            if other != value:
                yield Edit("rewire", node.outputs[0], operands=(other,), index=index)
    if node.op in ("merge", "concat"):
        for other in nearest(node.inputs[0]):
            if other not in node.inputs:
                for index in (len(node.inputs), 0):
                    operands = (other,) if index else (other, node.inputs[0])
                    yield Edit("rewire", node.outputs[0], operands=operands, index=index)


def _after(program: Program, node: Node) -> set[str]:
    """The results of a node and all that depends on them."""
    out = set(node.outputs)
    for later in program.nodes:
        if not out.isdisjoint(later.inputs):
            out.update(later.outputs)
    return out


def messages(program: Program, node: Node) -> Iterator[Edit]:
    """A send or a receive that is missing, as others in the program have it."""
    others = [n for n in program.nodes if n.op in MESSAGES or n.op == "only"]
    known = ((n.op, tuple(sorted(n.attrs.items())), n.where) for n in others)
    for op, attrs, where in dict.fromkeys(known):
        yield Edit("after", node.outputs[0], op, attrs, where=where)
        for value in node.inputs:
            yield Edit("after", value, op, attrs, uses=(node.outputs[0],), where=where)


def returned(program: Program, wrong: set[str]) -> Iterator[Edit]:
    """Outputs exchanged: those that are wrong and of the same type."""
    ends = [o for o in program.outputs if o.value in wrong]
    for a, b in combinations(ends, 2):
        if program.types[a.value] == program.types[b.value] and a.value != b.value:
            yield Edit("output", output_key(a), operands=(b.value,))
