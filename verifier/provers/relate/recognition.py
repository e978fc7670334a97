"""Which value of the one-device program a term is known to equal."""

from fractions import Fraction

from verifier.provers.canonical.rearranged import view
from verifier.provers.sequential import Sequential
from verifier.terms import Ref

MAX_VALUES = 4_000
"""Programs of more values are not searched for one that a term equals."""


def known_as(one: Sequential, ref: Ref) -> Ref:
    """The value of the program that a term is known to equal, or the term itself.

    A term that may have no value where the outputs of one device have theirs equals none.
    """
    if ref.id in one.known or not ref.coef or len(one.values) > MAX_VALUES:
        return ref
    if one.terms.loose(ref.id):
        return ref
    place = view(one.terms, ref.id)
    if one.named is None:
        one.named, one.viewed = {}, {}
        for known in one.values.values():
            if one.terms.loose(known.id):
                continue
            one.viewed.setdefault((one.terms.shape(known), view(one.terms, known.id)), known.id)
            factor, key = one.keys.key(known)
            if factor:
                one.named.setdefault(key, Ref(known.coef / factor, known.id))
    same = one.viewed.get((one.terms.shape(ref), place))
    if same is not None:
        return Ref(ref.coef, same)
    if place[0] != ref.id and place[0] in one.keys.costly:
        return ref
    factor, key = one.keys.key(ref)
    found = one.named.get(key)
    if not factor:
        return one.terms.full(one.terms.shape(ref), Fraction(0))
    return Ref(factor * found.coef, found.id) if found is not None else ref
