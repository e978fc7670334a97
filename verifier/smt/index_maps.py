"""The same step at all sizes: which element of the whole operands an element of the result is from.

Digits and coordinates are integers of the solver, bounded by sizes of which nothing is known but
that there is one at least; an index is the sum of its digits by place value, on a rank over those
that it holds, in the whole over all. What an op reads is stated once, as equations of indices: they
must hold between the pieces of a rank and, for the same digits, between the wholes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.symbolic import Symbolic
from shardproof.verifier.kernel.ops.reduce import parse
from shardproof.verifier.kernel.program.types import mesh_dims
from shardproof.verifier.ops import REGISTRY, facets
from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.forms import Form, Offset
from shardproof.verifier.smt.pieces import equations
from shardproof.verifier.smt.sizes import Digit, Digits, Size, local_size, whole_size
from shardproof.verifier.smt.solver import Term

RLIMIT = 400_000
Indices = list[list[Term]]
"""By tensor, the result last, and by dim."""


class NotStatedError(Exception):
    """A step of which nothing is said at all sizes: why."""


@dataclass
class Shown:
    """What came of the goals."""

    queries: int = 0
    failed: str = ""


@dataclass
class _View:
    """Indices and extents of all tensors, on a rank or whole."""

    index: Indices
    extent: Indices
    attrs: Mapping[str, Any]


@dataclass
class _Digits:
    """The digits of a form as integers of the solver."""

    form: Form
    values: dict[str, Term] = field(default_factory=dict[str, Term])
    sizes: dict[str, Term] = field(default_factory=dict[str, Term])
    facts: list[Term] = field(default_factory=list[Term])
    instead: dict[tuple[int, str], Term] = field(default_factory=dict[tuple[int, str], Term])
    """Digits that have another value in one tensor."""

    def __post_init__(self) -> None:
        for name, size in self.form.sizes.items():
            self.sizes[name] = smt.whole(0) if not size else smt.integer(name)
            self.facts += [self.sizes[name] >= 1] if size else []
        for tensor in self.form.tensors:
            for digit in (d for dim in tensor for d in dim):
                if digit.key not in self.values:
                    value = self.values[digit.key] = smt.integer(f"d{digit.key}")
                    self.facts += [value >= 0, value < self.size(digit.size)]

    def size(self, size: Size) -> Term:
        return size.at(self.sizes) + smt.whole(0)

    def value(self, tensor: int, digit: Digit) -> Term:
        return self.instead.get((tensor, digit.key), self.values[digit.key])

    def coordinates(self) -> Iterator[Term]:
        """A rank has one coordinate along a mesh dim, whatever it splits."""
        first: dict[str, Term] = {}
        for t, tensor in enumerate(self.form.tensors):
            for digit in (d for dim in tensor for d in dim if d.mesh_dim is not None):
                if (t, digit.key) in self.instead:
                    raise NotStatedError("a cut of a split digit")
                value = self.values[digit.key]
                known = first.setdefault(str(digit.mesh_dim), value)
                if known is not value:
                    yield known == value

    def coordinate(self, mesh_dim: str) -> Term:
        for t, tensor in enumerate(self.form.tensors):
            for digit in (d for dim in tensor for d in dim if d.mesh_dim == mesh_dim):
                return self.value(t, digit)
        raise NotStatedError(f"no dim is split over {mesh_dim}")

    def view(self, whole: bool) -> _View:
        def index(t: int, dim: Digits) -> Term:
            total: Term = smt.whole(0)
            for digit in dim:
                if whole or digit.mesh_dim is None:
                    total = total * self.size(digit.size) + self.value(t, digit)
            return total

        measure = whole_size if whole else local_size
        tensors = list(enumerate(self.form.tensors))
        attrs = self.form.whole if whole else self.form.attrs
        return _View(
            [[index(t, dim) for dim in tensor] for t, tensor in tensors],
            [[self.size(measure(dim)) for dim in tensor] for _, tensor in tensors],
            {k: self.attr(v) for k, v in (attrs or {}).items()},
        )

    def attr(self, value: Any) -> Any:
        if isinstance(value, Size):
            return self.size(value)
        if isinstance(value, Offset):
            total = self.size(value.const)
            for name, by in value.terms:
                total = total + self.size(by) * self.coordinate(name)
            return total
        if isinstance(value, tuple):
            return tuple(self.attr(v) for v in cast("tuple[Any, ...]", value))
        return value


def shown(form: Form) -> Shown:
    """Ask what the step rests on at all sizes. Raises NotStatedError."""
    out = Shown()
    for goals, premises in statements(form):
        for goal in goals:
            _ask(goal, premises, out)
            if out.failed:
                return out
    return out


def _ask(goal: Term, premises: Sequence[Term], out: Shown) -> None:
    if smt.simplifies(goal):
        return
    out.queries += 1
    answer = smt.prove(goal, premises, rlimit=RLIMIT, timeout_ms=0)
    if not isinstance(answer, smt.Valid):
        out.failed = f"{goal}: {answer}"[:200]


Statement = tuple[list[Term], list[Term]]
"""Goals and their premises."""


def statements(form: Form) -> Iterator[Statement]:
    """What the step rests on at all sizes. Raises NotStatedError."""
    instance = form.instance
    if form.whole is None:
        raise NotStatedError("its extents have no names")
    if instance.rule.startswith("blocks:"):
        raise NotStatedError("a cut inside blocks")
    op = REGISTRY.get(instance.op)
    yield from _folds(form)
    if op is None:
        yield from _alike(form)
    elif op.kind in ("collective", "movement"):
        yield from _moved(form)
    elif op.kind == "create":
        yield from _created(form)
    elif op.kind == "index":
        yield from _looked_up(form)
    else:
        for digits, read in _cases(form):
            here, there = digits.view(False), digits.view(True)
            premises = [*digits.facts, *digits.coordinates()]
            yield [*read(here), *read(there)], premises
        yield from _contracted(form)


def _alike(form: Form) -> Iterator[Statement]:
    """A claim that keeps the layout keeps every element."""
    if any(t != form.made for t in form.given):
        raise NotStatedError("a reading of one value by another layout")
    digits = _Digits(form)
    whole = digits.view(True)
    goals = [a == b for t in whole.index[:-1] for a, b in zip(t, whole.index[-1], strict=True)]
    yield goals, digits.facts


# what local ops read


Relation = Callable[[_View], list[Term]]
"""Equations of indices that say which elements the op reads for an element of the result."""


def _cases(form: Form) -> Iterator[tuple[_Digits, Relation]]:
    """One case for each operand that an element of the result may be from."""
    attrs = form.attrs
    at: int = attrs.get("dim", 0)
    last = len(form.given)
    if "start" in attrs:
        digits = _Digits(form)
        kept = digits.values[form.made[at][0].key] * digits.attr(attrs["step"])
        digits.instead[0, form.given[0][at][0].key] = digits.size(form.low) + kept
        yield (
            digits,
            lambda v: _at(
                v, 0, at, v.index[0][at] == v.attrs["start"] + v.attrs["step"] * v.index[1][at]
            ),
        )
    elif "lo" in attrs:
        digits = _Digits(form)
        inner = digits.values[form.given[0][at][0].key]
        digits.instead[last, form.made[at][0].key] = digits.size(form.low) + inner
        yield digits, lambda v: _at(v, 0, at, v.index[1][at] == v.attrs["lo"] + v.index[0][at])
    elif REGISTRY[form.instance.op].signature.startswith("*"):
        for i, tensor in enumerate(form.given):
            digits = _Digits(form)
            before: Term = smt.whole(0)
            for other in form.given[:i]:
                before = before + digits.size(other[at][0].size)
            moved = before + digits.values[tensor[at][0].key]
            digits.instead[last, form.made[at][0].key] = moved
            yield digits, lambda v, i=i: _at(v, i, at, v.index[-1][at] == _joined(v, i, at))
    elif set(attrs) == {"dim"} and REGISTRY[form.instance.op].kind == "view":
        digits = _Digits(form)
        for digit in form.given[0][at]:
            digits.instead[0, digit.key] = digits.size(digit.size) - 1 - digits.values[digit.key]
        yield (
            digits,
            lambda v: _at(v, 0, at, v.index[0][at] == v.extent[0][at] - 1 - v.index[1][at]),
        )
    else:
        yield _Digits(form), _relation(form)


def _joined(v: _View, i: int, at: int) -> Term:
    total: Term = v.index[i][at]
    for extent in v.extent[:i]:
        total = total + extent[at]
    return total


def _relation(form: Form) -> Relation:
    instance, attrs = form.instance, form.attrs
    op = REGISTRY[instance.op]
    if op.kind == "map" or facets(op.name).spreads:
        return lambda v: [
            a == b
            for t, tensor in enumerate(form.given)
            for a, b, dim in zip(
                reversed(v.index[t]), reversed(v.index[-1]), reversed(tensor), strict=False
            )
            if dim
        ]
    if op.kind == "einsum":
        operands, result = parse(op.signature)
        return lambda v: _by_factor(v, [*operands, result])
    if op.kind in ("reduce", "rows"):
        return lambda v: _kept(v, form)
    if "dims" in attrs:
        return lambda v: [v.index[1][j] == v.index[0][d] for j, d in enumerate(attrs["dims"])]
    if "shape" in attrs:
        return lambda v: [_flat(v, 0) == _flat(v, 1)]
    raise NotStatedError(f"nothing is stated of {instance.op}")


def _at(v: _View, operand: int, at: int, there: Term) -> list[Term]:
    pairs = enumerate(zip(v.index[operand], v.index[-1], strict=True))
    return [there, *(a == b for i, (a, b) in pairs if i != at)]


def _flat(v: _View, t: int) -> Term:
    total: Term = smt.whole(0)
    for index, extent in zip(v.index[t], v.extent[t], strict=True):
        total = total * extent + index
    return total


def _by_factor(v: _View, factors: Sequence[Sequence[str]]) -> list[Term]:
    first: dict[str, Term] = {}
    out: list[Term] = []
    for names, indices in zip(factors, v.index, strict=True):
        out += [first.setdefault(n, i) == i for n, i in zip(names, indices, strict=True)]
    return out


def _kept(v: _View, form: Form) -> list[Term]:
    attrs = form.attrs
    if "dims" in attrs:
        kept = [i for i in range(len(v.index[0])) if i not in attrs["dims"]]
        made = kept if attrs["keepdim"] else range(len(kept))
        return [v.index[0][i] == v.index[1][j] for i, j in zip(kept, made, strict=True)]
    at: int = attrs["dim"]
    dim = form.given[0][at]
    if any(d.mesh_dim for d in dim):
        raise NotStatedError("split rows")
    pairs = enumerate(zip(v.index[0], v.index[1], strict=True))
    return [a == b for i, (a, b) in pairs if i != at]


def _contracted(form: Form) -> Iterator[Statement]:
    """Ranks fold their part of a dim, and the result waits for the rest of that fold alone."""
    made = {d.key for dim in form.made for d in dim}
    waits = {p for piece in form.instance.given for p in piece.layout.partial}
    done = set[str]()
    for tensor in form.given:
        for dim in tensor:
            keys = {d.key for d in dim}
            split = [d.mesh_dim for d in dim if d.mesh_dim]
            if split and not keys & made and not keys <= done:
                done |= keys
                yield from named_once(len(dim))
                fold, statement = _left(form, split[0])
                waits |= {(name, fold) for name in split}
                yield statement
    if waits != set(form.instance.made.layout.partial):
        raise NotStatedError("the result waits for another fold")


def _left(form: Form, name: str) -> tuple[str, Statement]:
    """The fold that a split dim leaves in the result, and that the op is that fold of entries."""
    op = REGISTRY[form.instance.op]
    fold = form.instance.made.layout.fold(name)
    if op.kind == "einsum":
        return "sum", ([], [])
    if op.kind != "reduce" or fold is None:
        raise NotStatedError("a split dim is read as a whole")
    domain = Symbolic(("max",))
    entries = domain.symbols("x", (2,))
    folded = np.asarray(facets(op.name).meaning(domain, entries, dims=(0,), keepdim=False))
    pair = entries[:1].reshape(()), entries[1:].reshape(())
    joined = domain.add(*pair) if fold == "sum" else _larger(domain, fold, *pair)
    return fold, (equations(folded, joined), list(domain.facts))


def named_once(count: int) -> Iterator[Statement]:
    """Digits of an index name each entry below the product of their sizes, and no entry twice.

    By induction: of the digits before the last one it is known.
    """
    sizes = smt.integers(" ".join(f"s{i}" for i in range(count)))
    ds, es = (smt.integers(" ".join(f"{n}{i}" for i in range(count))) for n in "de")
    facts = [s >= 1 for s in sizes]
    for d, s in [*zip(ds, sizes, strict=True), *zip(es, sizes, strict=True)]:
        facts += [d >= 0, d < s]
    for i in range(1, count):
        a, b, n = smt.integers(f"u{i} w{i} n{i}")
        s = sizes[i]
        within = [a >= 0, a < n, b >= 0, b < n, n >= 1]
        hints = [step(a, b, s), step(b, a, s), step(n, a, s), step(a, smt.whole(-1), s)]
        x, y = a * s + ds[i], b * s + es[i]
        once = smt.implies(x == y, smt.conj(a == b, ds[i] == es[i]))
        yield [smt.conj(x >= 0, x < n * s), once], [*within, *hints, *facts]


# folds


def _folds(form: Form) -> Iterator[Statement]:
    """The op takes shares of its operands to shares of its result."""
    instance = form.instance
    op = REGISTRY.get(instance.op)
    if op is None or op.kind in ("view", "index", "collective", "movement", "create"):
        return
    names = {n for p in instance.given for n in p.layout.pending}
    for name in sorted(names):
        folds = [p.layout.fold(name) for p in instance.given]
        fold = next(f for f in folds if f)
        if op.kind == "map":
            yield _shares(form, folds, fold)
        elif fold == "sum":
            x, y, c = (smt.real(n) for n in "xyc")
            yield [(x + y) * c == x * c + y * c], []
        elif op.kind != "reduce":
            raise NotStatedError(f"a pending {fold}")


def _shares(form: Form, folds: Sequence[str | None], fold: str) -> Statement:
    domain = Symbolic(("max", "rising"))
    op, instance = REGISTRY[form.instance.op], form.instance
    attrs = op.with_defaults(dict(instance.attrs))
    first: list[Array] = []
    second: list[Array] = []
    both: list[Array] = []
    for i, (piece, held) in enumerate(zip(instance.given, folds, strict=True)):
        zero = domain.const(Fraction(0))
        x, y = (domain.symbols(f"{n}{i}", ()) for n in "xy")
        if piece.dtype == "bool":
            x = y = domain.truths(f"b{i}", ())
        if piece.zero:
            x = y = together = zero
        elif held:
            together = domain.add(x, y) if fold == "sum" else _larger(domain, fold, x, y)
        else:
            y = together = x
        for row, value in ((first, x), (second, y), (both, together)):
            row.append(value)
    a, b, c = (
        np.asarray(facets(op.name).meaning(domain, *row, **attrs)) for row in (first, second, both)
    )
    joined = domain.add(a, b) if fold == "sum" else _larger(domain, fold, a, b)
    return equations(joined, c), list(domain.facts)


def _larger(domain: Symbolic, fold: str, a: Array, b: Array) -> Array:
    return domain.maximum(a, b) if fold == "max" else domain.minimum(a, b)


# created values


def _created(form: Form) -> Iterator[Statement]:
    digits = _Digits(form)
    here, there = digits.view(False), digits.view(True)
    if "offset" not in form.attrs:
        yield [], []
        return
    premises = [*digits.facts, *digits.coordinates()]

    def entry(v: _View) -> Term:
        if "strides" not in v.attrs:
            return v.attrs["offset"] + v.index[-1][form.attrs["dim"]]
        strides = v.attrs["strides"] or _row_major(v)
        total = v.attrs["offset"]
        for stride, index in zip(strides, v.index[-1], strict=True):
            total = total + stride * index
        return total

    yield [entry(here) == entry(there)], premises


def _row_major(v: _View) -> list[Term]:
    out: list[Term] = []
    size: Term = smt.whole(1)
    for extent in reversed(v.extent[-1]):
        out.insert(0, size)
        size = size * extent
    return out


# lookups


def _looked_up(form: Form) -> Iterator[Statement]:
    """Each index is in the window of one rank, which finds the row there; the rest is aligned."""
    attrs = form.attrs
    at: int = attrs.get("dim", 0)
    writes = "size" in attrs
    side = len(form.given) if writes else 0
    rows = form.tensors[side][at]
    digits = _Digits(form)
    yield _other_dims(form, digits, side, at), [*digits.facts, *digits.coordinates()]
    split = [d.mesh_dim for d in rows if d.mesh_dim]
    v, r = smt.integers("v r")
    inner, whole = digits.size(local_size(rows)), digits.size(whole_size(rows))
    facts = [s >= 1 for name, s in digits.sizes.items() if form.sizes[name]]
    if not split:
        yield [inner == whole, digits.attr(attrs["offset"]) == 0], facts
        return
    if len(split) > 1 or rows[0].mesh_dim is None:
        raise NotStatedError("rows are not one block a rank")
    count = digits.size(rows[0].size)
    offset = attrs["offset"]
    if not isinstance(offset, Offset) or [n for n, _ in offset.terms] != split:
        raise NotStatedError("the window is another")
    low = digits.size(offset.const) + digits.size(offset.terms[0][1]) * r
    q, s = smt.integers("q s")
    premises = [*facts, r >= 0, r < count, v == q * inner + s, s >= 0, s < inner]
    premises += [step(r, q, inner), step(q, r, inner), step(q, count - 1, inner)]
    premises += [step(smt.whole(0), q, inner), step(count, r, inner)]
    inside = smt.conj(v - low >= 0, v - low < inner)
    found = smt.implies(inside, smt.conj(r == q, v - low == s))
    yield [found, smt.implies(smt.conj(v >= 0, v < whole), smt.conj(q >= 0, q < count))], premises
    yield [smt.implies(r == q, inside)], premises


def _other_dims(form: Form, digits: _Digits, side: int, at: int) -> list[Term]:
    """Dims beside the rows are aligned, on a rank and in the whole."""
    goals: list[Term] = []
    for whole in (False, True):
        first: dict[str, Term] = {}
        view = digits.view(whole)
        for t, tensor in enumerate(form.tensors):
            for i, dim in enumerate(tensor):
                if not dim or (t == side and i == at):
                    continue
                label = "|".join(d.key for d in dim)
                index = view.index[t][i]
                goals.append(first.setdefault(label, index) == index)
    return goals


# collectives


def _moved(form: Form) -> Iterator[Statement]:
    """An element that arrives is the one that its place in the whole asks for."""
    attrs, instance = form.attrs, form.instance
    if "shift" in attrs and form.given[0] != form.made:
        raise NotStatedError("pieces that go round")
    names = mesh_dims(attrs["mesh_dim"]) if "mesh_dim" in attrs else ()
    digits = _Digits(form)
    here, there = digits.view(False), digits.view(True)
    goals = [a == b for a, b in zip(there.index[0], there.index[1], strict=True)]
    dims = {k: attrs[k] for k in ("dim", "split_dim", "concat_dim") if k in attrs}
    if "split_dim" in dims:
        split, joined = dims["split_dim"], dims["concat_dim"]
    else:
        grown = dims and _grows(form, dims["dim"])
        split, joined = (None, dims["dim"]) if grown else (dims.get("dim"), None)
    source = _rank(form, digits, names, 0) if joined is not None else smt.whole(0)
    target = _rank(form, digits, names, 1) if split is not None else smt.whole(0)
    for i, (a, b) in enumerate(zip(here.index[0], here.index[1], strict=True)):
        if split == joined == i:
            chunk = _exchanged(form, digits, names, i)
            goals.append(a - target * chunk == b - source * chunk)
        elif i == split:
            goals.append(a == target * here.extent[1][i] + b)
        elif i == joined:
            goals.append(b == source * here.extent[0][i] + a)
        else:
            goals.append(a == b)
    yield goals, list(digits.facts)
    yield from _summed(instance)


def _grows(form: Form, dim: int) -> bool:
    """Whether the ranks' pieces are joined along the dim."""
    bound = [sum(d.mesh_dim is not None for d in t[dim]) for t in form.tensors]
    return bound[0] > bound[1]


def _exchanged(form: Form, digits: _Digits, names: Iterable[str], dim: int) -> Term:
    size = local_size(form.given[0][dim])
    whole: Term = digits.size(size)
    chunk = smt.integer("chunk")
    count: Term = smt.whole(1)
    for name in names:
        count = count * digits.sizes[f"|{name}|"]
    digits.facts.append(chunk * count == whole)
    return chunk


def _rank(form: Form, digits: _Digits, names: Iterable[str], tensor: int) -> Term:
    """The rank in its group, by the digits that the mesh dims are in one tensor."""
    total: Term = smt.whole(0)
    for name in names:
        if form.instance.mesh[name] == 1:
            continue
        found = [d for dim in form.tensors[tensor] for d in dim if d.mesh_dim == name]
        if len(found) != 1:
            raise NotStatedError(f"no dim is split over {name}")
        total = total * digits.size(found[0].size) + digits.value(tensor, found[0])
    return total


def _summed(instance: Any) -> Iterator[Statement]:
    """Equal values of one more rank add up to one more times the value."""
    if "reduce" not in dict(instance.attrs):
        return
    total, x, n = (smt.real(name) for name in ("total", "x", "n"))
    yield [total + x == (n + 1) * x], [total == n * x]


def step(x: Term, y: Term, n: Term) -> Term:
    """q > p gives q n >= p n + n for n > 0: an instance, where Z3 would have to guess it."""
    return smt.implies(smt.conj(n > 0, x > y), x * n >= y * n + n)
