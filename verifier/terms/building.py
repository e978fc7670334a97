"""Which term an op is on whole operands. An op that is not named here is a term of itself."""

from fractions import Fraction

from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.terms import arithmetic, indexing, parts, rows
from shardproof.verifier.terms.refs import Build, Ref

BUILD: dict[str, Build] = {
    "neg": lambda t, a, k, d: Ref(-a[0].coef, a[0].id),
    "mul_scalar": lambda t, a, k, d: t.combine([(Fraction(k["value"]), a[0])]),
    "add_scalar": lambda t, a, k, d: t.combine(
        [(ONE, a[0]), (Fraction(k["value"]), t.ones(t.shape(a[0])))]
    ),
    "add": lambda t, a, k, d: t.combine([(ONE, a[0]), (ONE, a[1])]),
    "sub": lambda t, a, k, d: t.combine([(ONE, a[0]), (-ONE, a[1])]),
    "mul": lambda t, a, k, d: t.product(a),
    "div": lambda t, a, k, d: t.product([a[0], t.reciprocal(a[1])]),
    "reciprocal": lambda t, a, k, d: t.reciprocal(a[0]),
    "pow": arithmetic.power,
    "cast": arithmetic.cast,
    "where": arithmetic.where,
    "gt": arithmetic.flipped("lt"),
    "ge": arithmetic.flipped("le"),
    "mm": arithmetic.matmul,
    "bmm": arithmetic.matmul,
    "reshape": lambda t, a, k, d: t.reshape(a[0], tuple(k["shape"])),
    "permute": lambda t, a, k, d: t.permute(a[0], tuple(k["dims"])),
    "expand": lambda t, a, k, d: t.expand(a[0], tuple(k["shape"])),
    "slice": parts.sliced,
    "concat": parts.concat,
    "pad": parts.pad,
    "index_add": indexing.index_add,
    "put_along": indexing.put_along,
    "full": lambda t, a, k, d: t.full(tuple(k["shape"]), Fraction(k["value"])),
    "iota": indexing.iota,
    "dropout_mask": rows.dropout_mask,
    "round_to": rows.round_to,
}
