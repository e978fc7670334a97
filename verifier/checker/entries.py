"""Entries that must be equal, on other numbers than those on which they were compared.

In random prime fields, where programs are rational functions: two that are not equal agree there
with a probability of degree / 2^60 a field. And on whatever numbers a solver has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from shardproof.verifier.checker.certificate import Prepared
from shardproof.verifier.domains.base import Array, Symbols, is_index
from shardproof.verifier.domains.rational import NotRationalError, Rational, primes
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import live
from shardproof.verifier.provers.scalars.answers import Undecided
from shardproof.verifier.provers.scalars.cases import MAX_CASES, cases
from shardproof.verifier.provers.scalars.outputs import all_ranks, pairs
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.refute.sampling import sample

if TYPE_CHECKING:
    from shardproof.verifier.smt.answers import Answers

FIELDS = 3
"""Prime fields in which rational programs are evaluated."""


class ReplayError(ValueError):
    """A certificate that does not stand: what, expected, got."""


def in_fields(given: Prepared) -> str:
    """What evaluation in prime fields adds to a comparison: empty where an op is not rational.

    Raises:
        ReplayError: rational programs that differ.
    """
    p, rng = given.problem, np.random.default_rng(0)
    try:
        for prime in primes("".join(given.digests), FIELDS):
            domain = Rational(prime)
            drawn = sample(p.sequential, domain, rng, {})
            floats = [i for i in p.sequential.inputs if i.type.is_float]
            drawn |= {i.name: domain.random(i.type.shape, rng) for i in floats}
            values = evaluate(p.sequential, drawn, domain)
            ranks = all_ranks(p.sequential, p.distributed, p.contract, drawn, domain)
            for out in p.sequential.outputs:
                key, whole = output_key(out), values[out.value]
                both = pairs(key, p.contract, p.distributed, whole, ranks, domain)
                if not all(np.array_equal(a, b) for _, a, b in both):
                    raise ReplayError(f"{key} is another rational function, modulo {prime}")
    except NotRationalError:
        return ""
    return f"; as rational functions in {FIELDS} prime fields too"


def sides(given: Prepared, domain: Symbols) -> Iterator[tuple[Array, Array]]:
    """What must be equal, on one device and on ranks, over all values of the integer inputs."""
    p = given.problem
    one, many = live(p.sequential), live(p.distributed)
    tried = cases(one, many, {}, MAX_CASES)
    for case in [] if isinstance(tried, Undecided) else tried:
        wholes = {i.name: domain.symbols(i.name, i.type.shape) for i in one.inputs} | case
        values = evaluate(one, wholes, domain)
        ranks = all_ranks(one, many, p.contract, wholes, domain)
        for out in one.outputs:
            key, whole = output_key(out), values[out.value]
            for _, want, have in pairs(key, p.contract, many, whole, ranks, domain):
                if not (is_index(want) and is_index(have)):
                    yield domain.lift(want), domain.lift(have)


def shown(given: Prepared, discharge: Answers) -> tuple[str, str]:
    """What Z3 refutes, and how much of the entries it shows."""
    tried = discharge.entries(given.about, lambda domain: sides(given, domain))
    if not tried.forms:
        return tried.wrong, "for Z3 the two sides of each are one term"
    return tried.wrong, f"Z3 shows {tried.counts['shown']} of {tried.forms} distinct identities"
