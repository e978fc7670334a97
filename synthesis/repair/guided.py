"""Edits that the values ask for: what closes a mismatch, and what the one-device program does next.

The one-device ops whose operands are all found in the distributed program, and whose result is not,
are where a fault keeps the program from going on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

from shardproof.synthesis.repair.edits import Attrs, Edit
from shardproof.synthesis.repair.near import attributes, collectives, dropped, reordered
from shardproof.synthesis.repair.view import View
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout, bound
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr, named_mesh_dims

FRONTIER = 8
COMBINATIONS = 8
READERS = 5
"""Values of fewer readers are inserted for any set of them."""


def closing(value: str, have: Layout, need: Layout) -> Iterator[Edit]:
    """Single collectives that bring a value from one layout closer to another.

    Partial to Replicate: all_reduce. Partial to Shard: reduce_scatter. Shard to Replicate:
    all_gather. Shard to another dim: all_to_all. Replicate to Shard: shard_slice.
    """
    names = dict.fromkeys([*sorted(have.mentioned), *sorted(need.mentioned)])
    moved = [n for n in names if _dim(have, n) != _dim(need, n) or have.fold(n) != need.fold(n)]
    folds = [n for n in moved if have.fold(n) and not need.mentioned & {n}]
    if len(folds) > 1:
        how = str(have.fold(folds[0]))
        yield Edit("after", value, "all_reduce", (("mesh_dim", tuple(folds)), ("reduce", how)))
    for name in moved:
        over, fold = ("mesh_dim", name), have.fold(name)
        a, b = _dim(have, name), _dim(need, name)
        if fold and b is None:
            yield Edit("after", value, "all_reduce", (over, ("reduce", fold)))
        elif fold:
            yield Edit("after", value, "reduce_scatter", (("dim", b or 0), over, ("reduce", fold)))
        elif a is not None and b is None:
            yield Edit("after", value, "all_gather", (("dim", a), over))
        elif a is not None and b is not None:
            yield Edit("after", value, "all_to_all", (("concat_dim", a), over, ("split_dim", b)))
        elif b is not None:
            yield Edit("after", value, "shard_slice", (("dim", b), over))


def _dim(layout: Layout, name: str) -> int | None:
    for index, atoms in enumerate(layout.dims):
        if name in bound(atoms):
            return index
    return None


def settled(view: View, contract: Contract, wanted: dict[str, str]) -> Iterator[Edit]:
    """For outputs that are the right value in the wrong pieces: what brings them together."""
    for out in view.program.outputs:
        key = output_key(out)
        if out.value not in view.wrong or key not in wanted:
            continue
        readers = (key,) if view.readers.get(out.value) else ()
        for claim in view.claims.get(out.value, ()):
            if claim.of != wanted[key]:
                continue
            pending = view.machine.sizes(claim.layout.pending)
            for edit in closing(out.value, claim.layout, contract.outputs[key]):
                if claim.scale == pending != 1 and "reduce" in dict(edit.attrs):
                    averaged = {**dict(edit.attrs), "reduce": "avg"}
                    edit = replace(edit, attrs=tuple(sorted(averaged.items())))
                yield edit
                if readers:
                    yield Edit(edit.kind, edit.value, edit.op, edit.attrs, uses=readers)
        for value in view.covered.get(wanted[key], ()):
            if view.program.types[value] == view.program.types[out.value]:
                yield Edit("output", key, operands=(value,))


def guided(view: View, node: Node) -> Iterator[Edit]:
    """Edits around a node that the claims of its operands and of the rest suggest."""
    for value in dict.fromkeys(node.inputs):
        pending = {n for c in view.exact(value) for n in c.layout.pending}
        yield from _closed(view, node, value, pending)
        off = view.claims.get(value) and not view.exact(value)
        if off and value in view.producers:
            yield from dropped(view.program, view.producers[value])
            yield from attributes(view.program, view.producers[value])
    yield from _constants(view, node)
    yield from _draws(view, node)
    yield from _summed(view, node)
    yield from dropped(view.program, node)
    yield from attributes(view.program, node)
    yield from reordered(view.program, node)
    for reader in view.readers.get(node.outputs[0], ()):
        yield from reordered(view.program, reader)
    for theirs in frontier(view, node)[:FRONTIER]:
        yield from _made(view, node, theirs)
    for value in dict.fromkeys(node.inputs):
        claims = view.exact(value)
        if not claims or claims[0].layout.sharded:
            yield from _closed(view, node, value, set(view.program.mesh.names))


def _closed(view: View, node: Node, value: str, over: set[str]) -> Iterator[Edit]:
    """Collectives over some mesh dims for an operand: for all its readers, or for this one."""
    if not view.program.types[value].is_float:
        return
    alone = (node.outputs[0],) if len(view.readers[value]) > 1 else ()
    for edit in collectives(view.program, value):
        if over.issuperset(named_mesh_dims("mesh_dim", dict(edit.attrs)["mesh_dim"])):
            yield edit
            if alone:
                yield Edit(edit.kind, value, edit.op, edit.attrs, uses=alone)


def _constants(view: View, node: Node) -> Iterator[Edit]:
    """A constant whose result is off by a factor from what one device has, put right."""
    value = node.attrs.get("value")
    if node.op in ("mul_scalar", "full") and isinstance(value, int | Fraction):
        for claim in view.claims.get(node.outputs[0], ()):
            changed = (("value", Fraction(value) / claim.scale),)
            yield Edit("set", node.outputs[0], attrs=changed)


def _draws(view: View, node: Node) -> Iterator[Edit]:
    """Random numbers by their place in the whole tensor, not in the piece of a rank."""
    if not {"strides", "offset"} <= lookup(node.op).attrs.keys():
        return
    local = view.program.types[node.outputs[0]].shape
    beside = [v for n in view.readers.get(node.outputs[0], ()) for v in n.inputs]
    found: dict[Attrs, None] = {}
    for value in (*node.inputs, *beside):
        for claim in view.exact(value):
            if claim.layout.local_shape == local and claim.layout.sharded:
                place = _place(claim.layout)
                found |= {place: None} if place else {}
    for attrs in found:
        yield Edit("set", node.outputs[0], attrs=attrs)


def _place(layout: Layout) -> Attrs | None:
    """Strides of the whole, and the offset of a block of it; None where the split is no block."""
    strides, offset, stride = list[int](), dict[str, int](), 1
    for atoms in reversed(layout.dims):
        strides.insert(0, stride)
        extent, free = 1, True
        for atom in reversed(atoms):
            if atom.mesh_dim is None and not free and atom.size > 1:
                return None
            if atom.mesh_dim is not None:
                free = False
                offset[atom.mesh_dim] = extent * stride
            extent *= atom.size
        stride *= extent
    return (("offset", Affine.of(0, offset)), ("strides", tuple(strides)))


def _summed(view: View, node: Node) -> Iterator[Edit]:
    """A value that nothing reads, added: as of micro-batches or of several uses."""
    types = view.program.types
    for value in (*node.outputs, *dict.fromkeys(node.inputs)):
        for other in view.idle:
            if other != value and types[other] == types[value] and types[value].is_float:
                yield Edit("after", value, "add", operands=(value, other))


def factors(view: View, node: Node) -> Iterator[Edit]:
    """A factor after a result that is a multiple of what one device has."""
    for claim in view.claims.get(node.outputs[0], ()):
        if claim.scale != 1:
            yield Edit("after", node.outputs[0], "mul_scalar", (("value", 1 / claim.scale),))


def frontier(view: View, node: Node) -> list[Node]:
    """One-device ops that could come next, those most like a node first."""
    ends = [v for v in node.outputs if v in view.wrong]
    held = {c.of for v in (*node.inputs, *ends) for c in view.claims.get(v, ())}
    above = {v for u in node.inputs if u in view.producers for v in view.producers[u].inputs}
    early = {c.of for v in above for c in view.claims.get(v, ())} - held
    found: list[tuple[int, int, Node]] = []
    for place, theirs in enumerate(view.frontier):
        shared = len(held.intersection(theirs.inputs))
        shared = 2 * shared + len(early.intersection(theirs.inputs))
        if shared or theirs.op == node.op:
            found.append((-shared - 3 * (theirs.op == node.op), place, theirs))
    return [theirs for _, _, theirs in sorted(found, key=lambda f: f[:2])]


def _made(view: View, node: Node, theirs: Node) -> Iterator[Edit]:
    """The one-device op in place of the node, or between the node and what it reads."""
    name, program = node.outputs[0], view.program
    sources = [_sources(view, node, value) for value in theirs.inputs]
    for count, operands in enumerate(product(*sources)):
        if count == COMBINATIONS:
            break
        if len(node.outputs) == 1 and name not in operands:
            for attrs in _local(program, theirs, node):
                if theirs.op != node.op or operands != node.inputs or attrs != _given(node):
                    yield Edit("replace", name, theirs.op, attrs, operands)
        mine = [v for v in operands if v in node.inputs]
        for value in dict.fromkeys(mine):
            for attrs in _local(program, theirs, None):
                for uses in _some(view, value, name):
                    yield Edit("after", value, theirs.op, attrs, operands, uses=uses)
        if name in operands:
            for attrs in _local(program, theirs, None):
                for key in _ends(view, name):
                    yield Edit("after", name, theirs.op, attrs, operands, uses=(key,))
                yield Edit("after", name, theirs.op, attrs, operands)


def _ends(view: View, name: str) -> list[str]:
    """Keys of wrong outputs that are a value which other ops read too."""
    if not view.readers.get(name) or name not in view.wrong:
        return []
    return [output_key(o) for o in view.program.outputs if o.value == name]


def _some(view: View, value: str, name: str) -> Iterator[tuple[str, ...]]:
    """Readers of a value that may read another instead: all, one, and where few, any with it."""
    yield ()
    readers = [n.outputs[0] for n in view.readers[value]]
    rest = [r for r in readers if r != name]
    if rest:
        yield (name,)
    if len(rest) < READERS:
        for count in range(1, len(rest)):
            for more in combinations(rest, count):
                yield (name, *more)


def _given(node: Node) -> Attrs:
    return tuple(sorted(node.attrs.items()))


def _sources(view: View, node: Node, value: str) -> list[str]:
    """Distributed values that are a one-device value: those the node reads, then the last."""
    found = view.covered[value]
    mine = [v for v in (*node.inputs, *node.outputs) if v in found]
    rest = [v for v in reversed(found) if v not in mine]
    return [*dict.fromkeys(mine), *rest][:4]


def _pieces(program: Program, attrs: dict[str, Attr]) -> Iterator[Attrs]:
    """The attributes with one dim of the shape cut over a mesh dim."""
    shape = attrs["shape"]
    assert isinstance(shape, tuple)
    extents = [int(n) for n in shape]
    for _, size in program.mesh.dims:
        for dim, extent in enumerate(extents):
            if size > 1 and extent % size == 0:
                cut = (*extents[:dim], extent // size, *extents[dim + 1 :])
                yield tuple(sorted({**attrs, "shape": cut}.items()))


def _local(program: Program, theirs: Node, node: Node | None) -> list[Attrs]:
    """The attributes of a one-device op for pieces: as written, with local shapes, with offsets."""
    attrs: dict[str, Attr] = dict(theirs.attrs)
    out: list[Attrs] = [tuple(sorted(attrs.items()))]
    if node is not None:
        if "shape" in attrs:
            local = program.types[node.outputs[0]].shape
            out.insert(0, tuple(sorted({**attrs, "shape": local}.items())))
        if node.op == theirs.op:
            out.insert(0, _given(node))
    elif "shape" in attrs:
        out += _pieces(program, attrs)
    if "offset" in lookup(theirs.op).attrs:
        sizes: Sequence[int] = sorted({n for t in program.types.values() for n in t.shape if n > 1})
        for name in program.mesh.names:
            for size in sizes[:6]:
                moved = {**attrs, "offset": Affine.of(0, {name: size})}
                out.append(tuple(sorted(moved.items())))
    return list(dict.fromkeys(out))
