"""Entries of lookups: sums over all rows, of which an indicator leaves one."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from shardproof.verifier.provers.canonical.form import Index, Poly
from shardproof.verifier.provers.canonical.functions import apply
from shardproof.verifier.terms import Ref, Term

if TYPE_CHECKING:
    from shardproof.verifier.provers.canonical.keys import Opened, Places


def integers(term: Term) -> tuple[int, ...]:
    """The attributes of a term that has integers alone."""
    return tuple(int(value) for value in term.attrs)


def _hot(o: Opened, index: Ref, at: Places, offset: Any, row: Index) -> Poly:
    """1 where an integer less the offset is a row, else 0."""
    value = o.sums.add([o.entry(index, at), o.sums.constant(Fraction(-offset))])
    return apply(o.sums, ("hot",), [value], (row,))


def take(o: Opened, term: Term, at: Places) -> Poly:
    """Rows of a tensor at places that another one holds."""
    x, index = term.args
    dim, offset = integers(term)
    rank = len(o.terms.shape(index))
    row = o.space.place(o.terms.shape(x)[dim])
    hot = _hot(o, index, at[dim : dim + rank], offset, row)
    entry = o.entry(x, (*at[:dim], row, *at[dim + rank :]))
    return o.sums.summed(o.sums.multiply(entry, hot), [v for v, _ in row.steps])


def take_along(o: Opened, term: Term, at: Places) -> Poly:
    """Entries along one dim, at places of the same rank."""
    x, index = term.args
    dim, offset = integers(term)
    row = o.space.place(o.terms.shape(x)[dim])
    hot = _hot(o, index, at, offset, row)
    entry = o.entry(x, (*at[:dim], row, *at[dim + 1 :]))
    return o.sums.summed(o.sums.multiply(entry, hot), [v for v, _ in row.steps])


def index_add(o: Opened, term: Term, at: Places) -> Poly:
    """Rows added where another tensor says."""
    g, index = term.args
    (offset,) = integers(term)
    source = tuple(o.space.place(n) for n in o.terms.shape(index))
    hot = _hot(o, index, source, offset, at[0])
    entry = o.entry(g, (*source, *at[1:]))
    return o.sums.summed(o.sums.multiply(entry, hot), [v for p in source for v, _ in p.steps])


def put_along(o: Opened, term: Term, at: Places) -> Poly:
    """Entries put along one dim where another tensor says."""
    g, index = term.args
    dim, offset = integers(term)
    line = o.space.place(o.terms.shape(g)[dim])
    source = (*at[:dim], line, *at[dim + 1 :])
    hot = _hot(o, index, source, offset, at[dim])
    return o.sums.summed(o.sums.multiply(o.entry(g, source), hot), [v for v, _ in line.steps])
