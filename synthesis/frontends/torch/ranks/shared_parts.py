"""Parts of a value that several ranks in a row have: rows of a weight, as of a head of keys.

Each rank has part r // share. With each part as often in a row as there are ranks that have it, the
value is cut into chunks, one a rank. A part that each rank pads with zeros to the whole is padded
to all of these, of which those of one part are summed.

With C(w) the part of each rank, and P(g) its part g among zeros:

    f(C(x), C(y)) = C(f(x, y))    where f leaves the dim of the parts alone
    x C(w) = C(x w)               along the columns of w
    g C(w) = P(g) w               along the rows of w
    P(f(g)) = f(P(g))             where f is linear, and leaves the dim alone
    P(g x) = P(g) x               along the rows of g

A part of extent 1 that each rank repeats n times, as a head of keys for n heads of queries, is its
chunk of the whole of which each part is repeated for all ranks that have it. With R(w, n) each part
of w n times in a row, S(g, n) the sum of n in a row, and Z(g) a rank's chunk g among zeros:

    R(C(w), n) = chunk of R(w, share n)
    P(S(g, n)) = S(Z(g), share n)

So what ranks compute of a part is read as a part of what one device computes. Only a permutation
that does not move the parts is not: one device has keys of every head before it turns them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Attr
from shardproof.verifier.ops.classes import SCALING

Shape = tuple[int, ...]
Known = dict[tuple[str, "Shared"], str]
"""What was made of each part that stands among zeros."""
"""Ops on operands of which each is a part among zeros."""


@dataclass(frozen=True)
class Shared:
    """Parts of one size along a dim: how many, and how many ranks along a mesh dim have each."""

    mesh_dim: str
    dim: int
    parts: int
    share: int

    def along(self, dim: int) -> "Shared":
        return replace(self, dim=dim)

    def whole(self, part: Shape) -> Shape:
        """The shape of which this is one part's."""
        return (*part[: self.dim], self.parts * part[self.dim], *part[self.dim + 1 :])

    def apart(self, whole: Shape, share: int) -> Shape:
        """The shape of the whole with its parts, `share` in a row, and what is in one as dims, this
        where it is more than one."""
        size = whole[self.dim] // self.parts
        inner = (size,) if size > 1 else ()
        return (*whole[: self.dim], self.parts, share, *inner, *whole[self.dim + 1 :])

    def chunk(self, b: Builder, whole: str, name: str | None = None) -> str:
        """The part of each rank, as a value of that name."""
        shape, many = b.types[whole].shape, whole
        if self.share > 1:
            many = b.add("reshape", many, shape=self.apart(shape, 1))
            many = b.add("expand", many, shape=self.apart(shape, self.share))
            wide = (*shape[: self.dim], shape[self.dim] * self.share, *shape[self.dim + 1 :])
            many = b.add("reshape", many, shape=wide)
        attrs: dict[str, Attr] = {"mesh_dim": self.mesh_dim, "dim": self.dim}
        return _named(b, "shard_slice", many, attrs, name)

    def padded(self, b: Builder, part: str, name: str | None = None) -> str:
        """On each rank its part at its place in the whole, zeros elsewhere."""
        many = b.add("shard_pad", part, mesh_dim=self.mesh_dim, dim=self.dim)
        whole = self.whole(b.types[part].shape)
        many = b.add("reshape", many, shape=self.apart(whole, self.share))
        summed = b.add("sum", many, dims=(self.dim + 1,), keepdim=False)
        return _named(b, "reshape", summed, {"shape": whole}, name)


def _named(b: Builder, op: str, value: str, attrs: dict[str, Attr], name: str | None) -> str:
    if name is None:
        return b.add(op, value, **attrs)
    b.add_node(op, [value], attrs, outputs=[name])
    return name


def products_of_wholes(program: Program) -> Program:
    """The program with what is computed of parts that ranks share, written as parts of what is
    computed of wholes."""
    if not any(n.op == "shard_slice" for n in program.nodes):
        return program
    known: Known = {}
    maps = {n.op for n in program.nodes if lookup(n.op).kind in ("map", "reduce", "view")}
    patterns = dict.fromkeys(maps, partial(_of_parts, known)) | {"mm": partial(_product, known)}
    return rewrite(program, patterns)


def _chunk(r: Rewriting, value: str) -> tuple[str, Shared] | None:
    """The whole that each rank has a part of, where ranks share parts."""
    cut = r.made(value, "shard_slice")
    joined = r.made(cut.inputs[0], "reshape") if cut is not None else None
    many = r.made(joined.inputs[0], "expand") if joined is not None else None
    apart = r.made(many.inputs[0], "reshape") if many is not None else None
    if cut is None or many is None or apart is None:
        return None
    whole, dim, name = apart.inputs[0], cut.number("dim"), cut.attrs["mesh_dim"]
    sizes, shape = r.type(many.outputs[0]).shape, r.type(whole).shape
    if not isinstance(name, str) or len(sizes) <= len(shape):
        return None
    found = Shared(name, dim, *sizes[dim : dim + 2])
    fits = found.parts * found.share == r.b.mesh[name] and shape[dim] % found.parts == 0
    if not fits or r.type(apart.outputs[0]).shape != found.apart(shape, 1):
        return None
    return (whole, found) if sizes == found.apart(shape, found.share) else None


def _of_parts(known: Known, r: Rewriting, node: Node) -> str | None:
    """An op on parts, as a part of the op on wholes; a sum that takes in all parts."""
    found = [_chunk(r, v) for v in node.inputs]
    rank = len(r.type(node.outputs[0]).shape)
    aligned = lookup(node.op).kind == "map"
    shares = {
        f[1].along(f[1].dim + rank - len(r.type(v).shape)) if aligned else f[1]
        for v, f in zip(node.inputs, found, strict=True)
        if f is not None
    }
    if not shares:
        special = {"reshape": _gradient, "sum": _summed}.get(node.op)
        return special(known, r, node) if special is not None else None
    shared = shares.pop()
    alone = [v for v, f in zip(node.inputs, found, strict=True) if f is None]
    extents = {
        r.type(v).shape[f[1].dim] for v, f in zip(node.inputs, found, strict=True) if f is not None
    }
    if (
        shares
        or len(extents) > 1
        or (alone and not (aligned and _even(r, node, alone, shared.dim)))
    ):
        return None
    operands = [v if f is None else f[0] for v, f in zip(node.inputs, found, strict=True)]
    placed = _placed(r, node, shared)
    if placed is None:
        return _repeated(r, node, operands[0], shared) if node.op == "reshape" else None
    after, attrs = placed
    return after.chunk(r.b, r.add(node.op, *operands, **attrs))


def _repeated(r: Rewriting, node: Node, whole: str, shared: Shared) -> str | None:
    """A part that is repeated, as a rank's chunk of the whole with each part repeated for all that
    have it; None where the reshape is not of a part of extent 1 that was repeated."""
    made, dim = r.made(whole, "expand"), shared.dim
    if made is None:
        return None
    once, many = r.type(made.inputs[0]).shape, r.type(whole).shape
    n = many[dim + 1] if dim + 1 < len(many) else 1
    if n == 1 or many[dim] != shared.parts or once != (*many[: dim + 1], 1, *many[dim + 2 :]):
        return None
    wide = (*many[: dim + 1], shared.share * n, *many[dim + 2 :])
    flat = (*many[:dim], shared.parts * shared.share * n, *many[dim + 2 :])
    every = r.add("reshape", r.add("expand", made.inputs[0], shape=wide), shape=flat)
    chunk = r.add("shard_slice", every, mesh_dim=shared.mesh_dim, dim=dim)
    return r.reshape(chunk, r.type(node.outputs[0]).shape)


def _even(r: Rewriting, node: Node, operands: Sequence[str], dim: int) -> bool:
    """Whether an elementwise op broadcasts operands, along a dim of its result as along others: one
    of the same shape is a part too, of extent 1."""
    after = r.type(node.outputs[0]).shape
    shapes = [(1,) * (len(after) - len(r.type(v).shape)) + r.type(v).shape for v in operands]
    return all(shape[dim] == 1 and shape != after for shape in shapes)


def _placed(r: Rewriting, node: Node, shared: Shared) -> tuple[Shared, dict[str, Attr]] | None:
    """Where the parts are in the result of an op, and the attributes of the op on wholes; None
    where the op does not leave their dim alone."""
    before, after = r.type(node.inputs[0]).shape, r.type(node.outputs[0]).shape
    attrs, dim = dict(node.attrs), shared.dim
    kind = lookup(node.op).kind
    if kind == "map":
        return shared, attrs
    if kind == "reduce":
        dims = _order(node)
        gone = 0 if attrs["keepdim"] else sum(d < dim for d in dims)
        return (shared.along(dim - gone), attrs) if dim not in dims else None
    if kind == "view" and "dim" in attrs:
        return (shared, attrs) if attrs["dim"] != dim else None
    match node.op:
        case "permute":
            order = _order(node)
            return (shared.along(order.index(dim)), attrs) if order[dim] != dim else None
        case "expand":
            if before[dim] != after[dim] or len(before) != len(after):
                return None
            return shared, {"shape": shared.whole(after)}
        case "reshape":
            at = next(iter(_same_places(before, after, dim)), None)
            if at is None or after[at] > before[dim]:
                return None
            return shared.along(at), {"shape": shared.along(at).whole(after)}
        case _:
            return None


def _order(node: Node) -> tuple[int, ...]:
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple)
    return tuple(int(d) for d in dims)


def _same_places(before: Shape, after: Shape, dim: int) -> list[int]:
    """The dims of a reshaped value that begin where a dim began: those of extent 1 first."""
    outer = prod(before[:dim])
    return [d for d in range(len(after)) if prod(after[:d]) == outer]


def _product(known: Known, r: Rewriting, node: Node) -> str | None:
    left, right = node.inputs
    found = _chunk(r, right)
    if found is None:
        return None
    whole, shared = found
    if shared.dim == 1:
        return shared.chunk(r.b, r.add("mm", left, whole))
    return r.add("mm", _among_zeros(known, r, left, shared.along(1)), whole)


def _gradient(known: Known, r: Rewriting, node: Node) -> str | None:
    """A product of which each rank has a part among zeros, as that of its operand."""
    summed = r.made(node.inputs[0], "sum")
    apart = r.made(summed.inputs[0], "reshape") if summed is not None else None
    many = r.made(apart.inputs[0], "shard_pad") if apart is not None else None
    if summed is None or apart is None or many is None:
        return None
    dim, name, sizes = many.number("dim"), many.attrs["mesh_dim"], r.type(apart.outputs[0]).shape
    if not isinstance(name, str) or summed.attrs["dims"] != (dim + 1,) or summed.attrs["keepdim"]:
        return None
    shared, whole = Shared(name, dim, *sizes[dim : dim + 2]), r.type(node.outputs[0]).shape
    fits = shared.parts * shared.share == r.b.mesh[name] and whole[dim] % shared.parts == 0
    if not fits or sizes != shared.apart(whole, shared.share):
        return None
    part = many.inputs[0]
    return _among_zeros(known, r, part, shared) if r.made(part, "mm", "sum", "reshape") else None


def _among_zeros(known: Known, r: Rewriting, value: str, shared: Shared) -> str:
    """Each rank's part at its place in the whole, as ops on what the part is computed of."""
    if (value, shared) not in known:
        node = r.node(value)
        alone = node is None or bool(node.where)
        summed = None if node is None or alone else _summed_up(r, node, shared)
        operands = None if node is None or alone or summed else _linear(known, r, node, shared)
        if summed is not None:
            made = summed
        elif node is None or operands is None:
            made = shared.padded(r.b, value)
        elif node.op in ("reshape", "expand"):
            made = r.add(node.op, *operands, shape=shared.whole(r.type(value).shape))
        else:
            made = r.add(node.op, *operands, **node.attrs)
        known[value, shared] = made
    return known[value, shared]


def _linear(known: Known, r: Rewriting, node: Node, shared: Shared) -> list[str] | None:
    """The operands on which a linear op gives a part among zeros; None where it is none, or does
    not leave the dim of the parts alone."""
    attrs, dim, first = node.attrs, shared.dim, node.inputs[0] if node.inputs else ""
    after = r.type(node.outputs[0]).shape
    at: int | None = dim
    match node.op:
        case "mm":
            return [_among_zeros(known, r, first, shared), node.inputs[1]] if dim == 0 else None
        case "mul":
            return _scaled(known, r, node, shared)
        case "permute":
            order = _order(node)
            at = order[dim] if order[dim] != dim else None
        case "slice" | "pad" | "concat":
            at = dim if attrs["dim"] != dim else None
        case "sum":
            kept = [d for d in range(len(r.type(first).shape)) if d not in _order(node)]
            at = (dim if dim in kept else None) if attrs["keepdim"] else kept[dim]
        case "expand":
            before = r.type(first).shape
            at = dim if len(before) == len(after) and before[dim] == after[dim] else None
        case "reshape":
            before, made = r.type(first).shape, r.made(first, "sum")
            gone = _order(made) if made is not None else ()
            places = [d for d in _same_places(after, before, dim) if d not in gone]
            at = next((d for d in places if before[d] <= after[dim]), None)
        case op if op in SCALING:
            if any(r.type(v).shape != after for v in node.inputs):
                at = None
        case _:
            at = None
    return (
        None if at is None else [_among_zeros(known, r, v, shared.along(at)) for v in node.inputs]
    )


def _summed_up(r: Rewriting, node: Node, shared: Shared) -> str | None:
    """The sum of what stands in a row for a part of extent 1, as that of all that stands for the
    part on ranks; None where an op is not such a sum."""
    dim, sizes = shared.dim, r.type(node.inputs[0]).shape if node.inputs else ()
    made = r.made(node.inputs[0], "reshape") if node.op == "sum" else None
    if made is None or _order(node) != (dim + 1,) or sizes[dim] != 1:
        return None
    before = r.type(made.inputs[0]).shape
    if any(before[d] == 1 for d in _same_places(sizes, before, dim)):
        return None
    n, outer, inner = sizes[dim + 1], sizes[:dim], sizes[dim + 2 :]
    row = r.reshape(made.inputs[0], (*outer, n, *inner))
    every = r.add("shard_pad", row, mesh_dim=shared.mesh_dim, dim=dim)
    apart = r.add("reshape", every, shape=(*outer, shared.parts, shared.share * n, *inner))
    return r.add("sum", apart, **node.attrs)


def _summed(known: Known, r: Rewriting, node: Node) -> str | None:
    """The sum of a product with a part, as that of a part among zeros with the whole."""
    product = r.made(node.inputs[0], "mul")
    if product is None:
        return None
    for i, factor in enumerate(product.inputs):
        found, other = _chunk(r, factor), product.inputs[1 - i]
        same = r.type(other).shape == r.type(factor).shape == r.type(product.outputs[0]).shape
        if found is None or not same or found[1].dim not in _order(node):
            continue
        whole, shared = found
        many = r.add("mul", _among_zeros(known, r, other, shared), whole)
        return r.add("sum", many, **node.attrs)
    return None


def _scaled(known: Known, r: Rewriting, node: Node, shared: Shared) -> list[str] | None:
    """A part times what is the same all along the dim, or the other's part of a whole."""
    after = r.type(node.outputs[0]).shape
    for i, factor in enumerate(node.inputs):
        found, other = _chunk(r, factor), node.inputs[1 - i]
        if r.type(other).shape != after:
            continue
        if found is not None and found[1] == shared and len(r.type(factor).shape) == len(after):
            factor = found[0]
        elif not _even(r, node, [factor], shared.dim):
            continue
        operands = [_among_zeros(known, r, other, shared), factor]
        return operands[::-1] if i == 0 else operands
    return None
