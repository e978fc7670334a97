"""A product of weights of unequal widths that are fused in one, as one product for each: what a
linear gives is cut into queries, keys and values of fewer heads, and whatever else is beside them.

With w = concat(w_i, 1): the columns of mm(x, w) that are of w_i are mm(x, w_i). With gradients
g = concat(g_i, 1): mm(g, wT) = sum_i mm(g_i, w_iT), mm(gT, x) = concat(mm(g_iT, x), 0), and sums
over rows are joined likewise. A join of which only its operands are read again is none, but for
those that are kept.
Where pieces are of one width, placement rules read them as they are.
"""

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from math import prod

from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program

Widths = tuple[int, ...]
"""Of the pieces, in order."""
ROWWISE = ("reshape", "cast", "mul_scalar", "neg")
"""Ops on each column, whatever the others are; reshapes that leave the last dim are."""


def separate_products(program: Program, kept: Collection[str] = ()) -> Program:
    """The program with a product for each of several weights of unequal widths that are fused; the
    same where there are none. No new value has the name of an old one. Joins that are `kept` stay
    though not all of them is read."""
    if not any(n.op == "slice" for n in program.nodes):
        return program
    joined = (
        rewrite(program, {"add": _joined}) if any(n.op == "pad" for n in program.nodes) else program
    )
    found = _Found(joined, kept)
    if not found.cuts and not found.again:
        return program
    patterns: dict[str, Pattern] = {
        "slice": found.slice,
        "mm": found.mm,
        "sum": found.sum,
        "reshape": found.reshape,
    }
    return rewrite(joined, patterns, reserved=program.types)


def _joined(r: Rewriting, node: Node) -> str | None:
    """A sum of pieces padded with zeros that lie one after the other: their join."""
    leaves, ahead = list[Node](), list(node.inputs)
    while ahead:
        made = r.made(ahead.pop(), "add", "pad")
        if made is None:
            return None
        if made.op == "add":
            ahead += made.inputs
        else:
            leaves.append(made)
    if not all(isinstance(n.attrs[k], int) for n in leaves for k in ("lo", "hi")):
        return None
    leaves.sort(key=lambda n: n.number("lo"))
    dim, whole = leaves[0].number("dim"), r.type(node.outputs[0]).shape
    widths = [r.type(n.inputs[0]).shape[dim] for n in leaves]
    starts = [0, *accumulate(widths)]
    follow = [n.number("lo") for n in leaves] == starts[:-1] and starts[-1] == whole[dim]
    if not follow or any(n.number("dim") != dim for n in leaves) or not all(widths):
        return None
    return r.add("concat", *(n.inputs[0] for n in leaves), dim=dim)


class _Found:
    """Where a program cuts what a product gives, and joins gradients of the pieces."""

    def __init__(self, program: Program, kept: Collection[str]) -> None:
        self.program = program
        self.readers: dict[str, list[Node]] = {}
        for node in program.nodes:
            for value in dict.fromkeys(node.inputs):
                self.readers.setdefault(value, []).append(node)
        self.given = {o.value for o in program.outputs}
        self.cuts: set[str] = set()
        """Pieces of what products give."""
        widths: set[Widths] = set()
        for node in program.nodes:
            if node.op == "mm" and not node.where:
                cuts = self._cuts(node)
                self.cuts.update(n.outputs[0] for n in cuts)
                widths |= {_widths(cuts)} if cuts else set()
        joins = [n for n in program.nodes if n.op == "concat" and not n.where]
        self.joins = {
            n.outputs[0] for n in joins if self._of(n) in widths and self._multiplied(n.outputs[0])
        }
        self.again = {
            cut.outputs[0]
            for n in joins
            if n.outputs[0] not in kept
            for cut in self.readers.get(n.outputs[0], ())
            if self._is_apart(n)
        }
        """Operands of joins of which nothing else is read."""
        self.terms: dict[str, list[str]] = {}
        """Of sums over pieces."""
        self.sums: dict[str, list[str]] = {}
        """What joins along the last dim are of: rows of gradients of pieces, added up."""

    def shape(self, value: str) -> tuple[int, ...]:
        return self.program.types[value].shape

    def _cuts(self, product: Node) -> list[Node]:
        """The pieces of unequal widths that cover what a product gives, in order; none where it is
        read otherwise."""
        (first,) = product.outputs
        ahead, width, found = [first], self.shape(first)[1], list[Node]()
        while ahead:
            value = ahead.pop()
            if value in self.given:
                return []
            for node in self.readers.get(value, ()):
                last = len(self.shape(value)) - 1
                if _is_cut(node, last):
                    found.append(node)
                elif self._keeps(node, value, width):
                    ahead += node.outputs
                else:
                    return []
        found.sort(key=lambda n: n.number("start"))
        spans = [(n.number("start"), n.number("stop")) for n in found]
        follow = all(a[1] == b[0] for a, b in pairwise(spans))
        whole = bool(spans) and (spans[0][0], spans[-1][1]) == (0, width)
        unequal = whole and follow and len(set(_widths(found))) > 1
        return found if unequal and any(map(self._has_heads, found)) else []

    def _has_heads(self, cut: Node) -> bool:
        """Whether the last dim of a piece is read as heads."""
        width = self.shape(cut.outputs[0])[-1]
        read = (n for n in self.readers.get(cut.outputs[0], ()) if n.op == "reshape")
        shapes = [self.shape(n.outputs[0]) for n in read]
        heads = (s[-k:] for s in shapes for k in range(2, len(s) + 1))
        return any(h[0] > 1 and h[-1] > 1 and prod(h) == width for h in heads)

    def _keeps(self, node: Node, value: str, width: int) -> bool:
        """Whether an op gives the columns of an operand, each by itself."""
        same = self.shape(node.outputs[0])[-1:] == (width,)
        if node.op == "add":
            other = next((v for v in node.inputs if v != value), value)
            return same and other != value and self.shape(other)[-1:] == (width,)
        return same and node.op in ROWWISE

    def _of(self, join: Node) -> Widths:
        """The widths of what is joined along the last dim."""
        if join.number("dim") != len(self.shape(join.outputs[0])) - 1:
            return ()
        return tuple(self.shape(v)[-1] for v in join.inputs)

    def _multiplied(self, value: str) -> bool:
        """Whether a join is read by products and by sums over its rows alone."""
        ahead, width = [value], self.shape(value)[-1]
        while ahead:
            value = ahead.pop()
            if value in self.given:
                return False
            for node in self.readers.get(value, ()):
                shape = self.shape(node.outputs[0])
                if node.op == "permute" or (node.op in ROWWISE and shape[-1:] == (width,)):
                    ahead += node.outputs
                elif node.op not in ("mm", "sum"):
                    return False
        return True

    def _is_apart(self, join: Node) -> bool:
        """Whether what is read of a join, of operands of several widths, is each time one of
        these."""
        (value,), dim = join.outputs, join.number("dim")
        widths = [self.shape(v)[dim] for v in join.inputs]
        bounds = set(pairwise((0, *accumulate(widths))))
        readers = self.readers.get(value, [])
        return (
            value not in self.given
            and bool(readers)
            and len(set(widths)) > 1
            and all(
                _is_cut(n, dim)
                and (n.number("start"), n.number("stop")) in bounds
                and n.where == join.where
                for n in readers
            )
        )

    def slice(self, r: Rewriting, node: Node) -> str | None:
        if node.outputs[0] not in self.cuts | self.again:
            return None
        dim, start, stop = (node.number(k) for k in ("dim", "start", "stop"))
        value, shape = node.inputs[0], r.type(node.outputs[0]).shape
        made = r.made(value, "reshape")
        if made is not None and node.outputs[0] in self.cuts:
            # The line that cuts keeps an op, which shows the extents that a rank has there.
            dim, value = len(r.type(made.inputs[0]).shape) - 1, made.inputs[0]
            return r.add("reshape", _cut(r, value, dim, start, stop), shape=shape)
        return _cut(r, value, dim, start, stop)

    def mm(self, r: Rewriting, node: Node) -> str | None:
        for at, summed in ((0, 1), (1, 0)):
            found = self._pieces(r, node.inputs[at])
            if found is None:
                continue
            dim, parts = found
            other = node.inputs[1 - at]
            if dim != summed:
                made = [r.add("mm", *((p, other) if at == 0 else (other, p))) for p in parts]
                return r.add("concat", *made, dim=dim)
            ends = [0, *accumulate(r.type(p).shape[dim] for p in parts)]
            terms = list[str]()
            for part, (start, stop) in zip(parts, pairwise(ends), strict=True):
                rest = _cut(r, other, 1 - dim, start, stop)
                terms.append(r.add("mm", *((part, rest) if at == 0 else (rest, part))))
            total = _sum(r, terms)
            self.terms[total] = terms
            return total
        return None

    def reshape(self, r: Rewriting, node: Node) -> str | None:
        """Of a sum over pieces: that of the terms, as each product reshapes what it gives. Of rows
        of the pieces that were added up: their join."""
        value, shape = node.inputs[0], r.type(node.outputs[0]).shape
        if value in self.terms:
            return _sum(r, [r.reshape(t, shape) for t in self.terms[value]])
        if value not in self.sums or shape[-1:] != r.type(value).shape[-1:]:
            return None
        widths = [r.type(p).shape[-1] for p in self.sums[value]]
        rows = zip(self.sums[value], widths, strict=True)
        made = [r.reshape(p, (*shape[:-1], n)) for p, n in rows]
        joined = r.add("concat", *made, dim=len(shape) - 1)
        self.sums[joined] = made
        return joined

    def sum(self, r: Rewriting, node: Node) -> str | None:
        found, dims = self._pieces(r, node.inputs[0]), node.numbers("dims")
        if found is None or found[0] in dims:
            return None
        dim, parts = found
        made = [r.add("sum", p, **node.attrs) for p in parts]
        last = dim - sum(d < dim for d in dims if not node.attrs.get("keepdim"))
        joined = r.add("concat", *made, dim=last)
        if last == len(r.type(joined).shape) - 1:
            self.sums[joined] = made
        return joined

    def _pieces(self, r: Rewriting, value: str) -> tuple[int, Sequence[str]] | None:
        """Along which dim a value is a join of pieces that are apart, and these."""
        node = r.made(value, "concat", "permute", *ROWWISE)
        if node is None:
            return None
        if node.op == "concat":
            return (node.number("dim"), node.inputs) if value in self.joins else None
        found = self._pieces(r, node.inputs[0])
        if found is None:
            return None
        dim, parts = found
        shape = r.type(value).shape
        if node.op == "permute":
            return node.numbers("dims").index(dim), [
                r.add("permute", p, **node.attrs) for p in parts
            ]
        if node.op == "reshape":
            before = r.type(node.inputs[0]).shape
            if dim != len(before) - 1 or shape[-1] != before[-1]:
                return None
            wide = [r.type(p).shape[-1] for p in parts]
            made = [r.reshape(p, (*shape[:-1], n)) for p, n in zip(parts, wide, strict=True)]
            return len(shape) - 1, made
        return dim, [r.add(node.op, p, **node.attrs) for p in parts]


def _sum(r: Rewriting, terms: Sequence[str]) -> str:
    """As autograd adds up the gradients of several products: the last one's first."""
    total = terms[-1]
    for term in reversed(terms[:-1]):
        total = r.add("add", total, term)
    return total


def _is_cut(node: Node, dim: int) -> bool:
    """Whether an op takes entries along a dim, side by side, the same on all ranks."""
    known = node.op == "slice" and (node.attrs["dim"], node.attrs["step"]) == (dim, 1)
    return known and all(isinstance(node.attrs[k], int) for k in ("start", "stop"))


def _widths(cuts: Sequence[Node]) -> Widths:
    return tuple(n.number("stop") - n.number("start") for n in cuts)


def _cut(r: Rewriting, value: str, dim: int, start: int, stop: int) -> str:
    """Entries of a value along a dim, cut from what it is made of as far as that is each entry by
    itself."""
    if (start, stop) == (0, r.type(value).shape[dim]):
        return value
    node = r.made(value, "permute", "mm", "add", "concat", "expand", *ROWWISE)
    if node is not None:
        with r.b.at(node.source):
            made = _cut_operands(r, node, dim, start, stop)
        if made is not None:
            return made
    return r.add("slice", value, dim=dim, start=start, stop=stop, step=1)


def _cut_operands(r: Rewriting, node: Node, dim: int, start: int, stop: int) -> str | None:
    """The op on entries of its operands; None where it takes others too."""
    first, shape = node.inputs[0], r.type(node.outputs[0]).shape
    inner, last = r.type(first).shape, dim == len(shape) - 1
    last = last and inner[-1:] == shape[-1:]
    match node.op:
        case "permute":
            cut = _cut(r, first, node.numbers("dims")[dim], start, stop)
            return r.add("permute", cut, **node.attrs)
        case "reshape" | "expand" if last:
            cut = _cut(r, first, len(inner) - 1, start, stop)
            return r.add(node.op, cut, shape=(*shape[:-1], stop - start))
        case "mm":
            parts = list(node.inputs)
            parts[dim] = _cut(r, parts[dim], dim, start, stop)
            return r.add("mm", *parts)
        case "add" if last and r.type(node.inputs[1]).shape[-1:] == shape[-1:]:
            cuts = (_cut(r, v, len(r.type(v).shape) - 1, start, stop) for v in node.inputs)
            return r.add("add", *cuts)
        case "cast" | "mul_scalar" | "neg":
            return r.add(node.op, _cut(r, first, dim, start, stop), **node.attrs)
        case "concat" if node.number("dim") == dim:
            ends = [0, *accumulate(r.type(v).shape[dim] for v in node.inputs)]
            spans = list(pairwise(ends))
            return node.inputs[spans.index((start, stop))] if (start, stop) in spans else None
        case _:
            return None
