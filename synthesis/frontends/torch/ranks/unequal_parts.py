"""A program that computes a batch in parts, of any extents, as the one that computes it at once.

A part is rows [lo, hi) of a whole along one dim. What the placement rules say of a piece on a rank,
they say of a part: an op on parts of one span is the part of the op on the wholes, or its share in
their sum. Parts in a row, and shares of all parts, are the whole. Where the rules say nothing, an
op stays as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, product

from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.layout import Atom, Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Node, Program, in_order, live
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.provers.placement.movement import leading
from shardproof.verifier.provers.relate.rules import Rules

PART = "part"
MOST = 32
"""Ways to put operands together that are tried."""
Span = tuple[Fraction, Fraction]
"""From where to where, of a whole that ends at 1."""


@dataclass(frozen=True)
class Part:
    """Rows of a whole along a dim; without a dim, their shares in a sum over all rows."""

    whole: str
    dim: int | None
    spans: tuple[Span, ...]
    """One, but for a sum of shares: those that are in it."""


def at_once(program: Program) -> Program:
    """The program with ops on parts as ops on wholes; the same where nothing is in parts."""
    if not in_order(program) or any(n.body is not None or n.where for n in program.nodes):
        return program
    joining = _Joining(rewrite(program, PATTERNS))
    made = joining.joined()
    return made if joining.found else program


def _number(r: Rewriting, node: Node) -> str | None:
    """What is computed of numbers that all entries are."""
    given = [r.number(v) for v in node.inputs]
    known = [n for n in given if n is not None]
    kind = r.type(node.outputs[0])
    if len(known) < len(given) or not kind.size or (node.op == "div" and not known[1]):
        return None
    value = _of_numbers(node.op, known)
    if node.op == "sum":
        value *= Fraction(r.type(node.inputs[0]).size, kind.size)
    if node.op == "mul_scalar":
        value *= Fraction(str(node.attrs["value"]))
    whole = kind.dtype in ("i64", "i32") and value.denominator == 1 and node.op != "div"
    exact = kind.is_float or whole
    return r.add("full", shape=kind.shape, value=value, dtype=kind.dtype) if exact else None


def _of_numbers(op: str, given: list[Fraction]) -> Fraction:
    match op:
        case "add":
            return given[0] + given[1]
        case "mul":
            return given[0] * given[1]
        case "div":
            return given[0] / given[1]
        case "maximum":
            return max(given)
        case "neg":
            return -given[0]
        case _:
            return given[0]


def _of_one(r: Rewriting, node: Node) -> str | None:
    """What is computed of the entries of a value that are all one: that of the one."""
    number = _number(r, node)
    made = r.made(node.inputs[0], "expand") if number is None else None
    if made is None or r.type(made.inputs[0]).size != 1:
        return number
    shape = r.type(node.outputs[0]).shape
    one = r.reshape(made.inputs[0], ())
    if node.op not in ("reshape", "slice"):
        one = r.add(node.op, one, **node.attrs)
    return r.add("expand", one, shape=shape)


def _slice(r: Rewriting, node: Node) -> str | None:
    """A slice along a dim whose entries are alike."""
    found = _of_one(r, node)
    made, dim = r.made(node.inputs[0], "expand"), node.number("dim")
    shape = r.type(node.outputs[0]).shape
    if found is not None or made is None:
        return found
    if not _spread(r.type(made.inputs[0]).shape, len(shape), dim):
        return None
    return r.add("expand", made.inputs[0], shape=shape)


def _sum(r: Rewriting, node: Node) -> str | None:
    """Of numbers, and of what is stacked along a dim that is summed: what is stacked, added up."""
    number = _number(r, node)
    stack = r.made(node.inputs[0], "concat") if number is None else None
    dims = node.numbers("dims")
    if stack is None or stack.number("dim") not in dims:
        return number
    if any(r.type(v).shape[stack.number("dim")] != 1 for v in stack.inputs):
        return None
    terms = [r.add("sum", v, **node.attrs) for v in stack.inputs]
    total = terms[0]
    for term in terms[1:]:
        total = r.add("add", total, term)
    return total


PATTERNS: dict[str, Pattern] = {
    **dict.fromkeys(("add", "mul", "div", "maximum", "expand"), _number),
    **dict.fromkeys(("neg", "mul_scalar", "cast", "reshape"), _of_one),
    "slice": _slice,
} | {"sum": _sum}


def _spread(source: tuple[int, ...], rank: int, dim: int) -> bool:
    """Whether an expand makes all entries of a dim of one."""
    at = dim - (rank - len(source))
    return at < 0 or source[at] == 1


@dataclass(frozen=True)
class _Lifted:
    """An op on wholes, and the dim of its result along which the parts lie."""

    operands: tuple[str, ...]
    attrs: Mapping[str, Attr]
    shape: tuple[int, ...]
    dim: int | None


class _Joining:
    def __init__(self, program: Program) -> None:
        self.program = program
        mesh = program.mesh
        self.rules = Rules(Mesh((*mesh.dims, (PART, 2))))
        self.b = Builder(program.name, mesh)
        self.b.reserve(program.types)
        self.parts: dict[str, Part] = {}
        self.whole: dict[str, str] = {}
        """By a value that turned out to be a whole, that."""
        self.known: dict[object, str] = {}
        self.producers = program.producers()
        self.found = False

    def joined(self) -> Program:
        for item in self.program.inputs:
            self.b.input(item.name, item.type, item.role, item.path, item.where)
        for node in self.program.nodes:
            with self.b.at(node.source):
                self._take(node)
        for out in self.program.outputs:
            self.b.output(self._of(out.value), out.role, out.path)
        return live(self.b.build())

    def _of(self, value: str) -> str:
        return self.whole.get(value, value)

    def _take(self, node: Node) -> None:
        own = replace(node, inputs=tuple(map(self._of, node.inputs)))
        out = node.outputs[0]
        alone = len(node.outputs) == 1 and lookup(node.op).kind != "movement"
        part = self._joined_part(node) if alone else None
        key = _key(node.op, own.inputs, node.attrs)
        if part is not None and part.spans == ((Fraction(0), Fraction(1)),):
            self.whole[out], self.found = part.whole, True
            return
        if part is not None:
            self.parts[out] = part
        if alone and key in self.known:
            self.whole[out] = self.known[key]
            return
        if alone:
            self.known[key] = out
        self.b.append(own)

    def _joined_part(self, node: Node) -> Part | None:
        given = [self.parts.get(v) for v in node.inputs]
        found = [p for p in given if p is not None]
        if node.op == "slice" and not found:
            return self._cut(node)
        if not found:
            return None
        kind = lookup(node.op).kind
        if kind in ("collective", "movement"):
            return self._sent(node, found[0]) if kind == "collective" else None
        if node.op == "slice" and found[0].dim == node.number("dim"):
            return self._cut(node, found[0])
        if len(found) == len(given) and node.op in ("add", "concat"):
            return self._together(node, found) or self._lifted(node)
        if node.op == "pad" and found[0].dim == node.number("dim"):
            return self._among_zeros(node, found[0])
        return self._lifted(node)

    def _cut(self, node: Node, of: Part | None = None) -> Part | None:
        """Rows of a value, or of a part."""
        value, dim = node.inputs[0], node.number("dim")
        start, stop, step = (node.attrs[k] for k in ("start", "stop", "step"))
        if not (isinstance(start, int) and isinstance(stop, int) and step == 1 and start < stop):
            return None
        extent = self.program.types[value].shape[dim]
        whole = of.whole if of is not None else self._of(value)
        lo, hi = of.spans[0] if of is not None else (Fraction(0), Fraction(1))
        first, last = (lo + (hi - lo) * Fraction(at, extent) for at in (start, stop))
        return Part(whole, dim, ((first, last),))

    def _sent(self, node: Node, part: Part) -> Part | None:
        """What ranks exchange of parts, along another dim, or of shares in a sum."""
        attrs = lookup(node.op).with_defaults(node.attrs)
        if node.op not in ("all_reduce", "all_gather", "reduce_scatter") or len(node.inputs) > 1:
            return None
        linear = attrs.get("reduce", "sum") in ("sum", "avg")
        if (part.dim is None and not linear) or (
            part.dim is not None and attrs.get("dim") == part.dim
        ):
            return None
        return replace(part, whole=self._add(node.op, (part.whole,), node.attrs))

    def _together(self, node: Node, parts: Sequence[Part]) -> Part | None:
        """Shares that are added up, or parts in a row: what they make together."""
        first = parts[0]
        dim = node.number("dim") if node.op == "concat" else None
        if any((p.whole, p.dim) != (first.whole, dim) for p in parts):
            return None
        spans = [s for p in parts for s in p.spans]
        ordered = spans if node.op == "concat" else sorted(spans)
        joined = [ordered[0]]
        for lo, hi in ordered[1:]:
            if lo == joined[-1][1]:
                joined[-1] = (joined[-1][0], hi)
            elif dim is not None or lo < joined[-1][1]:
                return None
            else:
                joined.append((lo, hi))
        return Part(first.whole, dim, tuple(joined))

    def _among_zeros(self, node: Node, part: Part) -> Part | None:
        """A part at its place among zeros: its share in a sum."""
        ((lo, hi),), dim = part.spans, node.number("dim")
        extent = self.b.types[part.whole].shape[dim]
        at_place = node.number("lo") == lo * extent and node.number("hi") == extent - hi * extent
        return Part(part.whole, None, part.spans) if at_place else None

    def _lifted(self, node: Node) -> Part | None:
        """What an op makes of parts, by the placement rules: of those of one span, beside others
        as what they are."""
        spans = dict.fromkeys(p.spans for v in node.inputs if (p := self.parts.get(v)) is not None)
        made = (self._lifted_at(node, span) for span, *more in spans if not more)
        return next(filter(None, made), None)

    def _lifted_at(self, node: Node, span: Span) -> Part | None:
        options = [list(self._readings(v, span)) for v in node.inputs]
        made = list[_Lifted]()
        for operands in islice(product(*options), MOST):
            layouts = tuple(layout for _, layout, _ in operands)
            if not any(layout.mentioned for layout in layouts):
                continue
            try:
                placed = self.rules.place(node, layouts, frozenset())
            except Refused:
                continue
            for option in placed:
                found = self._wide(node, operands, dict(option.attrs), option.layouts[0], span)
                if found is not None and option.scale == 1 and not option.moves:
                    made.append(found)
        # Of a part of one row it is not told which dim is cut: an earlier part may have told.
        for lifted in sorted(
            made, key=lambda m: _key(node.op, m.operands, m.attrs) not in self.known
        ):
            whole = self._add(node.op, lifted.operands, lifted.attrs)
            if self.b.types[whole].shape == lifted.shape:
                return Part(whole, lifted.dim, (span,))
        return None

    def _readings(self, value: str, span: Span) -> Iterator[tuple[str, Layout, int | None]]:
        """A whole of which an operand may be the part, how, and how far its part's dim goes."""
        shape = self.program.types[value].shape
        part = self.parts.get(value)
        part = part if part is not None and part.spans == (span,) else None
        same = Layout.replicate(shape)
        if part is not None and part.dim is None:
            yield part.whole, same.with_partial(((PART, "sum"),)), None
            return
        if part is not None:
            assert part.dim is not None
            yield part.whole, _split(same, part.dim), part.dim
            return
        yield self._of(value), same, None
        made = self.producers.get(value)
        for dim, extent in enumerate(shape):
            wide = extent / (span[1] - span[0])
            if made is None or wide.denominator != 1 or (span[0] * wide).denominator != 1:
                continue
            more = (*shape[:dim], int(wide), *shape[dim + 1 :])
            if made.op == "full":
                yield self._add("full", (), {**made.attrs, "shape": more}), _split(same, dim), dim
            elif made.op == "expand":
                source = made.inputs[0]
                if _spread(self.program.types[source].shape, len(shape), dim):
                    name = self._add("expand", (self._of(source),), {"shape": more})
                    yield name, _split(same, dim), dim

    def _wide(
        self,
        node: Node,
        operands: Sequence[tuple[str, Layout, int | None]],
        attrs: Mapping[str, Attr],
        layout: Layout,
        span: Span,
    ) -> _Lifted | None:
        """The op on the wholes, of which an op on parts makes the part that the rules say."""
        local = self.program.types[node.outputs[0]].shape
        dim = leading(layout, PART)
        summed = layout.partial == ((PART, "sum"),) and not layout.sharded
        split = dim is not None and not layout.partial
        if (
            layout.local_shape != local
            or layout.mentioned != frozenset((PART,))
            or not (summed or split)
        ):
            return None
        shape = list(local)
        if dim is not None:
            wide = local[dim] / (span[1] - span[0])
            if wide.denominator != 1 or (span[0] * wide).denominator != 1:
                return None
            shape[dim] = int(wide)
        own = lookup(node.op).with_defaults(node.attrs)
        changed = {k for k, v in attrs.items() if k in own and own[k] != v}
        if changed - {"shape"}:
            return None
        more = {**node.attrs, "shape": tuple(shape)} if "shape" in own else dict(node.attrs)
        return _Lifted(tuple(name for name, _, _ in operands), more, tuple(shape), dim)

    def _add(self, op: str, operands: tuple[str, ...], attrs: Mapping[str, Attr]) -> str:
        key = _key(op, operands, attrs)
        if key not in self.known:
            (self.known[key],) = self.b.add_node(op, operands, dict(attrs))
        return self.known[key]


def _key(op: str, operands: tuple[str, ...], attrs: Mapping[str, Attr]) -> object:
    return op, operands, tuple(sorted((k, str(v)) for k, v in attrs.items()))


def _split(layout: Layout, dim: int) -> Layout:
    return layout.with_dim(dim, (Atom(2, PART), *layout.dims[dim]))
