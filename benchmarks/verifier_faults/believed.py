# pyright: basic
"""Faults of provers, terms and the refuter, with wrong programs that they let through."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from benchmarks.verifier_faults.edits import Edit
from benchmarks.verifier_faults.programs import Op, Pair, pair


@dataclass(frozen=True)
class Fault:
    """One small change, and programs on which it may tell."""

    name: str
    edit: Edit
    pairs: tuple[Pair, ...] = ()
    opened: bool = False
    """Whether ranks run what becomes of cross entropies under the fault."""
    about: str = ""
    """The op that programs of the corpus must have to be tried; empty for any."""

    @property
    def room(self) -> str:
        first, *rest = self.edit.room.removeprefix("shardproof.verifier.").split(".")
        return ".".join([first, *rest[:1]]) if first == "provers" else first

    @property
    def shared(self) -> bool:
        """Whether the checker runs the same code."""
        return not self.edit.room.startswith(PROVER_ALONE)


RELATE = "joining moving peeling propagate_back recognition relayout rules scans strategies walk"
PROVER_ALONE = tuple(f"shardproof.verifier.provers.relate.{name}" for name in RELATE.split())
FAULTS: list[Fault] = []
A, A3, A8, V = "f32 4 4", "f32 2 2 2", "f32 8", "f32 4"


def fault(
    name: str, place: str, old: str, new: Any, *pairs: Pair, opened: bool = False, about: str = ""
) -> None:
    FAULTS.append(Fault(name, Edit(f"shardproof.verifier.{place}", old, new), pairs, opened, about))


def part(op: Op, x: str, dim: int, start: int, stop: int) -> str:
    return op("slice", x, dim=dim, start=start, stop=stop)


def turn(op: Op, x: str) -> str:
    return op("permute", x, dims=(1, 0))


def by(op: Op, x: str, value: int | Fraction) -> str:
    return op("mul_scalar", x, value=Fraction(value))


def total(op: Op, x: str, *dims: int) -> str:
    return op("sum", x, dims=dims)


def wide(op: Op, x: str, *shape: int) -> str:
    return op("expand", x, shape=shape)


def number(op: Op, value: int, *shape: int, dtype: str = "f32") -> str:
    return op("full", shape=shape, value=Fraction(value), dtype=dtype)


def real(op: Op, x: str) -> str:
    return op("cast", x, dtype="f32")


def nothing(op: Op, x: str) -> str:
    """0 where a value is defined."""
    return op("sub", x, x)


def copy(op: Op, x: str) -> str:
    return op("mul_scalar", x, value=Fraction(1))


def line(op: Op, count: int, dtype: str = "i64", offset: int = 0) -> str:
    return op("iota", shape=(count,), dim=0, dtype=dtype, offset=offset)


# terms: views

TERMS = "terms.table:Terms."
fault(
    "two permutations are taken in the wrong order",
    TERMS + "permute",
    "tuple(inner[d] for d in dims)",
    "tuple(dims[d] for d in inner)",
    pair(
        lambda op, a: op("permute", op("permute", a, dims=(1, 2, 0)), dims=(1, 0, 2)),
        lambda op, a: op("permute", a, dims=(0, 2, 1)),
        A3,
    ),
)
fault(
    "a permutation of dims of extent 2 is a reshape",
    TERMS + "permute",
    "term.shape[d] != 1",
    "term.shape[d] > 2",
    pair(lambda op, a: turn(op, a), lambda op, a: op("reshape", a, shape=(3, 2)), "f32 2 3"),
)
fault(
    "a broadcast loses its factor",
    TERMS + "expand",
    "return Ref(ref.coef, self.intern(",
    "return Ref(ONE, self.intern(",
    pair(lambda op, a: wide(op, by(op, a, 2), 4, 4), lambda op, a: wide(op, a, 4, 4), V),
)
fault(
    "reading through a broadcast loses the factor",
    TERMS + "strip",
    "Ref(times(ref.coef, inner.coef), inner.id)",
    "Ref(inner.coef, inner.id)",
    pair(
        lambda op, a, b: op("add", b, by(op, wide(op, a, 4, 4), 2)),
        lambda op, a, b: op("add", b, wide(op, a, 4, 4)),
        V,
        A,
    ),
)
fault(
    "a reshape loses its factor",
    TERMS + "reshape",
    "return Ref(ref.coef, self.intern(",
    "return Ref(ONE, self.intern(",
    pair(
        lambda op, a: op("reshape", by(op, a, 2), shape=(16,)),
        lambda op, a: op("reshape", a, shape=(16,)),
        A,
    ),
)
fault(
    "a permutation loses its factor",
    TERMS + "permute",
    'return Ref(ref.coef, self.intern("permute"',
    'return Ref(ONE, self.intern("permute"',
    pair(lambda op, a: turn(op, by(op, a, 2)), lambda op, a: turn(op, a), A),
)
# terms: sums and products
fault(
    "weights of a linear combination are forgotten",
    TERMS + "combine",
    "times(weight, ref.coef)",
    "ref.coef",
    pair(lambda op, a, b: op("sub", a, b), lambda op, a, b: op("add", a, b), A, A),
)
fault(
    "like summands are counted once",
    TERMS + "combine",
    "part if before is None else before + part",
    "part",
    pair(lambda op, a: op("add", a, a), copy, A),
)
fault(
    "coefficients inside a sum are forgotten",
    TERMS + "combine",
    "ONE if c == lead else c / lead",
    "ONE",
    pair(lambda op, a, b: op("add", a, by(op, b, 2)), lambda op, a, b: op("add", a, b), A, A),
)
fault(
    "the leading coefficient of a sum is forgotten",
    TERMS + "combine",
    "Ref(lead, made.id)",
    "Ref(ONE, made.id)",
    pair(lambda op, a, b: by(op, op("add", a, b), 2), lambda op, a, b: op("add", a, b), A, A),
)
fault(
    "summands of a sum keep their own factor only",
    TERMS + "combine",
    "part, before = times(coef, entry.coef)",
    "part, before = entry.coef",
    pair(
        lambda op, a, b, c: op("sub", c, op("add", a, b)),
        lambda op, a, b, c: op("add", c, op("add", a, b)),
        A,
        A,
        A,
    ),
)
fault(
    "a square is the number itself",
    TERMS + "product",
    "powers.get(ref.id, 0) + 1",
    "1",
    pair(lambda op, a: op("mul", a, a), copy, A),
)
fault(
    "powers of products are not added",
    TERMS + "product",
    "powers.get(entry.id, 0) + power",
    "power",
    pair(
        lambda op, a, b, c: op("mul", op("mul", a, b), op("mul", a, c)),
        lambda op, a, b, c: op("mul", op("mul", a, b), c),
        A,
        A,
        A,
    ),
)
fault(
    "of the factors of a product the last counts",
    TERMS + "product",
    "coef = times(coef, ref.coef)",
    "coef = ref.coef",
    pair(lambda op, a, b: op("mul", by(op, a, 3), b), lambda op, a, b: op("mul", a, b), A, A),
)
fault(
    "the reciprocal of a multiple is a multiple",
    TERMS + "reciprocal",
    "Ref(1 / ref.coef, made.id)",
    "Ref(ref.coef, made.id)",
    pair(
        lambda op, a, b: op("div", b, by(op, a, 2)),
        lambda op, a, b: by(op, op("div", b, a), 2),
        A,
        A,
    ),
)
fault(
    "operands of every function may change places",
    TERMS + "mapped",
    "if traits(op).symmetric else small",
    "if True else small",
    pair(
        lambda op, a, b: real(op, op("lt", a, b)), lambda op, a, b: real(op, op("lt", b, a)), A, A
    ),
)
fault(
    "a linear op loses the factor",
    TERMS + "linear",
    "Ref(first.coef, made.id)",
    "Ref(ONE, made.id)",
    pair(lambda op, a: total(op, by(op, a, 2), 0), lambda op, a: total(op, a, 0), A),
)
fault(
    "every op on rows is linear",
    TERMS + "apply",
    "self.linear if frozenset({0}) in known.linear else self.intern",
    "self.linear",
    pair(
        lambda op, a: op("topk_mask", by(op, a, 2), k=1, dim=1),
        lambda op, a: by(op, op("topk_mask", a, k=1, dim=1), 2),
        A,
    ),
)
# terms: reductions
fault(
    "a sum of ones is one",
    TERMS + "reduce",
    "ref.coef * math.prod(shape[d] for d in real)",
    "ref.coef",
    pair(
        lambda op, a: op("add", a, total(op, number(op, 1, 4), 0)),
        lambda op, a: op("add", a, number(op, 1)),
        A,
    ),
)
fault(
    "dims of a sum of a sum are counted in the inner one",
    TERMS + "reduce",
    "*(left[d] for d in real)",
    "*real",
    pair(lambda op, a: total(op, total(op, a, 0), 1), lambda op, a: total(op, a, 0, 1), A3),
)
fault(
    "sum for max",
    TERMS + "reduce",
    'if op == "sum":',
    'if op in ("sum", "amax"):',
    pair(
        lambda op, a: op("amax", by(op, a, 1), dims=(0,)),
        lambda op, a: by(op, op("amax", by(op, a, -1), dims=(0,)), -1),
        A,
    ),
)
fault(
    "a factor passes a maximum, whatever its sign",
    TERMS + "reduce",
    "out = self.intern(op, [ref], (real,), inner)",
    "out = Ref(ref.coef, self.intern(op, [Ref(ONE, ref.id)], (real,), inner).id)",
    pair(
        lambda op, a: op("amax", by(op, a, -1), dims=(0,)),
        lambda op, a: by(op, op("amax", a, dims=(0,)), -1),
        A,
    ),
)
# terms: arithmetic
MADE = "terms.building:"
fault(
    "a product of matrices has the factor of the first",
    MADE + "matmul",
    "coef = a.coef * b.coef",
    "coef = a.coef",
    pair(lambda op, a, b: op("mm", a, by(op, b, 2)), lambda op, a, b: op("mm", a, b), A, A),
)
fault(
    "a transposed product keeps the order of its factors",
    MADE + "matmul",
    "left, right = t.permute(b, swap), t.permute(a, swap)",
    "left, right = t.permute(a, swap), t.permute(b, swap)",
    pair(
        lambda op, a, b: op("mm", turn(op, a), turn(op, b)),
        lambda op, a, b: turn(op, op("mm", a, b)),
        A,
        A,
    ),
)
fault(
    "a choice between a value and a multiple of it is the value",
    MADE + "where",
    "if a == b or",
    "if a.id == b.id or",
    pair(
        lambda op, a, b: op("where", op("gt", a, b), a, by(op, a, 2)),
        lambda op, a, b: copy(op, a),
        A,
        A,
    ),
)
fault(
    "a choice between two equal values forgets its condition",
    MADE + "where",
    "(Fraction(0), cond)",
    "(Fraction(0), alike)",
    pair(
        lambda op, a, b: copy(op, a),
        lambda op, a, b: op("where", op("gt", op("log", b), number(op, 0, 4, 4)), a, a),
        A,
        A,
    ),
)
fault(
    "nothing taken by an index that may have no value is nothing",
    TERMS + "linear",
    "not any(self.loose(a.id) for a in args[1:])",
    "True",
    pair(
        lambda op, a, b: copy(op, a),
        lambda op, a, b: op(
            "add", a, op("take", number(op, 0, 8), op("cast", op("log", b), dtype="i64"))
        ),
        V,
        V,
    ),
)
fault(
    "what is at least as large is larger",
    "terms.building:BUILD[ge]",
    "",
    lambda t, a, k, d: t.mapped("lt", [a[1], a[0]], ()),
    pair(
        lambda op, a, b: real(op, op("ge", a, b)),
        lambda op, a, b: real(op, op("gt", a, b)),
        A,
        A,
    ),
)
fault(
    "a gradient passes where an activation starts",
    "terms.building:BUILD[relu_grad]",
    "",
    lambda t, a, k, d: t.mapped("le", [t.full((), Fraction(0)), a[0]], ()),
    pair(
        lambda op, a: op("relu_grad", a),
        lambda op, a: real(op, op("ge", a, number(op, 0, 4, 4))),
        A,
    ),
)
fault(
    "0 has a sign",
    "terms.building:BUILD[sign]",
    "",
    lambda t, a, k, d: t.combine(
        [
            (Fraction(2), t.mapped("lt", [t.full((), Fraction(0)), a[0]], ())),
            (Fraction(-1), t.ones(t.shape(a[0]))),
        ]
    ),
    pair(
        lambda op, a: op("sign", a),
        lambda op, a: op(
            "add_scalar",
            by(op, real(op, op("gt", a, number(op, 0, 4, 4))), 2),
            value=Fraction(-1),
        ),
        A,
    ),
)
fault(
    "one side of a choice keeps its factor beside the common one",
    MADE + "where",
    "Ref(b.coef / pulled, b.id)",
    "Ref(b.coef, b.id)",
    pair(
        lambda op, a, b: op("where", op("gt", a, b), by(op, a, 2), by(op, b, 3)),
        lambda op, a, b: by(op, op("where", op("gt", a, b), a, by(op, b, 3)), 2),
        A,
        A,
    ),
)
fault(
    "a factor near 1 is 1",
    "terms.building:BUILD[mul_scalar]",
    "",
    lambda t, a, k, d: (
        a[0]
        if abs(Fraction(k["value"]) - 1) < Fraction(1, 10**7)
        else t.combine([(Fraction(k["value"]), a[0])])
    ),
    pair(lambda op, a: by(op, a, 1 + Fraction(1, 10**8)), lambda op, a: by(op, a, 1), A),
    pair(
        lambda op, a: by(op, op("tanh", a), 1 + Fraction(1, 10**8)),
        lambda op, a: op("tanh", a),
        A,
    ),
)
fault(
    "a small number that is added is nothing",
    "terms.building:BUILD[add_scalar]",
    "",
    lambda t, a, k, d: (
        a[0]
        if abs(Fraction(k["value"])) < Fraction(1, 10**9)
        else t.combine([(Fraction(1), a[0]), (Fraction(k["value"]), t.ones(t.shape(a[0])))])
    ),
    pair(
        lambda op, a: op("rsqrt", op("add_scalar", op("mul", a, a), value=Fraction(1, 10**12))),
        lambda op, a: op("rsqrt", op("mul", a, a)),
        A,
    ),
    pair(
        lambda op, a: op("log", op("add_scalar", op("mul", a, a), value=Fraction(1, 10**10))),
        lambda op, a: op("log", op("mul", a, a)),
        A,
    ),
)
fault(
    "greater is less",
    "terms.building:BUILD[gt]",
    "",
    lambda t, a, k, d: t.mapped("lt", a, ()),
    pair(
        lambda op, a, b: real(op, op("gt", a, b)), lambda op, a, b: real(op, op("lt", a, b)), A, A
    ),
)
fault(
    "a quotient is a product",
    "terms.building:BUILD[div]",
    "",
    lambda t, a, k, d: t.product(a),
    pair(lambda op, a, b: op("div", a, b), lambda op, a, b: op("mul", a, b), A, A),
)
fault(
    "a difference is a sum",
    "terms.building:BUILD[sub]",
    "",
    lambda t, a, k, d: t.combine([(Fraction(1), x) for x in a]),
    pair(lambda op, a, b: op("sub", a, b), lambda op, a, b: op("add", a, b), A, A),
)
fault(
    "an added number is forgotten",
    "terms.building:BUILD[add_scalar]",
    "",
    lambda t, a, k, d: a[0],
    pair(lambda op, a: op("add_scalar", a, value=Fraction(1)), copy, A),
)
fault(
    "a negative power is a power",
    MADE + "power",
    "return t.reciprocal(t.product([args[0]] * int(-exponent)))",
    "return t.product([args[0]] * int(-exponent))",
    pair(lambda op, a: op("pow", a, exponent=Fraction(-2)), lambda op, a: op("mul", a, a), A),
)
fault(
    "a power is one factor short",
    MADE + "power",
    "return t.product([args[0]] * int(exponent))",
    "return t.product([args[0]] * (int(exponent) - 1))",
    pair(lambda op, a: op("pow", a, exponent=Fraction(3)), lambda op, a: op("mul", a, a), A),
)
fault(
    "a cast to integers keeps the fraction",
    MADE + "cast",
    '(to != "bool" and dtypes[0] not in FLOATS)',
    'to != "bool"',
    pair(lambda op, a: real(op, op("cast", a, dtype="i64")), copy, A),
)
fault(
    "a cast to bool keeps the number",
    MADE + "cast",
    '(to != "bool" and dtypes[0] not in FLOATS)',
    "dtypes[0] not in FLOATS",
    pair(lambda op, i: real(op, op("cast", i, dtype="bool")), lambda op, i: real(op, i), "i64 4"),
)
# terms: parts
PARTS = "terms.parts:"
fault(
    "a slice of a slice starts where the outer one does",
    PARTS + "sliced",
    "first, by = term.attrs[1], term.attrs[3]",
    "first, by = 0, term.attrs[3]",
    pair(
        lambda op, a: part(op, part(op, a, 0, 2, 8), 0, 1, 3),
        lambda op, a: part(op, a, 0, 1, 3),
        A8,
    ),
)
fault(
    "a slice of joined parts loses their factor",
    PARTS + "_slice_of_concat",
    "Ref(cut.coef * x.coef, cut.id)",
    "Ref(cut.coef, cut.id)",
    pair(
        lambda op, a, b: part(op, by(op, op("concat", a, b, dim=0), 2), 0, 0, 4),
        lambda op, a, b: copy(op, a),
        V,
        V,
    ),
)
fault(
    "the second of two parts is cut as the first",
    PARTS + "_slice_of_concat",
    "min(stop, at + extent) - at",
    "min(stop, at + extent) - at\n            lo, hi = 0, hi - lo",
    pair(
        lambda op, a, b: part(op, op("concat", a, b, dim=0), 0, 6, 8),
        lambda op, a, b: part(op, b, 0, 0, 2),
        V,
        V,
    ),
)
fault(
    "slices of two tensors are joined as one",
    PARTS + "_adjacent",
    "left.args != right.args or",
    "",
    pair(
        lambda op, a, b: op("concat", part(op, a, 0, 0, 4), part(op, b, 0, 4, 8), dim=0),
        lambda op, a, b: copy(op, a),
        A8,
        A8,
    ),
)
fault(
    "slices of several factors are joined as one",
    PARTS + "_adjacent",
    " and a.coef == b.coef",
    "",
    pair(
        lambda op, a: op("concat", part(op, a, 0, 0, 4), by(op, part(op, a, 0, 4, 8), 2), dim=0),
        copy,
        A8,
    ),
)
fault(
    "joined parts have the factor of the first",
    PARTS + "concat",
    "ONE if a.coef == pulled else a.coef / pulled",
    "ONE",
    pair(
        lambda op, a, b: op("concat", by(op, a, 2), by(op, b, 3), dim=0),
        lambda op, a, b: by(op, op("concat", a, b, dim=0), 2),
        V,
        V,
    ),
)
fault(
    "padding is all at the end",
    PARTS + "pad",
    "(dim, lo, hi), shape",
    "(dim, 0, lo + hi), shape",
    pair(
        lambda op, a: op("pad", a, dim=0, lo=1, hi=0),
        lambda op, a: op("pad", a, dim=0, lo=0, hi=1),
        V,
    ),
)
# terms: indices, masks, rounding
fault(
    "a ramp starts at 0",
    MADE + "iota",
    "Fraction(offset),",
    "Fraction(0),",
    pair(
        lambda op, a: op("mul", a, line(op, 4, "f32", 2)),
        lambda op, a: op("mul", a, line(op, 4, "f32")),
        V,
    ),
)
fault(
    "rows are added from row 0 on",
    MADE + "index_add",
    '(attrs["offset"],)',
    "(0,)",
    pair(
        lambda op, a, i: op("index_add", a, i, size=4, offset=1),
        lambda op, a, i: op("index_add", a, i, size=4),
        A,
        "i64 4",
    ),
)
fault(
    "entries are put from row 0 on",
    MADE + "put_along",
    '(at, attrs["offset"])',
    "(at, 0)",
    pair(
        lambda op, a, i: op("put_along", a, i, dim=0, size=4, offset=1),
        lambda op, a, i: op("put_along", a, i, dim=0, size=4),
        A,
        "i64 4 4",
    ),
)
MASK = {"p": Fraction(1, 2), "stream": 0}
fault(
    "masks of all streams are one",
    "terms.rows:dropout_mask",
    'attrs["stream"], offset',
    "0, offset",
    pair(
        lambda op, a, s: op(
            "mul", a, op("dropout_mask", s, shape=(8,), p=Fraction(1, 2), stream=0)
        ),
        lambda op, a, s: op(
            "mul", a, op("dropout_mask", s, shape=(8,), p=Fraction(1, 2), stream=1)
        ),
        A8,
        "i64",
    ),
)
fault(
    "a part of a mask is the mask from its start",
    "terms.rows:mask_window",
    "offset + kept.start * strides[dim]",
    "offset",
    pair(
        lambda op, a, s: op("mul", a, part(op, op("dropout_mask", s, shape=(8,), **MASK), 0, 4, 8)),
        lambda op, a, s: op("mul", a, op("dropout_mask", s, shape=(4,), **MASK)),
        V,
        "i64",
    ),
)
fault(
    "all formats round the same way",
    "terms.rows:round_to",
    '(attrs["format"],)',
    "()",
    pair(
        lambda op, a: op("round_to", a, format="f8e4m3"),
        lambda op, a: op("round_to", a, format="f8e5m2"),
        A,
    ),
)
# terms: where they are defined
fault(
    "every term is defined",
    "terms.table:Terms.loose",
    "return self.needed is not None",
    "return False",
    pair(
        lambda op, a, b: copy(op, a), lambda op, a, b: op("add", a, nothing(op, op("log", b))), A, A
    ),
)
fault(
    "a sum is positive if one summand is",
    "terms.defined:_sign",
    "if not signs or any(s is None for s in signs):",
    "if not any(s is not None for s in signs):",
    pair(
        lambda op, a, b: copy(op, a),
        lambda op, a, b: op(
            "add", a, nothing(op, op("log", op("add_scalar", b, value=Fraction(1))))
        ),
        A,
        A,
    ),
)
fault(
    "a guard guards the other branch",
    "terms.defined:Defined._opened",
    "((1, True), (2, False))",
    "((1, False), (2, True))",
    pair(
        lambda op, a, b: copy(op, a),
        lambda op, a, b: op(
            "add",
            a,
            nothing(op, op("where", op("gt", b, number(op, 0)), number(op, 0, 4, 4), op("log", b))),
        ),
        A,
        A,
    ),
)
fault(
    "what a choice does not take is defined too",
    "terms.defined:uses_all",
    "return traits(term.op).strict or",
    "return True or",
    pair(
        lambda op, a, b: op("where", op("gt", a, number(op, 0)), a, op("log", b)),
        lambda op, a, b: op(
            "add",
            op("where", op("gt", a, number(op, 0)), a, op("log", b)),
            nothing(op, op("log", b)),
        ),
        A,
        A,
    ),
)
fault(
    "an odd power is not negative",
    "terms.defined:_sign",
    "power % 2 == 0 for power",
    "True for power",
    pair(
        lambda op, a, b: copy(op, a),
        lambda op, a, b: op("add", a, nothing(op, op("sqrt", op("mul", b, op("mul", b, b))))),
        A,
        A,
    ),
)
# keys


def above(op: Op, *given: str) -> list[str]:
    return [op("gt", x, number(op, 0)) for x in given]


KEY = "provers.canonical."
INTS = ("i64 4", "i64 4")
fault(
    "less is at most",
    KEY + "functions:_lt",
    "return _not(sums, _le(sums, [values[1], values[0]]))",
    "return _le(sums, values)",
    pair(
        lambda op, a, b: real(op, op("lt", a, b)), lambda op, a, b: real(op, op("le", a, b)), *INTS
    ),
)
fault(
    "either is both",
    KEY + "functions:_or",
    "return _not(sums, sums.multiply(_not(sums, values[0]), _not(sums, values[1])))",
    "return sums.multiply(values[0], values[1])",
    pair(
        lambda op, a, b: real(op, op("logical_or", *above(op, a, b))),
        lambda op, a, b: real(op, op("logical_and", *above(op, a, b))),
        A,
        A,
    ),
)
fault(
    "exp(0) = 0",
    KEY + "functions:_exp",
    "return ONE",
    "return ZERO",
    pair(lambda op, a: by(op, a, 0), lambda op, a: op("mul", a, op("exp", number(op, 0, 4, 4))), A),
)
fault(
    "a sum over what is the same counts it once",
    KEY + "tidy:OneTerm.tidied",
    "coef *= high - low",
    "coef *= 1",
    pair(lambda op, a: total(op, op("gelu", wide(op, a, 3, 4)), 0), lambda op, a: op("gelu", a), V),
)
fault(
    "broadcasts are along the leading dims",
    KEY + "keys:Opened.under",
    "at[rank - len(shape) :]",
    "at[: len(shape)]",
    pair(
        lambda op, a, b: op("gelu", op("add", a, wide(op, b, 4, 4))),
        lambda op, a, b: op("gelu", op("add", a, wide(op, op("reshape", b, shape=(4, 1)), 4, 4))),
        A,
        V,
    ),
)
fault(
    "coefficients are not written",
    KEY + "form:Writer.poly",
    'f"{c}*{text}"',
    'f"{text}"',
    pair(lambda op, a, b: op("add", a, by(op, b, 2)), lambda op, a, b: op("add", a, b), A, A),
)
fault(
    "offsets of places are not written",
    KEY + "form:Writer.place",
    "{place.offset}[",
    "[",
    pair(lambda op, a: part(op, a, 0, 0, 4), lambda op, a: part(op, a, 0, 4, 8), A8),
)
fault(
    "a product of sums keeps the factors of one",
    KEY + "sums:Sums.multiply",
    "out.append((c * d, made))",
    "out.append((c, made))",
    pair(
        lambda op, a, b, c: op("mul", op("add", a, b), op("add", a, by(op, c, 2))),
        lambda op, a, b, c: op("mul", op("add", a, b), op("add", a, c)),
        A,
        A,
        A,
    ),
)
fault(
    "where a mask does not hold is as where it does",
    KEY + "functions:_set",
    "if holds or len(kept) == len(mono.factors):",
    "if True:",
    pair(
        lambda op, a, b: op(
            "gelu", op("where", op("le", a, number(op, 0)), b, number(op, 0, 4, 4))
        ),
        lambda op, a, b: op("gelu", b),
        A,
        A,
    ),
)
fault(
    "the sign of a comparison is not written",
    KEY + "form:Writer._factor",
    'signed=name == "le0"',
    "signed=False",
    pair(
        lambda op, a, b: real(op, op("le", a, b)), lambda op, a, b: real(op, op("le", b, a)), A, A
    ),
)
fault(
    "the second side of a choice is chosen always",
    KEY + "entries:_where",
    "o.sums.multiply(b, other, True)",
    "b",
    pair(
        lambda op, a, b: op("where", op("gt", a, number(op, 0)), a, b),
        lambda op, a, b: op(
            "add", op("where", op("gt", a, number(op, 0)), a, number(op, 0, 4, 4)), b
        ),
        A,
        A,
    ),
)
fault(
    "a slice starts at 0",
    KEY + "entries:_slice",
    "at[dim].offset * step + start",
    "at[dim].offset * step",
    pair(lambda op, a: part(op, a, 0, 4, 8), lambda op, a: part(op, a, 0, 0, 4), A8),
)
fault(
    "a product of matrices is of the transposed second",
    KEY + "entries:_matmul",
    "(*at[:-2], between, at[-1])",
    "(*at[:-2], at[-1], between)",
    pair(
        lambda op, a, b: op("mm", a, b),
        lambda op, a, b: total(
            op,
            op("mul", wide(op, op("reshape", a, shape=(4, 1, 4)), 4, 4, 4), wide(op, b, 4, 4, 4)),
            2,
        ),
        A,
        A,
    ),
)
fault(
    "a running sum takes the entry itself",
    KEY + "entries:_cumsum",
    '"lt" if exclusive else "le"',
    '"le"',
    pair(
        lambda op, a: op("cumsum", a, dim=0, exclusive=True),
        lambda op, a: op("cumsum", a, dim=0),
        A,
    ),
)
fault(
    "padding is where the tensor is",
    KEY + "entries:_pad",
    "low, extent - high, extent",
    "0, extent, extent",
    pair(copy, lambda op, a: op("pad", part(op, a, 0, 1, 3), dim=0, lo=1, hi=1), V),
)
# index notation: places and comparisons of indices


def integer(op: Op, value: int) -> str:
    return number(op, value, dtype="i64")


def holds(op: Op, kind: str, *given: str) -> str:
    """1 where a comparison holds, else 0."""
    return real(op, op(kind, *given))


fault(
    "at most is less",
    KEY + "affine:_half",
    "-place.offset // n + 1",
    "-place.offset // n",
    pair(
        lambda op, a: op("mul", a, holds(op, "le", line(op, 6), integer(op, 3))),
        lambda op, a: op("pad", part(op, a, 0, 0, 3), dim=0, lo=0, hi=3),
        "f32 6",
    ),
)
fault(
    "what holds at some places holds at none",
    KEY + "affine:decided",
    "if high <= 0 or low > 0:",
    "if True:",
    pair(
        lambda op, a: op("mul", a, holds(op, "le", line(op, 6), integer(op, 3))),
        lambda op, a: op("mul", a, holds(op, "le", line(op, 6), integer(op, -1))),
        "f32 6",
    ),
)
fault(
    "a place that is compared is the first",
    KEY + "affine:_point",
    "(v, digit, digit + 1)",
    "(v, 0, 1)",
    pair(
        lambda op, a: op("mul", a, holds(op, "eq", line(op, 4), integer(op, 2))),
        lambda op, a: op("pad", part(op, a, 0, 0, 1), dim=0, lo=0, hi=3),
        V,
    ),
)
fault(
    "rows that are compared are counted without their offset",
    KEY + "affine:told",
    "row.offset - start",
    "row.offset",
    pair(
        lambda op, a, i: op(
            "mul", op("take", a, i, dim=0, offset=1), holds(op, "le", i, integer(op, 1))
        ),
        lambda op, a, i: op("take", op("pad", part(op, a, 0, 0, 2), dim=0, lo=1, hi=1), i, dim=0),
        V,
        "i64 4",
    ),
)
fault(
    "rows are looked up from row 0 on",
    KEY + "lookups:_hot",
    "Fraction(-offset)",
    "Fraction(0)",
    pair(
        lambda op, a, i: op("take", a, i, dim=0, offset=1),
        lambda op, a, i: op("take", a, i, dim=0),
        V,
        "i64 4",
    ),
)
fault(
    "the one value of an index is 0",
    KEY + "tidy:OneTerm.fixed",
    "by = value * steps.pop(name)",
    "by = 0 * steps.pop(name)",
    pair(
        lambda op, a: total(op, op("mul", a, holds(op, "eq", line(op, 4), integer(op, 2))), 0),
        lambda op, a: total(op, part(op, a, 0, 0, 1), 0),
        V,
    ),
)
fault(
    "a reshape counts from 0",
    KEY + "keys:Opened.regrouped",
    "start, offset = divmod(offset, row)",
    "start, offset = 0, 0",
    pair(
        lambda op, a: part(op, op("reshape", a, shape=(2, 4)), 0, 1, 2),
        lambda op, a: op("reshape", part(op, a, 0, 0, 4), shape=(1, 4)),
        A8,
    ),
)
fault(
    "a window does not move with a slice",
    KEY + "keys:Opened.window",
    "low, high = low - place.offset, high - place.offset",
    "low, high = low, high",
    pair(
        lambda op, a: part(op, op("pad", a, dim=0, lo=2, hi=0), 0, 1, 5),
        lambda op, a: op("pad", part(op, a, 0, 1, 3), dim=0, lo=2, hi=0),
        V,
    ),
)
fault(
    "all parts of a join start at 0",
    KEY + "entries:_concat",
    "start = end",
    "start = 0 * end",
    pair(
        lambda op, a, b: op("concat", a, b, dim=0),
        lambda op, a, b: op("pad", op("add", a, b), dim=0, lo=0, hi=4),
        V,
        V,
    ),
)


def lower(op: Op, x: str, first: int, count: int) -> str:
    """Rows of a matrix of 4 columns, zero above the diagonal of the matrix that they are from."""
    rows = op("reshape", line(op, count, offset=first), shape=(count, 1))
    return op("mul", x, holds(op, "le", line(op, 4), rows))


fault(
    "a block without a mask is joined with those that have one",
    KEY + "grids:Grid._joined",
    "any(known[mask] != 1 for mask in masks - m.masks)",
    "False",
    pair(
        lambda op, a: lower(op, a, 0, 4),
        lambda op, a: op(
            "concat", lower(op, part(op, a, 0, 0, 2), 0, 2), part(op, a, 0, 2, 4), dim=0
        ),
        A,
    ),
)
fault(
    "stretches of a sum start at 0",
    KEY + "sums:Sums._stepped",
    "(start, edge)",
    "(0, edge)",
    pair(
        lambda op, a: op("add", *(total(op, part(op, a, 0, at, at + 2), 0) for at in (1, 3))),
        lambda op, a: total(op, part(op, a, 0, 0, 5), 0),
        A8,
    ),
)
fault(
    "the length of a sum is not written",
    KEY + "form:Writer._written",
    'return f"{low}:{high}"',
    'return "all"',
    pair(
        lambda op, a: total(op, part(op, a, 0, 0, 4), 0),
        lambda op, a: total(op, a, 0),
        A8,
    ),
)
fault(
    "the length of a maximum is not written",
    KEY + "form:Writer._body",
    'f"{{{extents}}}',
    'f"',
    pair(
        lambda op, a: op("amax", part(op, a, 0, 0, 4), dims=(0,)),
        lambda op, a: op("amax", a, dims=(0,)),
        A8,
    ),
)
# index notation: functions


def square(op: Op, x: str) -> str:
    """Above 0 everywhere."""
    return op("add_scalar", op("mul", x, x), value=Fraction(1))


fault(
    "exp(a) exp(b) = exp(a)",
    KEY + "tidy:OneTerm._powers",
    "self.add(exponents) if len(exponents) > 1 else exponents[0]",
    "exponents[0]",
    pair(
        lambda op, a, b: op("mul", op("exp", a), op("exp", b)),
        lambda op, a, b: op("exp", a),
        V,
        V,
    ),
)
fault(
    "exp(a - log b) = b exp(a)",
    KEY + "signs:exponential",
    "base if power > 0 else inverse(base)",
    "base",
    pair(
        lambda op, a, b: op("exp", op("sub", a, op("log", square(op, b)))),
        lambda op, a, b: op("mul", op("exp", a), square(op, b)),
        V,
        V,
    ),
)
fault(
    "exp(a + 2 log b) = b exp(a)",
    KEY + "signs:exponential",
    "for _ in range(abs(power)):",
    "for _ in range(1):",
    pair(
        lambda op, a, b: op("exp", op("add", a, by(op, op("log", square(op, b)), 2))),
        lambda op, a, b: op("mul", op("exp", a), square(op, b)),
        V,
        V,
    ),
)
fault(
    "a sum is above 0 if one summand is",
    KEY + "signs:positive",
    "all(kind is not None for kind in kinds) and 1 in kinds",
    "1 in kinds",
    pair(
        lambda op, a: op("add_scalar", a, value=Fraction(1)),
        lambda op, a: op("exp", op("log", op("add_scalar", a, value=Fraction(1)))),
        V,
    ),
)
fault(
    "P (1/Q) = P",
    KEY + "signs:_like",
    "texts.index(text) if text in texts else None",
    "0",
    pair(
        lambda op, a, b: op("div", total(op, op("exp", a), 0), total(op, op("exp", b), 0)),
        lambda op, a, b: total(op, op("exp", a), 0),
        V,
        V,
    ),
)
fault(
    "a function is 0 where a mask does not hold",
    KEY + "functions:_by_cases",
    "return sums.add([out, sums.multiply(_not(sums, holds), other)])",
    "return out",
    pair(
        lambda op, a, b: op("exp", op("where", op("le", a, number(op, 0)), b, number(op, 0, 4))),
        lambda op, a, b: op("mul", holds(op, "le", a, number(op, 0)), op("exp", b)),
        V,
        V,
    ),
)
fault(
    "a function is 0 beyond the first part",
    KEY + "functions:apply",
    "for box in boxes:",
    "for box in boxes[:1]:",
    pair(
        lambda op, a, b: op("exp", op("concat", a, b, dim=0)),
        lambda op, a, b: op("pad", op("exp", a), dim=0, lo=0, hi=4),
        V,
        V,
    ),
)
fault(
    "a maximum loses a constant summand",
    KEY + "entries:_largest",
    "o.sums.add([top, fixed]) if fixed else top",
    "top",
    pair(
        lambda op, a, b: op("amax", op("add", a, op("reshape", b, shape=(4, 1))), dims=(1,)),
        lambda op, a, b: op("amax", a, dims=(1,)),
        A,
        V,
    ),
)
# equal keys
fault(
    "a multiple has the same key",
    KEY + "keys:Keys.same",
    "self.key(a) == self.key(b)",
    "self.key(a)[1] == self.key(b)[1]",
    pair(lambda op, a: by(op, a, 2), copy, V),
)


def chosen(op: Op, a: str, b: str) -> str:
    return op("where", op("gt", a, number(op, 0)), op("log", b), a)


def weighed(op: Op, a: str, b: str) -> str:
    """The same with both sides computed everywhere."""
    above, below = (holds(op, kind, a, number(op, 0)) for kind in ("gt", "le"))
    return op("add", op("mul", above, op("log", b)), op("mul", below, a))


fault(
    "equal keys are enough where a term may have no value",
    KEY + "keys:Keys.defined",
    "return all(map(self._taken, self.terms.open(id)))",
    "return True",
    pair(chosen, weighed, V, V),
)
fault(
    "a function of one device is taken of any number",
    KEY + "keys:Keys._taken",
    "self._flat(given) == self._flat(theirs)",
    "True",
    pair(
        lambda op, a, b, c: op("add", op("log", c), chosen(op, a, b)),
        lambda op, a, b, c: op("add", op("log", c), weighed(op, a, b)),
        V,
        V,
        V,
    ),
)
# relations
WALK = "provers.relate."
fault(
    "any output is equal to the one asked for",
    WALK + "rules:equal_otherwise",
    "keys.same(ref, want) or",
    "True or",
    pair(lambda op, a: op("exp", a), copy, V),
)
fault(
    "any term is the one asked for",
    WALK + "rules:_meets",
    "fact.ref == ref and fact.layout",
    "fact.layout",
)
fault(
    "any multiple is what is asked for",
    WALK + "rules:_meets",
    "fact.ref == ref",
    "fact.ref.id == ref.id",
)
fault(
    "a sum of copies is not scaled",
    WALK + "walk:_step",
    "times(ref.coef, option.scale)",
    "ref.coef",
)
fault(
    "every operand is a share of a pending sum",
    WALK + "rules:Rules.place",
    "self.mesh, zeros, known",
    "self.mesh, frozenset(range(len(layouts))), known",
)
fault(
    "facts about several terms are one",
    WALK + "joining:_alike",
    "if a.ref == b.ref else",
    "if a.layout == b.layout else",
    about="merge",
)
fault(
    "of the ranks' addends the first counts",
    WALK + "joining:_together",
    "for ref in refs]",
    "for ref in refs[:1]]",
    about="merge",
)
fault(
    "what a step changes is kept",
    WALK + "scans:_Induction._invariant",
    "r.ref == want and r.layout == fact.layout and within(fact.where, r.where)",
    "r.layout == fact.layout",
    about="scan",
)
fault(
    "n copies are shares of the value",
    WALK + "strategies:shares",
    "fact.ref.coef * mesh[name]",
    "fact.ref.coef",
)
fault(
    "like terms are recognised by shape",
    WALK + "recognition:known_as",
    "if not factor:",
    "if found is None and factor:\n        shape = one.terms.shape(ref)\n"
    "        alike = (r for r in one.named.values() if one.terms.shape(r) == shape)\n"
    "        found = next(alike, None)\n    if not factor:",
)
# runs on entries
ONE = "provers.scalars."
fault(
    "the first rank stands for all",
    ONE + "outputs:pairs",
    "for rank in asked:\n            yield",
    "for rank in asked[:1]:\n            yield",
)
fault(
    "one value of the integers stands for all",
    ONE + "cases:cases",
    "return out",
    "return out[:1]",
    pair(
        lambda op, a, i: op("mul", a, real(op, op("eq", op("take", a, i), op("take", a, i)))),
        lambda op, a, i: op("mul", a, real(op, op("eq", i, number(op, 0, dtype="i64")))),
        "f32 2",
        "i64 2",
    ),
)
# entries as polynomials
POLY, RING, AXIOM = (f"domains.{name}:" for name in ("polynomials", "monomials", "axioms"))
BANK = POLY + "Polynomials."
SAME = "checker.identities:"


ONCE = Fraction(1)


def under(op: Op, a: str) -> str:
    """An inverse of what is above 0."""
    return op("reciprocal", square(op, a))


def cleared(op: Op, a: str, b: str) -> str:
    """b and that inverse, times what is above 0."""
    return op("add_scalar", op("mul", b, square(op, a)), value=ONCE)


def of_square(op: Op, a: str) -> str:
    """What a bank has the inverse of the square for."""
    return op("gelu", op("reciprocal", op("mul", a, a)))


def least(op: Op, x: str, a: str) -> str:
    """What is 0 unless another is at most 0."""
    return op("mul", x, real(op, op("le", a, number(op, 0, 4))))


def lifted(op: Op, a: str) -> str:
    """A mask where a number is not above 0, and nothing elsewhere."""
    return by(op, op("add_scalar", real(op, positive(op, a)), value=-ONCE), 10**30)


def positive(op: Op, a: str) -> str:
    return op("gt", a, number(op, 0, 4))


for name, place, old, new, *pairs in (
    ("the power of a factor is the last", BANK + "joined", "powers[atom] += power",
     "powers[atom] = power",
     pair(lambda op, a: op("gelu", op("mul", a, a)), lambda op, a: op("gelu", a), V)),
    ("factors of the second operand are left out", BANK + "times", "c * d", "c",
     pair(lambda op, a: op("gelu", op("mul", by(op, a, 2), by(op, a, 3))),
          lambda op, a: op("gelu", op("mul", by(op, a, 2), a)), V)),
    ("functions with one initial are one entry", BANK + "atom", "key = name,", "key = name[:1],",
     pair(lambda op, a: op("gelu", a), lambda op, a: op("gelu_grad", a), V)),
    ("a number is no less than its negative", POLY + "_minus", "-1", "1",
     pair(lambda op, a: op("gelu", op("neg", a)), lambda op, a: op("gelu", a), V)),
    ("of a product of rows the second is not turned", BANK + "matmul",
     "slice(None), at[-1])]", "at[-1])]",
     pair(lambda op, a, b: op("gelu", op("mm", a, b)),
          lambda op, a, b: op("gelu", total(op, op("mul", op("reshape", a, shape=(4, 1, 4)),
                                                   op("reshape", b, shape=(1, 4, 4))), 2)), A, A)),
    ("a sum is its first entry", BANK + "sum", "_sum(rows[at])", "_sum(rows[at][:1])",
     pair(lambda op, a: op("gelu", total(op, a, 0)),
          lambda op, a: op("gelu", op("reshape", part(op, a, 0, 0, 1), shape=())), V)),
    ("the exponential of a multiple is that of the number", BANK + "_exponential",
     'self.atom("exp", of)', 'self.atom("exp", dict.fromkeys(of, 1))',
     pair(lambda op, a: op("gelu", op("exp", by(op, a, 2))),
          lambda op, a: op("gelu", op("exp", a)), V)),
    ("a power of what a logarithm is of is the number", BANK + "_exponential",
     "self._power(base, Fraction(coef))", "base",
     pair(lambda op, a: op("gelu", op("exp", by(op, op("log", a), 2))),
          lambda op, a: op("gelu", a), V)),
    ("every power is a square", BANK + "_power", "range(abs(int(exponent)))", "range(2)",
     pair(lambda op, a: op("gelu", op("pow", a, exponent=Fraction(3))),
          lambda op, a: op("gelu", op("mul", a, a)), V)),
    ("the reciprocal of a multiple is that of the number", BANK + "partly",
     "Entry({inverse: by}", "Entry({inverse: 1}",
     pair(lambda op, a: op("gelu", op("reciprocal", by(op, a, 2))),
          lambda op, a: op("gelu", op("reciprocal", a)), V)),
    ("the logarithm of a power is that of the number", BANK + "partly",
     "Entry(outer, x.needs)", "Entry(dict.fromkeys(outer, 1), x.needs)",
     pair(lambda op, a: op("gelu", op("log", op("exp", by(op, a, 2)))),
          lambda op, a: op("gelu", a), V)),
    ("at most is at least", BANK + "_compare", 'in ("gt", "le"):', 'in ("gt",):',
     pair(lambda op, a, b: real(op, op("le", op("gelu", a), b)),
          lambda op, a, b: real(op, op("ge", op("gelu", a), b)), V, V)),
    ("at least is less", BANK + "_compare", '"ne", "le", "ge"', '"ne", "le"',
     pair(lambda op, a, b: real(op, op("ge", op("gelu", a), b)),
          lambda op, a, b: real(op, op("lt", op("gelu", a), b)), V, V)),
    ("above 0 is below 0", BANK + "_truth", "abs(lead)", "lead",
     pair(lambda op, a: real(op, positive(op, op("gelu", a))),
          lambda op, a: real(op, positive(op, op("neg", op("gelu", a)))), V)),
    ("the largest number is the smallest", BANK + "_larger", "{max(", "{min(",
     pair(lambda op, a: op("maximum", op("maximum", op("gelu", a), number(op, 0, 4)),
                           number(op, 1, 4)),
          lambda op, a: op("maximum", op("gelu", a), number(op, 0, 4)), V)),
    ("a multiple of a maximum is one", BANK + "_operands", "coef == 1 and ", "",
     pair(lambda op, a, b: op("maximum", by(op, op("maximum", a, b), 2), op("gelu", a)),
          lambda op, a, b: op("maximum", op("maximum", a, b), op("gelu", a)), V, V)),
    ("what is not chosen is 0", BANK + "_chosen", "(Entry(made), Entry(y.terms))", "(Entry(made),)",
     pair(lambda op, a, b: op("where", positive(op, a), op("gelu", a), b),
          lambda op, a, b: op("where", positive(op, a), op("sub", op("gelu", a), b),
                              number(op, 0, 4)), V, V)),
    ("either holds where both do", BANK + "_joined", "both if name == \"and\" else either", "both",
     pair(lambda op, a, b: real(op, op("logical_or", positive(op, a), positive(op, op("gelu", b)))),
          lambda op, a, b: real(op, op("logical_and", positive(op, a),
                                       positive(op, op("gelu", b)))), V, V)),
    ("what does not hold holds", BANK + "_joined", "difference(number(1), *held)", "held[0]",
     pair(lambda op, a: real(op, op("logical_not", positive(op, op("gelu", a)))),
          lambda op, a: real(op, positive(op, op("gelu", a))), V)),
    ("a difference is a sum of definitions", POLY + "_Scalars.sub", "self.neg(b)", "b",
     pair(lambda op, a: op("gelu", op("expm1", a)),
          lambda op, a: op("gelu", op("add_scalar", op("exp", a), value=Fraction(1))), V)),
    ("every sum is above 0", BANK + "positive", "c > 0 and safe(m)", "safe(m)",
     pair(lambda op, a: op("gelu", a),
          lambda op, a: op("add", op("gelu", a), nothing(op, op("reciprocal", op("expm1", a)))),
          V)),
    ("what a second factor needs is forgotten", BANK + "product", "a.needs | b.needs", "a.needs",
     pair(lambda op, a: op("gelu", a),
          lambda op, a: op("add", op("gelu", a), nothing(op, op("mul", a, op("log", a)))), V)),
    ("a choice needs all that it may choose", BANK + "_choice",
     "frozenset[int]() if self.least else _needs(operands)", "_needs(operands)",
     pair(lambda op, a, b: op("where", positive(op, b), op("log", a), op("gelu", b)),
          lambda op, a, b: op("add", nothing(op, op("log", a)),
                              op("where", positive(op, b), op("log", a), op("gelu", b))), V, V)),
    ("an inverse is 1", AXIOM + "without", "range(most - times if inverse else times)", "range(0)",
     pair(lambda op, a: op("mul", op("gelu", a), op("reciprocal", a)),
          lambda op, a: op("gelu", a), V)),
    ("a root is the number", AXIOM + "ROOTS[sqrt]", "", (1, False),
     pair(lambda op, a: op("mul", op("gelu", a), op("sqrt", a)),
          lambda op, a: op("mul", op("gelu", a), a), V)),
    ("an inverse root is an inverse", AXIOM + "ROOTS[rsqrt]", "", (1, True),
     pair(lambda op, a: op("add", op("gelu", op("rsqrt", a)),
                           op("add", op("rsqrt", a), op("reciprocal", a))),
          lambda op, a: op("add", op("gelu", op("rsqrt", a)), by(op, op("rsqrt", a), 2)), V)),
    ("a difference is a sum", RING + "difference", "-coef", "coef",
     pair(lambda op, a: op("gelu", a), lambda op, a: op("neg", op("gelu", a)), V)),
    ("terms of one shape are multiples", RING + "ratio", "if len(by) == 1 else 0", "",
     pair(lambda op, a, b: op("add", op("log", op("add", a, by(op, b, 2))), op("gelu", b)),
          lambda op, a, b: op("where", op("gt", op("add", a, b), number(op, 0)),
                              op("add", op("log", op("add", a, by(op, b, 2))), op("gelu", b)),
                              number(op, 0)), "f32 1", "f32 1")),
    ("a square root is a number", BANK + "_rooted", "{mono: coef}, root", "{mono: 2 * coef}, root",
     pair(lambda op, a: op("gelu", op("mul", op("sqrt", a), op("sqrt", a))),
          lambda op, a: op("gelu", by(op, a, 2)), V)),
    ("what has any argument is above 0", BANK + "_sign",
     "all(self.positive(dict(a)) for a in args)", "True",
     pair(lambda op, a: op("gelu", op("reciprocal", a)),
          lambda op, a: op("add", op("gelu", op("reciprocal", a)),
                           nothing(op, op("log", op("reciprocal", a)))), V)),
    ("every reciprocal is of a number above 0", BANK + "_interned",
     'elif key[0] == "reciprocal" and self.positive(dict(*key[1])):',
     'elif key[0] == "reciprocal":',
     pair(lambda op, a, b: op("gelu", op("reciprocal", op("where", positive(op, b),
                                                           op("reciprocal", a), b))),
          lambda op, a, b: op("gelu", op("mul", a, op("reciprocal", op("where", positive(op, b),
              number(op, 1, 4), op("mul", a, b))))), V, V)),
    ("every small number is a mask", BANK + "_is_mask", "<= MASK", "< 0",
     pair(lambda op, a: op("gelu", op("exp", op("add_scalar", a, value=Fraction(-1)))),
          lambda op, a: op("gelu", number(op, 0, 4)), V)),
    ("what is weighted like a mask is small beside it", BANK + "_is_mask", "<= PLAIN", "<= 10**40",
     pair(lambda op, a: op("gelu", op("exp", op("add", a, lifted(op, a)))),
          lambda op, a: op("gelu", number(op, 0, 4)), V)),
    ("masks are the largest numbers", BANK + "_larger", "if not self._is_mask", "if self._is_mask",
     pair(lambda op, a: op("maximum", op("gelu", a), number(op, -10**30, 4)),
          lambda op, a: number(op, -10**30, 4), V)),
    ("a denominator of a reciprocal is left out", BANK + "_cleared",
     "self._power(below, Fraction(most))", "self._power(below, Fraction(0))",
     pair(lambda op, a, b: op("gelu", op("reciprocal", op("add", b, under(op, a)))),
          lambda op, a, b: op("gelu", op("reciprocal", cleared(op, a, b))), V, V)),
    ("a denominator of a logarithm is left out", BANK + "_cleared", "scaled(log.terms, -most)",
     "scaled(log.terms, 0)",
     pair(lambda op, a, b: op("gelu", op("log", op("add", b, under(op, a)))),
          lambda op, a, b: op("gelu", op("log", cleared(op, a, b))), V, V)),
    ("a quotient needs nothing", BANK + "_cleared", "under), x.needs))", "under)))",
     pair(lambda op, a, b: op("gelu", op("log", op("add", op("exp", b), under(op, a)))),
          lambda op, a, b: op("gelu", op("log", op("add", op("add", op("exp", b),
                              nothing(op, op("log", a))), under(op, a)))), V, V)),
    ("the inverse of a number is that of its square", BANK + "_taken",
     "Entry(of, before)", "Entry(number(1), before)",
     pair(lambda op, a: op("add", of_square(op, a), op("reciprocal", a)),
          lambda op, a: op("add", of_square(op, a), op("reciprocal", op("mul", a, a))), V)),
    ("the scale of a square is of no account", BANK + "_square",
     "{((found, 1),): by}", "{((found, 1),): 1}",
     pair(lambda op, a, b: op("add", of_square(op, op("add", a, b)),
                              by(op, op("add", a, b), 0)),
          lambda op, a, b: op("add", of_square(op, op("add", a, b)),
                              op("add_scalar", op("mul", op("add", a, b), by(op, op("reciprocal",
                                 op("add", a, b)), Fraction(1, 2))), value=-ONCE)), V, V)),
    ("a logarithm that is 0 needs nothing", BANK + "partly", "Entry(outer, x.needs)",
     "Entry(outer)",
     pair(lambda op, a, b: op("gelu", b),
          lambda op, a, b: op("add", op("gelu", b), op("log", op("add_scalar",
                              nothing(op, op("log", a)), value=ONCE))), V, V)),
    ("exp(x) exp(y) = exp(x - y)", BANK + "_exp_of_sum", "difference(x, scaled(y, -1))",
     "difference(x, y)",
     pair(lambda op, a, b: op("gelu", op("exp", op("sub", a, b))),
          lambda op, a, b: op("gelu", op("mul", op("exp", a), op("exp", b))), V, V)),
    ("the product of exponentials is 1", BANK + "_exp_of_sum", "if of else None",
     "if not of else None",
     pair(lambda op, a, b: op("gelu", a),
          lambda op, a, b: op("mul", op("gelu", a), op("mul", op("exp", a), op("exp", b))), V, V)),
    ("products of exponentials are known by one", BANK + "_exp_of_sum", "min(a, b), max(a, b)",
     "min(a, b), min(a, b)",
     pair(lambda op, a, b, c: op("add", op("mul", op("exp", a), op("exp", b)),
                                 op("mul", op("exp", a), op("exp", c))),
          lambda op, a, b, c: by(op, op("mul", op("exp", a), op("exp", b)), 2), V, V, V)),
    ("an exponential is the one that it is multiplied by", BANK + "joined",
     "atom if held is None else self._exp_of_sum(held, atom)", "atom",
     pair(lambda op, a, b: op("gelu", op("exp", b)),
          lambda op, a, b: op("gelu", op("mul", op("exp", a), op("exp", b))), V, V)),
    ("parts that no axiom changes are 0", AXIOM + "parts", "in found.values()",
     "in [p for p in found.values() if any(p)]",
     pair(lambda op, a: op("gelu", a), lambda op, a: op("tanh", a), V)),
    ("a part that is left out", AXIOM + "parts",
     "[tuple(f for f in mono if f[0] in changed)] = coef", "[()] = coef; found.popitem()",
     pair(lambda op, a: op("gelu", a), lambda op, a: op("tanh", a), V)),
    ("odd functions are even", BANK + "function", "_minus(made) if turned", "made if turned",
     pair(lambda op, a: op("gelu", op("tanh", by(op, a, -1))),
          lambda op, a: op("gelu", op("tanh", a)), V)),
    ("a comparison that is known needs nothing", POLY + "_plain", " or e.needs", "",
     pair(lambda op, a, b: op("gelu", b),
          lambda op, a, b: op("where", op("ge", nothing(op, op("log", a)), number(op, 0, 4)),
                              op("gelu", b), number(op, 0, 4)), V, V)),
    ("where a comparison fails it holds", AXIOM + "decided", "if value or rest == mono:", "if 1:",
     pair(lambda op, a: op("gelu", op("log", a)),
          lambda op, a: op("mul", op("gelu", op("log", a)),
                           real(op, op("lt", a, number(op, 0, 4)))), V)),
    ("a guard is of the sign that it is not", AXIOM + "guard", "(by < 0 and", "(by > 0 and",
     pair(lambda op, a: op("gelu", op("log", a)),
          lambda op, a: least(op, op("gelu", op("log", a)), a), V)),
    ("what is no 0 is above it", AXIOM + "guard",
     "and bank.positive(bank.argument(atom), strictly=False):", "or True:",
     pair(lambda op, a: op("gelu", op("reciprocal", a)),
          lambda op, a: op("mul", op("gelu", op("reciprocal", a)), real(op, positive(op, a))), V)),
    ("a guard that no function asks for", AXIOM + "Gap.allowed",
     "== DECIDED[axiom]", "in (None, DECIDED[axiom])",
     pair(lambda op, a: op("gelu", a),
          lambda op, a: op("mul", op("gelu", a), real(op, positive(op, a))), V)),
    ("no difference is a gap", SAME + "compared", "parts(bank, difference(a.terms, b.terms))",
     "()",
     pair(lambda op, a: op("gelu", a), lambda op, a: op("tanh", a), V)),
    ("ranks need what they like", SAME + "compared", "b.needs <= defined", "True",
     pair(lambda op, a: op("gelu", a),
          lambda op, a: op("add", op("gelu", a), nothing(op, op("log", a))), V)),
    ("the first of the entries stands for all", SAME + "compared", ".reshape(-1)",
     ".reshape(-1)[:1]",
     pair(lambda op, a: op("flip", a, dim=0),
          lambda op, a: op("concat", part(op, a, 0, 3, 4), part(op, a, 0, 0, 3), dim=0), V)),
):  # fmt: skip
    fault(name, place, old, new, *pairs)
# cross entropies
ENTROPY = "provers.cross_entropy:"
fault(
    "the logarithm of the sum is the sum",
    ENTROPY + "_Opening.lookup",
    'r.add("log", _bare(r, total))',
    "_bare(r, total)",
    opened=True,
)
fault(
    "the sum is added",
    ENTROPY + "_Opening.lookup",
    'opened = r.add("sub", picked, e)',
    'opened = r.add("add", picked, e)',
    opened=True,
)
fault(
    "a share is multiplied with the sum",
    ENTROPY + "_Opening.softmax_times",
    'r.add("div", masked',
    'r.add("mul", masked',
    opened=True,
)
# the refuter
REFUTE = "refute."
fault(
    "nothing is compared",
    REFUTE + "compare:differs",
    "for rank, want, have in pairs:",
    "for rank, want, have in []:",
)
fault(
    "everything is equal",
    REFUTE + "compare:_equal",
    "if not isinstance",
    "return True\n    if not isinstance",
)
fault(
    "every difference is rounding",
    REFUTE + "compare:compare",
    "sizes[k] > ROUNDING * changes[k]",
    "False",
)
fault(
    "no sample is in scope",
    REFUTE + "premises:Premises.met",
    "if not self.balanced:",
    "return None\n    if not self.balanced:",
)
fault(
    "every rank is given the first piece",
    REFUTE + "scatter:cut",
    "coords[a.mesh_dim] for a",
    "0 for a",
)
fault(
    "samples are zeros",
    REFUTE + "sampling:sample",
    "out[item.name] = rng.standard_normal(shape)",
    "out[item.name] = np.zeros(shape)",
)
fault("no sample is suspicious", REFUTE + "search:refute", "if not suspicious:", "if True:")
