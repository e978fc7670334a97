"""Equalities of terms as obligations of Z3: one entry, at an arbitrary place.

Places are integers inside the extents and entries are reals. An input, or a term that is closed, is
an uninterpreted function of the place, and so is a real function of entries, of which `AXIOMS` says
what is known. A sum or a maximum over indices is a constant of its own; two of them are equal if
their entries are, one by one, under a bijection of the indices, which is an obligation as well.
"""

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any, Literal

from shardproof.verifier.kernel.ops.create import row_major
from shardproof.verifier.kernel.program.registry import REGISTRY, traits
from shardproof.verifier.kernel.program.types import FLOATS, Affine
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.values import DEEPEST, FREE, cone, named
from shardproof.verifier.terms import Ref, Term, Terms
from shardproof.verifier.terms.refs import Shape
from shardproof.verifier.terms.told import Call

RLIMIT, TIMEOUT_MS = 50_000, 200
QUERIES = 8
"""Bijections of indices that are asked about for one equality."""
UNROLLED = 64
"""Entries up to which the folds of an equality are written out."""
LEVELS = 6
"""How often terms that are taken for arbitrary are opened."""
NODES = 300
"""Entries that one equality may be about."""
Real = smt.Term
Index = Any
"""An integer of Python or of the solver."""
Place = tuple[Index, ...]
Operand = tuple[Shape, Callable[[Place], Real]]
Answer = Literal["shown", "refuted", "open"]

NEEDS: dict[str, Callable[[Real], Real]] = {
    "positive": lambda x: x > 0,
    "not negative": lambda x: x >= 0,
    "not zero": lambda x: x != 0,
    "above -1": lambda x: x > -1,
}
"""Where a function has a value, by what its declaration says that it needs."""
AXIOMS: dict[str, Callable[[Real, Real], Real]] = {
    "reciprocal": lambda x, y: smt.implies(x != 0, x * y == 1),
    "sqrt": lambda x, y: smt.implies(x >= 0, smt.conj(y >= 0, y * y == x)),
    "rsqrt": lambda x, y: smt.implies(x > 0, smt.conj(y > 0, y * y * x == 1)),
    "exp": lambda x, y: y > 0,
    "sigmoid": lambda x, y: smt.conj(y > 0, y < 1),
    "relu": lambda x, y: y == smt.when(x > 0, x, smt.rational(Fraction(0))),
    "abs": lambda x, y: y == smt.when(x > 0, x, -x),
    "silu": lambda x, y: y == x * smt.function("sigmoid", "real", "real")(x),
    "truth": lambda x, y: smt.disj(y == 0, y == 1),
    "whole number": lambda x, y: smt.is_whole(y),
}
"""What is known of a function at x, where its value is y; of a tensor, what kind of number its
entry y is."""
COMPARED: dict[str, Callable[[Real, Real], Real]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
OF_TRUTHS = frozenset({"where", "cast", "maximum", "minimum", "logical_and", "logical_or",
                       "logical_not", "eq", "ne"})  # fmt: skip
"""Ops of one entry each that take truth values as they take numbers."""


class NotStatedError(Exception):
    """Of this nothing is said to Z3."""


@dataclass(frozen=True)
class _Fold:
    """A sum or a maximum of entries over indices."""

    kind: str
    indices: tuple[tuple[Real, int], ...]
    """Each with its extent."""
    body: Real

    @property
    def count(self) -> int:
        return math.prod(n for _, n in self.indices)


def _plus(a: Index, b: Index) -> Index:
    return b if _is(a, 0) else a if _is(b, 0) else a + b


def _scaled(a: Index, by: int) -> Index:
    return a if by == 1 else 0 if by == 0 or _is(a, 0) else a * by


def _is(a: Index, value: int) -> bool:
    return isinstance(a, int) and a == value


def _times(coef: Fraction, x: Real) -> Real:
    return x if coef == 1 else smt.rational(coef) * x


def _under(shape: Shape, place: Place) -> Place:
    """The place in an operand that is broadcast."""
    kept = place[len(place) - len(shape) :]
    return tuple(0 if n == 1 else p for p, n in zip(kept, shape, strict=True))


@dataclass
class Entries:
    """Entries of terms; those that are closed are arbitrary."""

    terms: Terms
    kinds: Mapping[int, str]
    closed: Set[int]
    seen: Set[int]
    """Terms of which is known what they are made of."""
    unrolled: bool = False
    spread: bool = False
    """Whether sums are written as sums of products."""
    facts: list[Real] = field(default_factory=list[Any])
    """What holds of all places and entries."""
    axioms: list[Real] = field(default_factory=list[Any])
    """What holds of the functions of entries, by `AXIOMS`."""
    defined: list[Real] = field(default_factory=list[Any])
    """That what is asked for has a value."""
    folds: dict[int, _Fold] = field(default_factory=dict[int, _Fold])
    """By what stands for each."""
    constants: dict[int, Real] = field(default_factory=dict[int, Any])
    """What stands for each fold."""
    opaque: bool = False
    """Whether Z3 knows less than all of something."""
    asking: bool = False
    """Whether what is read must have a value."""
    _known: dict[object, tuple[Real, Place]] = field(default_factory=dict[object, Any])
    """Entries by term and place; a place is kept, as Z3 gives the numbers of its terms anew."""
    _conditions: list[Real] = field(default_factory=list[Any])
    """Where what is read is taken."""
    _indices: dict[str, Real] = field(default_factory=dict[str, Any])
    _functions: dict[int, Any] = field(default_factory=dict[int, Any])
    _made: int = 0
    _rows: int = 0
    _depth: int = 0

    def indices(self, extents: Sequence[int]) -> Place:
        """An arbitrary place."""
        return tuple(self.index(n) for n in extents)

    def index(self, extent: int) -> Index:
        if extent == 1:
            return 0
        self._made += 1
        at = self._indices[f"i{self._made}"] = smt.integer(f"i{self._made}")
        self.facts += [at >= 0, at < extent]
        return at

    def read(self, ref: Ref, place: Place) -> Real:
        return _times(ref.coef, self._entry(ref.id, _under(self.terms.shape(ref), place)))

    def operand(self, ref: Ref) -> Operand:
        return self.terms.shape(ref), lambda place: self.read(ref, place)

    def _entry(self, id: int, place: Place) -> Real:
        key = id, tuple(p if isinstance(p, int) else ("z", p.get_id()) for p in place)
        if key in self._known:
            return self._known[key][0]
        self._rows += 1
        if self._rows > NODES or self._depth == DEEPEST:
            raise NotStatedError("too much")
        term = self.terms[id]
        self._depth += 1
        if _arbitrary(term, id, self.closed, self.seen):
            made = self._free(id, term.shape, place)
        else:
            made = self._made_of(id, place)
        self._depth -= 1
        self._known[key] = made, place
        return made

    def _free(self, id: int, shape: Shape, place: Place) -> Real:
        at = [p for p, n in zip(place, shape, strict=True) if n != 1]
        made = smt.function(f"t{id}", *["int"] * len(at), "real")
        entry = made(*(smt.whole(p) if isinstance(p, int) else p for p in at))
        kind = self.kinds.get(id, "f32")
        if kind not in FLOATS:
            self.facts.append(AXIOMS["truth" if kind == "bool" else "whole number"](entry, entry))
        self.opaque |= self.terms[id].op != "var" or kind not in FLOATS
        return entry

    def _made_of(self, id: int, place: Place) -> Real:
        term = self.terms[id]
        match term.op:
            case "ones":
                return smt.rational(Fraction(1))
            case "ramp":
                return smt.to_real(place[0])
            case "lin":
                return _total([self.read(a, place) for a in term.args])
            case "prod":
                powers = zip(term.args, term.attrs, strict=True)
                factors = [self.read(a, place) for a, k in powers for _ in range(k)]
                return math.prod(factors[1:], start=factors[0])
            case "nought":
                return smt.rational(Fraction(0))
            case "cast":
                x = self.read(term.args[0], place)
                return self.cast(x, "i64" if term.attrs[0] == "int" else term.attrs[0], "f32")
            case _:
                given = [self.operand(a) for a in term.args]
                return self.applied(term.op, given, named(term), term.shape, place)

    @contextmanager
    def _where(self, condition: Real) -> Generator[None]:
        self._conditions.append(condition)
        yield
        self._conditions.pop()

    def function(self, name: str, needs: str, *args: Real) -> Real:
        """A real function that is known by name, and by its axiom where it has one."""
        if needs and self.asking:
            need = NEEDS[needs](args[-1])
            self.defined.append(
                smt.implies(smt.conj(*self._conditions), need) if self._conditions else need
            )
        made = smt.function(name, *["real"] * len(args), "real")(*args)
        if name in AXIOMS:
            self.axioms.append(AXIOMS[name](args[0], made))
        self.opaque = True
        return made

    def cast(self, x: Real, to: str, of: str) -> Real:
        if to == of or to in FLOATS:
            return x
        if to == "bool":
            return _flag(x != 0)
        if of == "bool" or (of not in FLOATS and to != "u8"):
            return x
        return self.function("truncate" if to != "u8" else "truncate to u8", "", x)

    def fold(self, kind: str, extents: Sequence[int], body_of: Callable[[Place], Real]) -> Real:
        """A sum or a maximum over indices of these extents."""
        if 0 in extents:
            raise NotStatedError("a fold of nothing")
        if self.unrolled:
            if math.prod(extents) > UNROLLED:
                raise NotStatedError("too many entries")
            parts = [body_of(at) for at in product(*map(range, extents))]
            return _total(parts) if kind == "sum" else _largest(parts)
        at = self.indices(extents)
        if self.spread and kind == "sum":
            bound = [(p, n) for p, n in zip(at, extents, strict=True) if not isinstance(p, int)]
            return self._spread(bound, body_of(at))
        by, body = smt.scale(body_of(at))
        if kind == "max" and by != 1:
            by, body = Fraction(1), _times(by, body)
        inner = self.folds.get(body.get_id())
        indices = [(p, n) for p, n in zip(at, extents, strict=True) if not isinstance(p, int)]
        if inner is not None and inner.kind == kind:
            indices, body = [*indices, *inner.indices], inner.body
        used = {str(at) for at in self._read(body)}
        for p, n in indices:
            by *= n if kind == "sum" and str(p) not in used else 1
        indices = [(p, n) for p, n in indices if str(p) in used]
        return _times(by, self._folded(_Fold(kind, tuple(indices), body)) if indices else body)

    def _spread(self, bound: Sequence[tuple[Real, int]], body: Real) -> Real:
        """A sum of products, each the product of sums that share no index: what depends on none
        stands before them, and a sum that depends on one is part of them."""
        found: list[Real] = []
        products = smt.products(body)
        if products is None:
            raise NotStatedError("too many products")
        for coef, factors in products:
            indices = {str(p): (p, n) for p, n in bound}
            todo, inside = [*factors], list[Real]()
            while todo:
                factor = todo.pop()
                fold = self.folds.get(factor.get_id())
                own = {str(p) for p in self._read(factor)} & indices.keys()
                if fold is None or fold.kind != "sum" or not own:
                    inside.append(factor)
                    continue
                fresh = [(p, self.index(n), n) for p, n in fold.indices]
                indices |= {str(q): (q, n) for _, q, n in fresh}
                inner = smt.products(smt.instead(fold.body, [(p, q) for p, q, _ in fresh])) or []
                if len(inner) != 1:
                    raise NotStatedError("a sum of sums")
                ((by, more),) = inner
                coef, todo = coef * by, [*todo, *more]
            found.append(_times(coef, self._parts(indices, inside)))
        return _total(found)

    def _parts(self, indices: Mapping[str, tuple[Real, int]], factors: Sequence[Real]) -> Real:
        """A sum of a product over indices, as the product of sums over those that meet."""
        groups: list[tuple[set[str], list[Real]]] = [({name}, []) for name in indices]
        made: list[Real] = []
        for factor in factors:
            own = {str(p) for p in self._read(factor)} & indices.keys()
            if not own:
                made.append(factor)
                continue
            met = [g for g in groups if g[0] & own]
            names = set[str]().union(*(g[0] for g in met))
            inside = [*(f for g in met for f in g[1]), factor]
            groups = [*(g for g in groups if not g[0] & own), (names, inside)]
        for names, inside in groups:
            bound = tuple(indices[n] for n in indices if n in names)
            count = smt.rational(Fraction(math.prod(n for _, n in bound)))
            alone = _Fold("sum", bound, _product(inside))
            made.append(self._folded(alone) if inside else count)
        return _product(made)

    def _read(self, body: Real) -> list[Real]:
        """The indices in an expression, in the order in which they come up."""
        return [at for at in smt.constants(body) if str(at) in self._indices]

    def _folded(self, fold: _Fold) -> Real:
        """What stands for a fold: a function of the other indices that its entries depend on, the
        same for folds that are written alike."""
        free = self._free_of(fold)
        for id, other in self.folds.items():
            others = self._free_of(other)
            alike = fold.kind == other.kind and len(free) == len(others)
            if not alike or [n for _, n in fold.indices] != [n for _, n in other.indices]:
                continue
            bound = [(p, q) for (p, _), (q, _) in zip(fold.indices, other.indices, strict=True)]
            pairs = [*bound, *zip(free, others, strict=True)]
            if smt.instead(fold.body, pairs).eq(other.body):
                return self._named(self._functions[id], fold, free)
        self._made += 1
        made = smt.function(f"{fold.kind}{self._made}", *["int"] * len(free), "real")
        return self._named(made, fold, free)

    def _named(self, function: Any, fold: _Fold, free: Sequence[Real]) -> Real:
        made = function(*free)
        id = made.get_id()
        if id not in self.folds:
            self.folds[id], self.constants[id], self._functions[id] = fold, made, function
        self.opaque = True
        return made

    def _free_of(self, fold: _Fold) -> list[Real]:
        bound = {str(p) for p, _ in fold.indices}
        return [at for at in self._read(fold.body) if str(at) not in bound]

    def applied(
        self,
        op: str,
        given: Sequence[Operand],
        attrs: Mapping[str, Any],
        shape: Shape,
        place: Place,
    ) -> Real:
        """An entry of what an op makes of its operands. Raises NotStatedError."""
        known = REGISTRY.get(op)
        if known is not None and known.kind == "map" and op != "where":
            args = [read(_under(each, place)) for each, read in given]
            return self._mapped(op, args, attrs)
        match op:
            case "where":
                (c_shape, c), (a_shape, a), (b_shape, b) = given
                holds = c(_under(c_shape, place)) != 0
                with self._where(holds):
                    then = a(_under(a_shape, place))
                with self._where(smt.negation(holds)):
                    otherwise = b(_under(b_shape, place))
                return smt.when(holds, then, otherwise)
            case "full":
                return smt.rational(Fraction(attrs["value"]))
            case "iota":
                return smt.to_real(_plus(place[attrs["dim"]], _offset(attrs)))
            case "dropout_mask":
                steps = attrs.get("strides") or row_major(shape)
                at: Index = _offset(attrs)
                for p, step in zip(place, steps, strict=True):
                    at = _plus(at, _scaled(p, step))
                ((source, read),) = given
                name = f"dropout_mask {attrs['p']} {attrs['stream']}"
                return self.function(name, "", read((0,) * len(source)), smt.to_real(at))
            case "expand":
                return given[0][1](_under(given[0][0], place))
            case "reshape":
                return given[0][1](_reshaped(place, shape, given[0][0]))
            case "permute":
                moved: list[Index] = [0] * len(place)
                for p, d in zip(place, attrs["dims"], strict=True):
                    moved[d] = p
                return given[0][1](tuple(moved))
            case "flip" | "slice":
                dim: int = attrs["dim"]
                start: int = shape[dim] - 1 if op == "flip" else attrs["start"]
                step: int = -1 if op == "flip" else attrs["step"]
                along = _plus(_scaled(place[dim], step), start)
                return given[0][1]((*place[:dim], along, *place[dim + 1 :]))
            case "pad":
                dim = attrs["dim"]
                return self._inside(given[0], place, dim, _plus(place[dim], -attrs["lo"]))
            case "concat":
                dim, before = attrs["dim"], 0
                parts: list[Real] = []
                for part in given:
                    parts.append(self._inside(part, place, dim, _plus(place[dim], -before)))
                    before += part[0][dim]
                return _total(parts)
            case "mm" | "bmm" | "matmul":
                (left, a), (_, b) = given
                return self.fold(
                    "sum",
                    left[-1:],
                    lambda k: a((*place[:-1], *k)) * b((*place[:-2], *k, place[-1])),
                )
            case "sum" | "amax":
                return self._reduced("sum" if op == "sum" else "max", given[0], attrs, place)
            case "take" | "take_along":
                return self._taken(op, given, attrs, place)
            case "index_add":
                (_, read), (index, rows) = given

                def added(k: Place) -> Real:
                    here = rows(k) == smt.to_real(_plus(place[0], _offset(attrs)))
                    with self._where(here):
                        found = read((*k, *place[1:]))
                    return smt.when(here, found, smt.rational(Fraction(0)))

                return self.fold("sum", index, added)
            case _:
                raise NotStatedError(op)

    def _mapped(self, op: str, args: Sequence[Real], attrs: Mapping[str, Any]) -> Real:
        if op in COMPARED:
            return _flag(COMPARED[op](*args))
        match op:
            case "add":
                return args[0] + args[1]
            case "sub":
                return args[0] - args[1]
            case "neg":
                return -args[0]
            case "mul":
                return args[0] * args[1]
            case "mul_scalar":
                return _times(Fraction(attrs["value"]), args[0])
            case "add_scalar":
                return args[0] + smt.rational(Fraction(attrs["value"]))
            case "div":
                return args[0] * self.function("reciprocal", "not zero", args[1])
            case "maximum":
                return _largest(args)
            case "minimum":
                return smt.when(args[0] <= args[1], args[0], args[1])
            case "logical_and" | "logical_or":
                join = smt.conj if op == "logical_and" else smt.disj
                return _flag(join(*(a != 0 for a in args)))
            case "logical_not":
                return _flag(args[0] == 0)
            case "pow":
                return self._power(args[0], Fraction(attrs["exponent"]))
            case _:
                text = ", ".join(f"{k}={v}" for k, v in sorted(attrs.items()))
                return self.function(f"{op} {text}".strip(), traits(op).needs, *args)

    def _power(self, x: Real, exponent: Fraction) -> Real:
        if exponent.denominator == 1 and 0 < abs(exponent) <= 64:
            whole = math.prod([x] * (abs(int(exponent)) - 1), start=x)
            return whole if exponent > 0 else self.function("reciprocal", "not zero", whole)
        needs = "positive" if exponent.denominator != 1 or exponent < 0 else ""
        return self.function(f"pow {exponent}", needs, x)

    def _reduced(self, kind: str, source: Operand, attrs: Mapping[str, Any], place: Place) -> Real:
        shape, read = source
        dims: list[int] = [d % len(shape) for d in attrs["dims"]]
        if attrs.get("keepdim"):
            place = tuple(p for i, p in enumerate(place) if i not in dims)

        def entry(at: Place) -> Real:
            kept, inner = iter(place), iter(at)
            return read(tuple(next(inner if i in dims else kept) for i in range(len(shape))))

        return self.fold(kind, [shape[d] for d in sorted(dims)], entry)

    def _taken(
        self, op: str, given: Sequence[Operand], attrs: Mapping[str, Any], place: Place
    ) -> Real:
        dim = attrs["dim"]
        index, rows = given[1]
        spread = len(index) if op == "take" else 1
        found = rows(place[dim : dim + spread] if op == "take" else place)
        along = smt.to_int(found) - _offset(attrs)
        return self._inside(given[0], (*place[:dim], along, *place[dim + spread :]), dim, along)

    def _inside(self, part: Operand, place: Place, dim: int, along: Index) -> Real:
        """The entry whose index along a dim is another, 0 where there is no such row."""
        shape, read = part
        if not shape[dim]:
            return smt.rational(Fraction(0))
        inside = smt.conj(smt.truth(along >= 0), smt.truth(along < shape[dim]))
        with self._where(inside):
            found = read((*place[:dim], along, *place[dim + 1 :]))
        return smt.when(inside, found, smt.rational(Fraction(0)))


def _flag(holds: Real) -> Real:
    return smt.when(holds, smt.rational(Fraction(1)), smt.rational(Fraction(0)))


def _total(parts: Sequence[Real]) -> Real:
    return sum(parts[1:], parts[0]) if parts else smt.rational(Fraction(0))


def _product(parts: Sequence[Real]) -> Real:
    return math.prod(parts[1:], start=parts[0]) if parts else smt.rational(Fraction(1))


def _largest(parts: Sequence[Real]) -> Real:
    out = parts[0]
    for part in parts[1:]:
        out = smt.when(out >= part, out, part)
    return out


def _offset(attrs: Mapping[str, Any]) -> int:
    value: object = attrs.get("offset", 0)
    if isinstance(value, Affine) and not value.terms:
        value = value.const
    if not isinstance(value, int | Fraction):
        raise NotStatedError("an offset")
    return int(value)


def _reshaped(place: Place, shape: Shape, source: Shape) -> Place:
    """The place in the source that an entry of a reshape is from: dims that have one product are
    regrouped on their own."""
    if 0 in shape:
        raise NotStatedError("no entries")
    out: list[Index] = []
    i = j = 0
    while i < len(source) or j < len(shape):
        rows, columns = list(source[i : i + 1]), list(range(j, min(j + 1, len(shape))))
        i, j = i + 1, j + 1
        while math.prod(rows) != math.prod(shape[c] for c in columns):
            if math.prod(rows) < math.prod(shape[c] for c in columns):
                rows, i = [*rows, source[i]], i + 1
            else:
                columns, j = [*columns, j], j + 1
        flat: Index = 0
        for c in columns:
            flat = _plus(_scaled(flat, shape[c]), place[c] if shape[c] != 1 else 0)
        left = math.prod(rows)
        for extent in rows:
            reach, left = left, left // extent
            digit = flat if reach == math.prod(rows) or isinstance(flat, int) else flat % reach
            if isinstance(flat, int):
                out.append(flat % reach // left)
            else:
                out.append(0 if extent == 1 else digit if left == 1 else digit / left)
    return tuple(out)


def ask(terms: Terms, call: Call, shape: Shape, kinds: Mapping[int, str], seen: Set[int]) -> Answer:
    """What Z3 says of an equality of terms, for all entries and all values of what they are made
    of. Of terms that are not `seen` it is not told what they are made of.

    It is refuted only where Z3 knows all that it is about: inputs, index maps and rational
    arithmetic. Where an op is not shown to be the term that a constructor gave, the constructor is
    asked again about inputs in place of the operands, where it may be refuted.
    """
    known = REGISTRY.get(call.op)
    arithmetic = known is not None and known.kind == "map" and call.op not in OF_TRUTHS
    if arithmetic and set(call.dtypes) & {"bool", "u8"}:
        return "open"
    said = _viewed(terms, call, shape, kinds, seen)
    if said == "open" and call.op and any(terms[a.id].args for a in call.args):
        told, again = _on_inputs(terms, call)
        own = {a.id: k for a, k in zip(again.args, call.dtypes, strict=False)}
        said = _viewed(told, again, shape, own, set(range(len(told.nodes))))
        return "refuted" if said == "refuted" else "open"
    return said


def _viewed(
    terms: Terms, call: Call, shape: Shape, kinds: Mapping[int, str], seen: Set[int]
) -> Answer:
    for closed, unrolled, spread in _views(terms, call, seen):
        with suppress(NotStatedError), smt.attempt() as keep:
            said = _asked(Entries(terms, kinds, closed, seen, unrolled, spread), call, shape)
            if said == "shown":
                keep()
            if said != "open":
                return said
    return "open"


def _on_inputs(terms: Terms, call: Call) -> tuple[Terms, Call]:
    """What the constructor gives where the operands are inputs."""
    table = Terms()
    args = [Ref(a.coef, table.var(f"t{a.id}", terms.shape(a)).id) for a in call.args]
    attrs = dict(call.attrs)
    if call.op == "combine":
        made = table.combine(list(zip(attrs["weights"], args, strict=True)))
    else:
        made = table.apply(call.op, args, attrs, call.dtypes or ("f32",) * len(args))
    return table, replace(call, args=tuple(args), made=made)


def _views(terms: Terms, call: Call, seen: Set[int]) -> Iterator[tuple[set[int], bool, bool]]:
    """Terms to take for arbitrary, whether folds are written out, and whether as products.

    An operand that the result is not made of is opened, and so is what hides something that the
    result is made of.
    """
    made, args = [call.made.id], [a.id for a in call.args]
    shared = cone(terms, args) & cone(terms, made)
    closed = set(args) if call.op else shared
    for _ in range(LEVELS):
        ours = _frontier(terms, args, closed, seen)
        theirs = _frontier(terms, made, closed, seen)
        known = {i for i in ours & closed & seen if terms[i].args}
        opened = known - theirs
        if not opened:
            hidden = theirs - ours
            opened = {i for i in known if hidden & cone(terms, [i])}
        if not opened:
            break
        closed = closed - opened | {a.id for i in opened for a in terms[i].args}
    yield closed, False, False
    yield closed, True, False
    if closed != shared:
        yield shared, False, False
    yield set(), True, False
    if not call.op:
        yield set(), False, True


def _arbitrary(term: Term, id: int, closed: Set[int], seen: Set[int]) -> bool:
    return term.op in FREE or id not in seen or (id in closed and bool(term.args))


def _frontier(terms: Terms, begin: Sequence[int], closed: Set[int], seen: Set[int]) -> set[int]:
    """What is reached that is arbitrary."""
    todo, met, found = [*begin], set(begin), set[int]()
    while todo:
        id = todo.pop()
        term = terms[id]
        if _arbitrary(term, id, closed, seen):
            found.add(id)
            continue
        new = {a.id for a in term.args} - met
        met |= new
        todo += new
    return found


def _asked(entries: Entries, call: Call, shape: Shape) -> Answer:
    """What Z3 says where some terms are arbitrary. Raises NotStatedError."""
    if 0 in shape or entries.terms.shape(call.made) != shape:
        raise NotStatedError("no entries, or another shape")
    place = entries.indices(shape)
    entries.asking = True
    want = _wanted(entries, call, shape, place)
    entries.asking = False
    got = entries.read(call.made, place)
    goal = want == got
    if want.eq(got) or smt.simplifies(goal):
        return "shown"
    solver = smt.Solver(rlimit=RLIMIT, timeout_ms=TIMEOUT_MS)
    solver.assume(*entries.facts, *_alike(entries, entries.facts))
    answer = solver.prove(goal)
    if isinstance(answer, smt.Valid):
        return "shown"
    if entries.axioms or entries.defined:
        solver.assume(*entries.axioms, *entries.defined)
        answer = solver.prove(goal)
    if isinstance(answer, smt.Valid):
        return "open" if isinstance(solver.consistent(), smt.Invalid) else "shown"
    certain = isinstance(answer, smt.Invalid) and call.op and not entries.opaque
    return "refuted" if certain else "open"


def _wanted(entries: Entries, call: Call, shape: Shape, place: Place) -> Real:
    attrs = dict(call.attrs)
    if call.op == "combine":
        parts = zip(call.args, attrs["weights"], strict=True)
        return _total([_times(Fraction(w), entries.read(a, place)) for a, w in parts])
    if not call.op:
        return entries.read(call.args[0], place)
    given = [entries.operand(a) for a in call.args]
    if call.op == "cast":
        return entries.cast(entries.read(call.args[0], place), attrs["dtype"], call.dtypes[0])
    known = REGISTRY[call.op].with_defaults(attrs)
    return entries.applied(call.op, given, known, shape, place)


def _alike(entries: Entries, premises: Sequence[Real]) -> list[Real]:
    """Folds that are equal: their entries are, under a bijection of their indices; or the entries
    of one are those of others, block after block."""
    found: list[Real] = []
    left = QUERIES

    def same(fold: _Fold, other: _Fold) -> bool:
        nonlocal left
        for pairs in _bijections(fold, other):
            goal = smt.instead(fold.body, pairs) == other.body
            if smt.simplifies(goal):
                return True
            left -= 1
            known = [*premises, *found]
            if left > 0 and isinstance(
                smt.prove(goal, known, rlimit=RLIMIT, timeout_ms=TIMEOUT_MS), smt.Valid
            ):
                return True
        return False

    folds = list(entries.folds.items())
    for k, (id, fold) in enumerate(folds):
        for other_id, other in folds[:k]:
            alike = fold.kind == other.kind and fold.count == other.count
            if alike and same(fold, other):
                found.append(entries.constants[id] == entries.constants[other_id])
                break
    for id, fold in folds:
        parts = {i: f for i, f in folds if f.kind == fold.kind and f.count < fold.count}
        split = (_blocks(fold, at, parts, same) for at in range(len(fold.indices)))
        blocks = next(filter(None, split), None)
        if blocks is not None:
            join = _total if fold.kind == "sum" else _largest
            found.append(entries.constants[id] == join([entries.constants[i] for i in blocks]))
    return found


def _blocks(
    fold: _Fold, at: int, parts: Mapping[int, _Fold], same: Callable[[_Fold, _Fold], bool]
) -> list[int]:
    """Folds whose entries are those of one fold, block after block along one of its indices;
    nothing where there are none."""
    index, extent = fold.indices[at]
    row, start, found = fold.count // extent, 0, list[int]()
    while start < extent:
        for id, part in parts.items():
            size = part.count // row
            if part.count % row or start + size > extent or id in found:
                continue
            cut = (*fold.indices[:at], (index, size), *fold.indices[at + 1 :])
            body = smt.instead(fold.body, [(index, index + start)])
            if same(_Fold(fold.kind, cut, body), part):
                found, start = [*found, id], start + size
                break
        else:
            return []
    return found


def _bijections(fold: _Fold, other: _Fold) -> Iterator[list[tuple[Real, Real]]]:
    """Indices of one fold by those of another that count the same entries."""
    extents = [n for _, n in other.indices]
    if sorted(n for _, n in fold.indices) == sorted(extents) and len(extents) <= 4:
        for order in permutations(other.indices):
            if [n for _, n in order] == [n for _, n in fold.indices]:
                yield [(p, q) for (p, _), (q, _) in zip(fold.indices, order, strict=True)]
        return
    shape = tuple(n for _, n in fold.indices)
    digits = _reshaped(tuple(q for q, _ in other.indices), tuple(extents), shape)
    yield [
        (p, smt.whole(d) if isinstance(d, int) else d)
        for (p, _), d in zip(fold.indices, digits, strict=True)
    ]
