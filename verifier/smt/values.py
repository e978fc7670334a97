"""What terms come to on numbers: whole, or at single places where they are too large for that."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from shardproof.verifier.domains.base import Array, is_index
from shardproof.verifier.domains.floats import Floats, mixed
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.registry import REGISTRY, traits
from shardproof.verifier.kernel.program.types import FLOATS, Affine
from shardproof.verifier.ops import facets
from shardproof.verifier.terms import Ref, Term, Terms
from shardproof.verifier.terms.refs import Shape

MOST = 1 << 16
"""Entries of one side of an equality that is tried, all that it is made of together."""
MOST_READ = 1 << 18
"""Entries that are read at some places; four times as many at a single one."""
SMALL = 1 << 10
"""Entries of tensors that are drawn whole."""
DEEPEST = 100
"""Terms inside each other that are read so."""
PLACES = 32, 4, 1
"""How many places are drawn, fewer where that is too much work."""
FREE = frozenset({"var", "addend", "scan"})
"""Terms of which nothing is known but their name."""
FAR = 1000
"""How large drawn integers may be: every third draw has some that no small window holds."""
LINES = frozenset({"cumsum", "topk_mask", "topk_index", "put_along"})
"""Ops of which an entry depends on the lines that it stands in along one dim."""
ENTRYWISE = frozenset({"lin", "prod", "nought", "cast"})
"""Terms that no op is, entry by entry."""
Place = Array
"""Where entries stand: a row of indices for each dim."""
Operand = tuple[Shape, Callable[[Place], Array]]
"""A shape, and what reads entries at places."""
_D = Floats()


class FractionError(ValueError):
    """A whole number that the numbers drawn make none."""


def scaled(a: Array, by: Fraction) -> Array:
    if by.denominator == 1 and a.dtype.kind == "i":
        return a * by.numerator
    return _D.lift(a) * float(by)


def read_as(a: Array, dtype: str) -> Array:
    """Numbers as an operand of a dtype. Raises FractionError."""
    if dtype in FLOATS:
        return _D.lift(a)
    if dtype == "bool":
        return a != 0
    near = np.rint(a)
    if np.any(np.isfinite(a) & (abs(a - near) > 1e-6 * np.maximum(1, abs(near)))):
        raise FractionError
    return near.astype(np.int64)


def meant(op: str, args: Iterable[Array], attrs: Mapping[str, Any]) -> Array:
    """What an op computes."""
    known = lookup(op)
    return np.asarray(facets(op).meaning(_D, *args, **known.with_defaults(attrs)))


def named(term: Term) -> dict[str, Any]:
    """The attributes of a term by name."""
    op, attrs, shape = term.op, term.attrs, term.shape
    if op in ("matmul", "expand", "reshape"):
        return {}
    if op == "index_add":
        return {"offset": attrs[0], "size": shape[0]}
    if op == "put_along":
        return {"dim": attrs[0], "offset": attrs[1], "size": shape[attrs[0]]}
    if op == "dropout_mask":
        names = ("p", "stream", "offset", "strides")
        return {"shape": shape, **dict(zip(names, attrs, strict=False))}
    if lookup(op).kind == "map" and attrs and isinstance(attrs[0], tuple):
        return dict(attrs)
    return dict(zip(lookup(op).attrs, attrs, strict=False))


def cone(terms: Terms, ids: Iterable[int]) -> set[int]:
    """All that terms are made of, themselves included."""
    todo = list(ids)
    found = set(todo)
    while todo:
        for a in terms[todo.pop()].args:
            if a.id not in found:
                found.add(a.id)
                todo.append(a.id)
    return found


class Numbers(ABC):
    """The value of each term, where those that are closed, and inputs, have arbitrary ones.

    Raises OverflowError where that is too much work.
    """

    def __init__(self, terms: Terms, kinds: Mapping[int, str], closed: set[int], seed: int) -> None:
        self.terms, self.kinds, self.closed, self.seed = terms, kinds, closed, seed

    def free(self, id: int) -> bool:
        """Whether a term has an arbitrary value. A constant has its own."""
        term = self.terms[id]
        return term.op in FREE or (id in self.closed and bool(term.args))

    @abstractmethod
    def given(self, ref: Ref) -> Array:
        """The numbers of a term that is broadcast."""

    @abstractmethod
    def applied(self, op: str, args: Sequence[Ref], dtypes: Sequence[str], attrs: Any) -> Array:
        """What an op computes of terms that it reads in these dtypes."""


class Whole(Numbers):
    """All entries of terms."""

    def __init__(self, terms: Terms, kinds: Mapping[int, str], closed: set[int], seed: int) -> None:
        super().__init__(terms, kinds, closed, seed)
        self.left = MOST
        self.known: dict[int, Array] = {}

    def of(self, ref: Ref) -> Array:
        todo = [ref.id]
        while todo:
            id = todo[-1]
            term, free = self.terms[id], self.free(id)
            missing = [] if free else [a.id for a in term.args if a.id not in self.known]
            if missing:
                todo += missing
                continue
            todo.pop()
            if id not in self.known:
                self.left -= max(
                    1, math.prod(term.shape), *map(self._size, () if free else term.args)
                )
                if self.left < 0:
                    raise OverflowError
                self.known[id] = self._drawn(id, term) if free else self._made(term)
        return scaled(self.known[ref.id], ref.coef) if ref.coef != 1 else self.known[ref.id]

    def given(self, ref: Ref) -> Array:
        return self.of(ref)

    def applied(self, op: str, args: Sequence[Ref], dtypes: Sequence[str], attrs: Any) -> Array:
        return meant(op, [read_as(self.of(a), k) for a, k in zip(args, dtypes, strict=True)], attrs)

    def _size(self, ref: Ref) -> int:
        return math.prod(self.terms.shape(ref))

    def _drawn(self, id: int, term: Term) -> Array:
        rng = np.random.default_rng((self.seed, id))
        kind, draw = self.kinds.get(id, "f32"), self.seed % 3
        if kind in FLOATS:
            ties = draw == 1
            return np.asarray(
                rng.integers(-2, 3, term.shape) * 1.0 if ties else rng.standard_normal(term.shape)
            )
        if kind == "bool":
            return rng.integers(2, size=term.shape) == 1
        near = rng.integers(-1, 5, term.shape)
        if draw != 2:
            return near
        return np.where(rng.random(term.shape) < 0.5, near, rng.integers(-FAR, FAR, term.shape))

    def _made(self, term: Term) -> Array:
        """What a term means, from what it is made of."""
        op, shape, attrs = term.op, term.shape, term.attrs
        args = [self.of(a) for a in term.args]
        match op:
            case "ones":
                return np.ones(shape)
            case "ramp":
                return np.arange(shape[0])
            case "matmul":
                return np.matmul(*map(_D.lift, args))
            case "expand":
                return np.broadcast_to(args[0], shape)
            case "reshape":
                return args[0].reshape(shape)
            case _ if op in ENTRYWISE:
                return _entrywise(op, attrs, args)
            case _:
                return meant(op, _read(op, args), named(term))


def _entrywise(op: str, attrs: Sequence[Any], args: Sequence[Array]) -> Array:
    """A term that no op is, entry by entry."""
    match op:
        case "lin":
            return sum(map(_D.lift, args), np.zeros(()))
        case "prod":
            powers = [_D.lift(a) ** k for a, k in zip(args, attrs, strict=True)]
            return np.asarray(math.prod(powers, start=np.ones(())))
        case "nought":
            return np.asarray(_D.lift(args[0]) * 0)
        case _:
            whole = attrs[0] not in FLOATS and attrs[0] != "bool"
            return read_as(np.trunc(args[0]) if whole else args[0], attrs[0])


def _read(op: str, args: Sequence[Array]) -> list[Array]:
    """Operands of a term in the kind that its op reads."""
    index = traits(op).index
    read = [read_as(a, "i64") if i == index else a for i, a in enumerate(args)]
    lifts = op in ("sum", "amax") or (op == "concat" and not all(map(is_index, read)))
    return list(map(_D.lift, read)) if lifts else read


class Entries(Numbers):
    """Entries of terms at some places."""

    def __init__(
        self,
        terms: Terms,
        kinds: Mapping[int, str],
        closed: set[int],
        seed: int,
        shape: Shape,
        count: int,
    ) -> None:
        super().__init__(terms, kinds, closed, seed)
        rng, count = np.random.default_rng(seed), min(count, math.prod(shape))
        self.shape, self.place = shape, np.zeros((len(shape), count), np.int64)
        for row, extent in zip(self.place, shape, strict=True):
            row[:] = rng.integers(extent, size=count)
            if count > 2:
                row[:2] = 0, extent - 1
        self.left, self.depth = MOST_READ * (1 if count > 1 else 4), 0
        self.known: dict[tuple[int, int], tuple[Place, Array]] = {}
        self.small: dict[int, Array] = {}
        """Entries that were drawn, of tensors of which all are."""

    def of(self, ref: Ref, place: Place | None = None) -> Array:
        place = self.place if place is None else place
        found = self.known.get((ref.id, id(place)))
        if found is None:
            self.left -= place.shape[1]
            self.depth += 1
            if self.left < 0 or self.depth > DEEPEST:
                raise OverflowError
            made = self._drawn(ref.id, place) if self.free(ref.id) else self._made(ref.id, place)
            self.depth -= 1
            found = self.known[ref.id, id(place)] = place, made
        return scaled(found[1], ref.coef) if ref.coef != 1 else found[1]

    def given(self, ref: Ref) -> Array:
        return self.of(ref, under(self.terms.shape(ref), self.shape, self.place))

    def applied(self, op: str, args: Sequence[Ref], dtypes: Sequence[str], attrs: Any) -> Array:
        given = [self._operand(a, k) for a, k in zip(args, dtypes, strict=True)]
        return entries(op, given, attrs, self.shape, self.place)

    def _operand(self, ref: Ref, dtype: str) -> Operand:
        def read(at: Place) -> Array:
            found = self.of(ref, at)
            return read_as(found, dtype) if dtype else found

        return self.terms.shape(ref), read

    def _drawn(self, id: int, place: Place) -> Array:
        shape = self.terms[id].shape
        number, size = _number(place, shape), math.prod(shape)
        if size > SMALL or not np.all((number >= 0) & (number < size)):
            return self._numbered(id, number)
        if id not in self.small:
            self.small[id] = self._numbered(id, np.arange(size))
        return np.asarray(self.small[id][number])

    def _numbered(self, id: int, number: Array) -> Array:
        kind = self.kinds.get(id, "f32")
        salt = mixed(np.full(1, (self.seed << 32) + id, np.uint64))
        bits = mixed(mixed(number.astype(np.uint64)) ^ salt) >> np.uint64(11)
        if kind in FLOATS:
            drawn = bits.astype(np.float64) * 2.0**-51 - 2.0
            return np.rint(drawn) if self.seed % 3 == 1 else drawn
        return bits % 2 == 1 if kind == "bool" else bits.astype(np.int64) % 6 - 1

    def _made(self, id: int, place: Place) -> Array:
        term, count = self.terms[id], int(place.shape[1])
        if term.op == "ones":
            return np.ones(count)
        if term.op == "ramp":
            return np.asarray(place[0])
        if term.op in ENTRYWISE:
            args = [self.of(a, under(self.terms.shape(a), term.shape, place)) for a in term.args]
            return _spread(_entrywise(term.op, term.attrs, args), place.shape[1])
        index = traits(term.op).index
        given = [self._operand(a, "i64" if i == index else "") for i, a in enumerate(term.args)]
        return entries(term.op, given, named(term), term.shape, place)


def _spread(values: Array, count: int) -> Array:
    return np.full(count, values) if values.ndim == 0 else values


def under(shape: Shape, whole: Shape, place: Place) -> Place:
    """The place in an operand that is broadcast."""
    if shape == whole:
        return place
    kept = place[len(whole) - len(shape) :]
    return kept * (np.array(shape, np.int64) != 1)[:, None]


def _number(place: Place, shape: Shape) -> Array:
    """The number of an entry in row-major order."""
    flat = np.zeros(place.shape[1], np.int64)
    for row, extent in zip(place, shape, strict=True):
        flat = flat * extent + row
    return flat


def _among(place: Place, extents: Sequence[int]) -> tuple[Place, Place]:
    """Each place once for every choice of some indices more, and these indices."""
    count = math.prod(extents)
    if count * place.shape[1] > 4 * MOST_READ:
        raise OverflowError
    more = np.indices(tuple(extents)).reshape(len(extents), count)
    return np.repeat(place, count, axis=1), np.tile(more, place.shape[1])


def entries(
    op: str, given: Sequence[Operand], attrs: Mapping[str, Any], shape: Shape, place: Place
) -> Array:
    """Entries of what an op makes of its operands, a tensor of `shape`."""
    count: int = place.shape[1]
    match op:
        case "full":
            return np.full(count, float(Fraction(attrs["value"])))
        case "iota":
            return np.asarray(place[attrs["dim"]] + _offset(attrs))
        case "expand":
            return given[0][1](under(given[0][0], shape, place))
        case "reshape":
            left, rows = _number(place, shape), list[Array]()
            for extent in reversed(given[0][0]):
                left, row = np.divmod(left, extent)
                rows.append(row)
            return given[0][1](np.array(rows[::-1], np.int64).reshape(-1, count))
        case "permute":
            return given[0][1](place[np.argsort(attrs["dims"])])
        case "mm" | "bmm" | "matmul":
            (a, left), (_, right) = given
            at, between = _among(place, a[-1:])
            sides = (
                left(np.vstack([at[:-1], between])),
                right(np.vstack([at[:-2], between, at[-1:]])),
            )
            return np.asarray(math.prod(map(_D.lift, sides))).reshape(count, -1).sum(axis=1)
        case "sum" | "amax":
            dims: Sequence[int] = attrs["dims"]
            source, read = given[0]
            at, inner = _among(place, [source[d] for d in dims])
            if attrs.get("keepdim"):
                at = np.delete(at, dims, axis=0)
            for d, row in sorted(zip(dims, inner, strict=True)):
                at = np.insert(at, d, row, axis=0)
            lines = _D.lift(read(at)).reshape(count, -1)
            return meant(op, [lines], {"dims": (1,), "keepdim": False})
        case "flip":
            dim: int = attrs["dim"]
            return given[0][1](_moved(place, dim, shape[dim] - 1, -1))
        case "slice":
            return given[0][1](_moved(place, attrs["dim"], attrs["start"], attrs.get("step", 1)))
        case "pad":
            return _inside(given[0], place, attrs["dim"], place[attrs["dim"]] - attrs["lo"])
        case "concat":
            dim = attrs["dim"]
            out, start = np.zeros(count), 0
            for part in given:
                out = out + _D.lift(_inside(part, place, dim, place[dim] - start))
                start += part[0][dim]
            return out
        case "take":
            dim = attrs["dim"]
            index, rows = given[1]
            along = rows(place[dim : dim + len(index)]) - _offset(attrs)
            kept = np.delete(place, range(dim, dim + len(index)), axis=0)
            return _inside(given[0], np.insert(kept, dim, along, axis=0), dim, along)
        case "take_along":
            along = given[1][1](place) - _offset(attrs)
            return _inside(given[0], place, attrs["dim"], along)
        case "index_add":
            (_, read), (index, rows) = given
            at, inner = _among(place, index)
            found = _D.lift(read(np.vstack([inner, at[1:]])))
            mine = rows(inner) - _offset(attrs) == at[0]
            return np.where(mine, found, 0.0).reshape(count, -1).sum(axis=1)
        case _ if op in LINES:
            dim = attrs["dim"]
            kept = np.delete(place, dim, axis=0)
            lines = _read(op, [_line(read, dim, each[dim], kept) for each, read in given])
            return meant(op, lines, {**attrs, "dim": 1})[range(count), place[dim]]
        case _ if op in REGISTRY and REGISTRY[op].kind == "map":
            read_at = [read(under(each, shape, place)) for each, read in given]
            return _spread(meant(op, read_at, attrs), count)
        case _:
            raise OverflowError


def _offset(attrs: Mapping[str, Any]) -> int:
    value: object = attrs.get("offset", 0)
    if isinstance(value, Affine) and not value.terms:
        value = value.const
    if not isinstance(value, int | Fraction):
        raise OverflowError
    return int(value)


def _moved(place: Place, dim: int, start: int, step: int) -> Place:
    """The place where a dim is counted from another start."""
    out = place.copy()
    out[dim] = start + step * out[dim]
    return out


def _inside(part: Operand, place: Place, dim: int, along: Array) -> Array:
    """Entries whose index along a dim is another, zero where it has no such row."""
    (shape, read), at = part, place.copy()
    inside = (along >= 0) & (along < shape[dim])
    at[dim] = np.where(inside, along, 0)
    found = read(at) if shape[dim] else np.zeros(place.shape[1])
    return np.asarray(np.where(inside, found, 0))


def _line(read: Callable[[Place], Array], dim: int, extent: int, place: Place) -> Array:
    """The entries along one dim, at places that the other dims have."""
    at, (along,) = _among(place, [extent])
    return read(np.insert(at, dim, along, axis=0)).reshape(place.shape[1], extent)
