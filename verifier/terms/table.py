"""The table of terms, and the constructors that bring them to normal form."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.map import broadcast
from shardproof.verifier.kernel.program.registry import ONE, Site, traits
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.terms.building import BUILD
from shardproof.verifier.terms.defined import Defined, uses_all
from shardproof.verifier.terms.refs import Ref, Shape, Term, times


class Terms:
    """A table of terms. Ids grow; a term is never changed."""

    def __init__(self) -> None:
        self.nodes: list[Term] = []
        self._ids: dict[Term, int] = {}
        self.needed: Set[int] | None = None
        """Terms of which one device has all entries wherever it has its outputs; None as long as
        its program is read."""
        self.defined = Defined()

    def __getstate__(self) -> dict[str, Any]:
        """Without what is worked out on demand."""
        return {k: v for k, v in self.__dict__.items() if k != "defined"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.defined = Defined()

    def loose(self, id: int) -> bool:
        """Whether an entry may have no value though the outputs of one device have theirs.

        What one device itself computes is read as it stands: where a form has a value that the
        program has not, no input in scope is lost.
        """
        return self.needed is not None and self.defined.read(self.nodes, self.needed, id)

    def open(self, id: int) -> frozenset[int]:
        """The functions in a loose term that may have no value; -1 stands for too many to name."""
        return frozenset(at for at, _ in self.defined.open[id]) if self.loose(id) else frozenset()

    def need(self, ids: Iterable[int]) -> None:
        """Ends the reading of the one-device program, whose outputs need all entries of terms."""
        need = [False] * len(self.nodes)
        for id in ids:
            need[id] = True
        for id in reversed(range(len(need))):
            term = self.nodes[id]
            if need[id] and uses_all(term) and math.prod(term.shape):
                for arg in term.args:
                    need[arg.id] = True
        self.needed = frozenset(id for id, held in enumerate(need) if held)

    def __getitem__(self, id: int) -> Term:
        return self.nodes[id]

    def shape(self, ref: Ref) -> Shape:
        return self.nodes[ref.id].shape

    def intern(self, op: str, args: Sequence[Ref], attrs: tuple[Any, ...], shape: Shape) -> Ref:
        term = Term(op, tuple(args), attrs, shape)
        found = self._ids.get(term)
        if found is None:
            found = len(self.nodes)
            self.nodes.append(term)
            self._ids[term] = found
        return Ref(ONE, found)

    def same(self, a: Ref, b: Ref) -> None:
        """Two terms are taken for equal: a table that remembers takes note of it."""

    def var(self, name: str, shape: Shape) -> Ref:
        """An input of the one-device program."""
        return self.intern("var", (), (name,), shape)

    def ones(self, shape: Shape) -> Ref:
        return self.intern("ones", (), (), shape)

    def full(self, shape: Shape, value: Fraction) -> Ref:
        return Ref(Fraction(value), self.ones(shape).id)

    def is_zero(self, ref: Ref) -> bool:
        return ref.coef == 0

    def apply(
        self, op: str, args: Sequence[Ref], attrs: Mapping[str, Any], dtypes: Sequence[str]
    ) -> Ref:
        """The term of an op on whole operands; `dtypes` are those of the operands."""
        build = BUILD.get(op)
        if build is not None:
            return build(self, list(args), attrs, dtypes)
        known = lookup(op)
        if known.kind == "map":
            return self.mapped(op, list(args), tuple(sorted(attrs.items())))
        if known.kind == "reduce":
            return self.reduce(op, args[0], tuple(attrs["dims"]), attrs["keepdim"])
        if known.kind not in ("rows", "view", "index"):
            raise KeyError(f"op {op} has no term")
        types = tuple(TensorType(self.shape(a), t) for a, t in zip(args, dtypes, strict=True))
        attrs = known.with_defaults(attrs)
        (result,) = known.types(Site(op, types, attrs, Mesh(())))
        made = self.linear if frozenset({0}) in known.linear else self.intern
        return made(op, args, tuple(attrs[k] for k in known.attrs), result.shape)

    # structure

    def strip(self, ref: Ref) -> Ref:
        """Read through a broadcast: elementwise ops see the smaller tensor."""
        term = self.nodes[ref.id]
        if term.op == "expand":
            inner = term.args[0]
            return Ref(times(ref.coef, inner.coef), inner.id)
        if term.op == "ones" and term.shape != ():
            return Ref(ref.coef, self.ones(()).id)
        return ref

    def fit(self, ref: Ref, shape: Shape) -> Ref:
        """Broadcast back to the shape an elementwise op really has."""
        return ref if self.shape(ref) == shape else self.expand(ref, shape)

    def mapped(self, op: str, args: list[Ref], attrs: tuple[Any, ...]) -> Ref:
        shape = broadcast(*(self.shape(a) for a in args))
        small = [self.strip(a) for a in args]
        small = sorted(small, key=lambda r: (r.id, r.coef)) if traits(op).symmetric else small
        inner = broadcast(*(self.shape(a) for a in small))
        sources = self._sources(small, inner)
        if sources is not None:
            made = self.reshape(self.mapped(op, sources, attrs), inner)
        else:
            made = self.intern(op, small, attrs, inner)
        return self.fit(made, shape)

    def _sources(self, args: Sequence[Ref], shape: Shape) -> list[Ref] | None:
        """What operands of an op on entries are reshapes of, where all are of one shape."""
        whole = [t for t in (self.nodes[a.id] for a in args) if t.shape == shape]
        if not whole or any(t.op != "reshape" for t in whole):
            return None
        source, *others = {self.shape(t.args[0]): None for t in whole}
        if others:
            (source, *others) = {tuple(n for n in s if n != 1): None for s in (source, *others)}
            if others or source == tuple(n for n in shape if n != 1):
                return None
        return self._with_shape(args, shape, source)

    def _with_shape(self, args: Sequence[Ref], old: Shape, new: Shape) -> list[Ref] | None:
        """Operands of an op on entries for its result in another shape; None where one is repeated
        along a dim that is another one then."""
        tail = 0
        while tail < min(len(old), len(new)) - 1 and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        lead, out = len(old) - tail, list[Ref]()
        for arg in args:
            small = self.shape(arg)
            wide = next((len(small) - i for i, n in enumerate(small) if n != 1), 0)
            if len(small) == len(old) and small[:lead] == old[:lead]:
                out.append(self.reshape(arg, (*new[: len(new) - tail], *small[lead:])))
            elif wide <= tail:
                out.append(self.reshape(arg, small[len(small) - wide :]))
            else:
                return None
        return out

    def entries(self, ref: Ref, op: str) -> Sequence[Ref]:
        """The operands of a sum or product, also of one in another shape; none of another term."""
        term = self.nodes[ref.id]
        if term.op == op:
            return term.args
        inner = self.nodes[term.args[0].id] if term.op == "reshape" else term
        if inner.op != op:
            return ()
        return self._with_shape(inner.args, inner.shape, term.shape) or ()

    def expand(self, ref: Ref, shape: Shape) -> Ref:
        term = self.nodes[ref.id]
        if term.shape == shape:
            return ref
        if ref.coef == 0 or term.op == "ones":
            return Ref(ref.coef, self.ones(shape).id)
        if term.op == "expand":
            ref = Ref(ref.coef * term.args[0].coef, term.args[0].id)
            if self.shape(ref) == shape:
                return ref
        small = self.shape(ref)
        first = next((i for i, n in enumerate(small) if n != 1), len(small))
        ref = self.reshape(ref, small[first:])
        return Ref(ref.coef, self.intern("expand", [Ref(ONE, ref.id)], (), shape).id)

    def reshape(self, ref: Ref, shape: Shape) -> Ref:
        term = self.nodes[ref.id]
        if term.shape == shape:
            return ref
        if ref.coef == 0 or term.op == "ones":
            return Ref(ref.coef, self.ones(shape).id)
        if term.op == "reshape":
            inner = term.args[0]
            return self.reshape(Ref(ref.coef * inner.coef, inner.id), shape)
        return Ref(ref.coef, self.intern("reshape", [Ref(ONE, ref.id)], (), shape).id)

    def permute(self, ref: Ref, dims: tuple[int, ...]) -> Ref:
        term = self.nodes[ref.id]
        shape = tuple(term.shape[d] for d in dims)
        if dims == tuple(range(len(dims))):
            return ref
        if ref.coef == 0 or term.op == "ones":
            return Ref(ref.coef, self.ones(shape).id)
        if term.op == "permute":
            inner: tuple[int, ...] = term.attrs[0]
            return self.permute(Ref(ref.coef, term.args[0].id), tuple(inner[d] for d in dims))
        moving = [d for d in dims if term.shape[d] != 1]
        if moving == sorted(moving):
            return self.reshape(ref, shape)
        return Ref(ref.coef, self.intern("permute", [Ref(ONE, ref.id)], (dims,), shape).id)

    # linear combinations and products

    def combine(self, parts: Sequence[tuple[Fraction, Ref]]) -> Ref:
        """A linear combination, broadcasting as `add` does.

        What may have no value stays in it: a term `nought` is 0 wherever its operand has a value.
        """
        shape = broadcast(*(self.shape(r) for _, r in parts))
        total: dict[int, Fraction] = {}
        for weight, ref in parts:
            ref = self.strip(ref)
            coef = times(weight, ref.coef)
            for entry in self.entries(ref, "lin") or (Ref(ONE, ref.id),):
                part, before = times(coef, entry.coef), total.get(entry.id)
                total[entry.id] = part if before is None else before + part
        for i in [i for i, c in total.items() if not c and self.loose(i)]:
            term = self.nodes[i]
            kept = term.op == "nought"
            total[i if kept else self.intern("nought", [Ref(ONE, i)], (), term.shape).id] = ONE
        items = sorted((i, c) for i, c in total.items() if c)
        if not items:
            return self.full(shape, Fraction(0))
        lead = items[0][1]
        if len(items) == 1:
            return self.fit(Ref(lead, items[0][0]), shape)
        args = [Ref(ONE if c == lead else c / lead, i) for i, c in items]
        inner = broadcast(*(self.shape(a) for a in args))
        sources = self._sources(args, inner)
        if sources is not None:
            made = self.combine([(lead, part) for part in sources])
            return self.fit(self.reshape(made, inner), shape)
        made = self.intern("lin", args, (), inner)
        return self.fit(Ref(lead, made.id), shape)

    def product(self, args: Sequence[Ref]) -> Ref:
        shape = broadcast(*(self.shape(a) for a in args))
        coef, powers = ONE, dict[int, int]()
        for ref in args:
            ref = self.strip(ref)
            coef = times(coef, ref.coef)
            term = self.nodes[ref.id]
            found = self.entries(ref, "prod")
            if found:
                raised = term.attrs or self.nodes[term.args[0].id].attrs
                for entry, power in zip(found, raised, strict=True):
                    powers[entry.id] = powers.get(entry.id, 0) + power
            elif term.op != "ones":
                powers[ref.id] = powers.get(ref.id, 0) + 1
        if coef == 0 and not any(map(self.loose, powers)):
            return self.full(shape, Fraction(0))
        if coef == 0:
            return self.combine([(Fraction(0), self.product([Ref(ONE, r.id) for r in args]))])
        if not powers:
            return self.full(shape, coef)
        items = sorted(powers.items())
        if items[0][1] == 1 and len(items) == 1:
            return self.fit(Ref(coef, items[0][0]), shape)
        factors = [Ref(ONE, i) for i, _ in items]
        inner = broadcast(*(self.shape(a) for a in factors))
        sources = self._sources(factors, inner)
        if sources is not None:
            flat = self.product(
                [s for s, (_, p) in zip(sources, items, strict=True) for _ in range(p)]
            )
            return self.fit(self.reshape(Ref(coef * flat.coef, flat.id), inner), shape)
        made = self.intern("prod", factors, tuple(p for _, p in items), inner)
        return self.fit(Ref(coef, made.id), shape)

    def reciprocal(self, ref: Ref) -> Ref:
        shape = self.shape(ref)
        ref = self.strip(ref)
        if self.nodes[ref.id].op == "ones" and ref.coef:
            return self.full(shape, 1 / ref.coef)
        if ref.coef == 0:
            return self.fit(self.intern("reciprocal", [ref], (), self.shape(ref)), shape)
        sources = self._sources([ref], self.shape(ref))
        if sources is not None:
            return self.fit(self.reshape(self.reciprocal(sources[0]), self.shape(ref)), shape)
        made = self.intern("reciprocal", [Ref(ONE, ref.id)], (), self.shape(ref))
        return self.fit(Ref(1 / ref.coef, made.id), shape)

    def linear(self, op: str, args: Sequence[Ref], attrs: tuple[Any, ...], shape: Shape) -> Ref:
        """An op linear in its first operand: its rational factor comes out."""
        first = args[0]
        if first.coef == 0 and not any(self.loose(a.id) for a in args[1:]):
            return self.full(shape, Fraction(0))
        made = self.intern(op, [Ref(ONE, first.id), *args[1:]], attrs, shape)
        if first.coef == 0:
            return self.combine([(Fraction(0), made)])
        return Ref(first.coef, made.id)

    def reduce(self, op: str, ref: Ref, dims: tuple[int, ...], keepdim: bool) -> Ref:
        shape = self.shape(ref)
        kept = tuple(1 if i in dims else n for i, n in enumerate(shape))
        bare = tuple(n for i, n in enumerate(shape) if i not in dims)
        real = tuple(sorted(d for d in dims if shape[d] != 1))
        if not real:
            return self.reshape(ref, kept if keepdim else bare)
        if 1 in shape:
            wide = [i for i, n in enumerate(shape) if n != 1]
            squeezed = self.reshape(ref, tuple(shape[i] for i in wide))
            out = self.reduce(op, squeezed, tuple(map(wide.index, real)), False)
            return self.reshape(out, kept if keepdim else bare)
        inner = tuple(n for i, n in enumerate(shape) if i not in real)
        term = self.nodes[ref.id]
        if term.op == "reshape":
            source = Ref(ref.coef, term.args[0].id)
            whole = _digits(self.shape(source), shape, real)
            if whole is not None:
                out = self.reduce(op, source, whole, False)
                return self.reshape(out, kept if keepdim else bare)
        if op == "sum":
            if term.op == "ones":
                out = self.full(inner, ref.coef * math.prod(shape[d] for d in real))
            elif term.op == "sum":
                before: tuple[int, ...] = term.attrs[0]
                source = term.args[0]
                left = [i for i in range(len(self.shape(source))) if i not in before]
                merged = tuple(sorted((*before, *(left[d] for d in real))))
                out = self.reduce(op, Ref(ref.coef, source.id), merged, False)
            elif self._row(term) and real == term.attrs:
                out = self.combine([(ref.coef, self.reshape(a, inner)) for a in term.args])
            else:
                out = self.linear("sum", [ref], (real,), inner)
        else:
            out = self.intern(op, [ref], (real,), inner)
        return self.reshape(out, kept if keepdim else bare)

    def _row(self, term: Term) -> bool:
        """Whether entries stand one after the other: their sum needs no row."""
        dim: int = term.attrs[0] if term.op == "concat" else -1
        return dim >= 0 and all(self.shape(a)[dim] == 1 for a in term.args)


def _digits(source: Shape, made: Shape, dims: Sequence[int]) -> tuple[int, ...] | None:
    """The dims of the source of a reshape of which some dims of the result are the digits: what
    is reduced over these is reduced over those. None where there are no such dims."""
    if not {0, 1}.isdisjoint((*source, *made)):
        return None
    out: list[int] = []
    i = j = 0
    while i < len(source) and j < len(made):
        rows, columns = [i], [j]
        left, right = source[i], made[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, rows, i = left * source[i], [*rows, i], i + 1
            else:
                right, columns, j = right * made[j], [*columns, j], j + 1
        reduced = [c in dims for c in columns]
        if any(reduced) and not all(reduced):
            return None
        out += rows if all(reduced) else []
    return tuple(out)
