"""Lemmas for all sizes, proved by Z3: the arithmetic under the placement rules.

A rule is checked on samples by `tests.laws.laws`; what makes it true at every size is stated here,
with the rules that rest on it. Inductions are stated as their step.
"""

# ruff: noqa: SIM300  (bounds read in order)

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shardproof.verifier.smt import solver as smt
from shardproof.verifier.smt.index_maps import step
from shardproof.verifier.smt.solver import Answer, Term, conj, disj, implies, integers, negation


@dataclass(frozen=True, slots=True)
class Lemma:
    name: str
    says: str
    rests: str
    """The rules that rest on it."""
    prove: Callable[[], Answer]
    satisfiable: Callable[[], Answer]
    """Whether the premises have a model: premises without one prove anything."""


LEMMAS: dict[str, Lemma] = {}
Statement = tuple[list[Term], Term]
"""Premises and conclusion."""


def lemma(rests: str) -> Callable[[Callable[[], Statement]], Lemma]:
    """Declare a lemma; the first line of the docstring says what it states."""

    def declare(body: Callable[[], Statement]) -> Lemma:
        def prove() -> Answer:
            premises, conclusion = body()
            return smt.prove(conclusion, premises)

        def satisfiable() -> Answer:
            solver = smt.Solver()
            solver.assume(*body()[0])
            return solver.consistent()

        name = body.__name__.strip("_").replace("_", "-")
        says = (body.__doc__ or "").strip().splitlines()[0]
        made = Lemma(name, says, rests, prove, satisfiable)
        LEMMAS[name] = made
        return made

    return declare


def _within(*pairs: tuple[Term, Term]) -> list[Term]:
    """0 <= digit < size for each pair, and sizes of at least 1."""
    return [fact for digit, size in pairs for fact in (0 <= digit, digit < size)]


def quotient(x: Term, n: Term, q: Term, r: Term) -> Term:
    """`x = q n + r` with `0 <= r < n`: the definition of floor division for n > 0."""
    return conj(x == q * n + r, 0 <= r, r < n)


@lemma("reshape, all layouts")
def _a_step_is_a_whole_row() -> Statement:
    """q > p gives q n >= p n + n: rows do not overlap."""
    q, p, n = integers("q p n")
    return [n > 0, q > p], q * n >= p * n + n


@lemma("reshape, all layouts")
def _digits_of_an_index_are_unique() -> Statement:
    """An index has one digit pair (q, r) over an inner extent n: atoms name each element once."""
    q, r, p, s, n = integers("q r p s n")
    premises = [*_within((r, n), (s, n)), q * n + r == p * n + s]
    return [*premises, step(q, p, n), step(p, q, n)], conj(q == p, r == s)


@lemma("reshape")
def _regrouping_three_digits_keeps_the_index() -> Statement:
    """((a n + b) m + c) = a (n m) + (b m + c): row-major order does not see groups of atoms."""
    a, b, c, n, m = integers("a b c n m")
    premises = _within((b, n), (c, m))
    return premises, (a * n + b) * m + c == a * (n * m) + (b * m + c)


@lemma("reshape")
def _a_merged_digit_stays_in_range() -> Statement:
    """b m + c lies in [0, n m) where b < n and c < m: merging two atoms gives an atom."""
    b, c, n, m = integers("b c n m")
    premises = [*_within((b, n), (c, m)), step(n, b, m), step(b, smt.whole(-1), m)]
    return premises, conj(0 <= b * m + c, b * m + c < n * m)


@lemma("take, take_along, index_add, put_along")
def _exactly_one_window_holds_an_index() -> Statement:
    """Index v of rows [0, n k) lies in the window [r k, r k + k) of exactly one rank r < n."""
    v, n, k, q, s, r = integers("v n k q s r")
    premises = [k > 0, n > 0, 0 <= v, v < n * k, quotient(v, k, q, s)]
    premises += [*_within((r, n)), step(r, q, k), step(q, r, k)]
    premises += [step(q, n - 1, k), step(smt.whole(0), q, k)]
    inside = conj(0 <= v - r * k, v - r * k < k)
    return premises, conj(inside == (r == q), 0 <= q, q < n)


@lemma("take, take_along, index_add, put_along")
def _no_window_holds_a_foreign_index() -> Statement:
    """An index outside [0, n k) lies in no rank's window: all give zero, as the whole op does."""
    v, n, k, r = integers("v n k r")
    premises = [k > 0, *_within((r, n)), disj(v < 0, v >= n * k)]
    premises += [step(r, smt.whole(-1), k), step(n, r, k)]
    return premises, negation(conj(0 <= v - r * k, v - r * k < k))


@lemma("take, take_along with rows split: the result is a pending sum")
def _a_sum_with_one_term_is_that_term() -> Statement:
    """Adding ranks that give zero leaves the sum unchanged (step of the induction over ranks)."""
    total = smt.function("total", "int", "real")
    share = smt.function("share", "int", "real")
    r, q = integers("r q")
    value = smt.real("value")
    premises = [
        total(r + 1) == total(r) + share(r),
        share(r) == smt.when(r == q, value, smt.rational(Fraction(0))),
        total(r) == smt.when(r > q, value, smt.rational(Fraction(0))),
    ]
    return premises, total(r + 1) == smt.when(r + 1 > q, value, smt.rational(Fraction(0)))


@lemma("mm, bmm, sum: a split contracted factor leaves a pending sum")
def _a_sum_splits_into_blocks() -> Statement:
    """With S(i) the sum below i, block r sums to S(r k + k) - S(r k); blocks telescope (step)."""
    prefix = smt.function("prefix", "int", "real")
    blocks = smt.function("blocks", "int", "real")
    r, k = integers("r k")
    premises = [
        k > 0,
        r >= 0,
        blocks(r) == prefix(r * k) - prefix(0),
        blocks(r + 1) == blocks(r) + (prefix((r + 1) * k) - prefix(r * k)),
    ]
    return premises, blocks(r + 1) == prefix((r + 1) * k) - prefix(0)


@lemma("amax: a split reduced dim leaves a pending max")
def _a_maximum_splits_into_blocks() -> Statement:
    """The larger of two block maxima is the maximum of both blocks."""
    x = smt.function("x", "int", "real")
    i, a, b, c = integers("i a b c")
    low, high, top = smt.real("low"), smt.real("high"), smt.real("top")

    def is_max(m: Term, start: Term, stop: Term, name: str) -> Term:
        j, at = integers(f"j at_{name}")
        inside = conj(start <= j, j < stop)
        return conj(smt.forall([j], implies(inside, x(j) <= m)), start <= at, at < stop, x(at) == m)

    premises = [a < b, b < c, is_max(low, a, b, "low"), is_max(high, b, c, "high")]
    premises += [top == smt.when(low >= high, low, high), a <= i, i < c]
    hit = integers("at_low at_high")
    return premises, conj(x(i) <= top, disj(*(x(h) == top for h in hit)))


@lemma("all_gather, shard_slice, reduce_scatter, all_to_all")
def _chunk_then_gather_is_the_identity() -> Statement:
    """Chunk r holds entries r k + j at j; joining chunks in rank order puts entry i back at i."""
    i, k, n, r, j = integers("i k n r j")
    premises = [k > 0, n > 0, 0 <= i, i < n * k, quotient(i, k, r, j)]
    premises += [step(smt.whole(0), r, k), step(r, n - 1, k)]
    return premises, conj(r * k + j == i, 0 <= r, r < n, 0 <= j, j < k)


@lemma("slice and pad of a dim split below its first atom; concat of split operands")
def _whole_blocks_of_a_split_dim_stay_blocks() -> Statement:
    """Dropping s leading blocks from [c, n@r, k] drops s k entries locally and s n k globally."""
    a, r, j, s, n, k = integers("a r j s n k")
    premises = [*_within((r, n), (j, k)), 0 <= s, s <= a]
    whole = (a * n + r) * k + j
    local = a * k + j
    moved = ((a - s) * n + r) * k + j
    return premises, conj(moved == whole - s * (n * k), (a - s) * k + j == local - s * k)


@lemma("iota with an affine offset")
def _a_ramp_of_a_shard_is_the_whole_ramp() -> Statement:
    """offset + r k + j is offset + the global index of local entry j of rank r."""
    offset, r, k, j, n = integers("offset r k j n")
    premises = [*_within((r, n), (j, k))]
    return premises, (offset + r * k) + j == offset + (r * k + j)


@lemma("dropout_mask with strides and an affine offset")
def _a_step_along_any_digit_moves_the_element_index_alike() -> Statement:
    """offset + r (k s) + j s is offset + s times the index of local entry j of rank r."""
    offset, r, k, j, n, s = integers("offset r k j n s")
    premises = [*_within((r, n), (j, k))]
    return premises, (offset + r * (k * s)) + j * s == offset + s * (r * k + j)


@lemma("all_reduce and reduce_scatter of a replicated value: scale n")
def _a_sum_of_equal_values_is_n_times_the_value() -> Statement:
    """Adding one more equal value to r of them gives r + 1 times the value (step)."""
    total = smt.function("total", "int", "real")
    r = smt.integer("r")
    count = smt.function("count", "int", "real")
    x = smt.real("x")
    premises = [
        total(r) == count(r) * x,
        total(r + 1) == total(r) + x,
        count(r + 1) == count(r) + 1,
    ]
    return premises, total(r + 1) == count(r + 1) * x


@lemma("on_coord; zeros as a share of any pending sum")
def _one_rank_and_zeros_sum_to_the_value() -> Statement:
    """x on one rank and zero on the others sum to x (step)."""
    total = smt.function("total", "int", "real")
    r, index = integers("r index")
    x, zero = smt.real("x"), smt.rational(Fraction(0))
    premises = [
        total(r) == smt.when(r > index, x, zero),
        total(r + 1) == total(r) + smt.when(r == index, x, zero),
    ]
    return premises, total(r + 1) == smt.when(r + 1 > index, x, zero)


@lemma("map ops linear in some operands; mm, bmm with one pending operand")
def _a_linear_map_passes_a_pending_sum() -> Statement:
    """For additive f: if f of a partial sum is the sum of f, so it is with one more (step)."""
    f = smt.function("f", "real", "real")
    x, y = smt.real("x"), smt.real("y")
    done = smt.real("done")
    return [f(x + y) == f(x) + f(y), done == f(x)], done + f(y) == f(x + y)


@lemma("maximum and cast of a pending max")
def _a_maximum_with_a_replicated_value_passes() -> Statement:
    """max(max(x, b), max(y, b)) = max(max(x, y), b)."""
    x, y, b = (smt.real(n) for n in "xyb")

    def larger(p: Term, q: Term) -> Term:
        return smt.when(p >= q, p, q)

    return [], larger(larger(x, b), larger(y, b)) == larger(larger(x, y), b)


@lemma("index_add with a split index: the result is a pending sum")
def _a_masked_sum_splits_over_ranks() -> Statement:
    """Masked prefix sums telescope over blocks of the index like plain ones (step)."""
    masked = smt.function("masked", "int", "int", "real")
    blocks = smt.function("blocks", "int", "int", "real")
    r, k, v = integers("r k v")
    premises = [
        k > 0,
        blocks(r, v) == masked(r * k, v) - masked(0, v),
        blocks(r + 1, v) == blocks(r, v) + (masked((r + 1) * k, v) - masked(r * k, v)),
    ]
    return premises, blocks(r + 1, v) == masked((r + 1) * k, v) - masked(0, v)


@lemma("strided shards: fused weights, grouped heads")
def _a_split_of_an_inner_atom_is_a_bijection() -> Statement:
    """Index (a n + r) k + j determines a, r and j: ranks of [c, n@r, k] hold every entry once."""
    a, r, j, b, s, i, n, k = integers("a r j b s i n k")
    u, w = integers("u w")
    premises = [*_within((r, n), (s, n), (j, k), (i, k)), u == a * n + r, w == b * n + s]
    premises += [u * k + j == w * k + i]
    for x, y, size in ((u, w, k), (a, b, n)):
        premises += [step(x, y, size), step(y, x, size)]
    return premises, conj(a == b, r == s, j == i)
