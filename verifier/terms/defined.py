"""Which terms have a value wherever the outputs of the one-device program have one.

A rank that computes `log(x) - log(x)` computes nothing where x is negative: it is not 0. So what
may have no value is never dropped from a term, whatever factor it is left with.
"""

from collections.abc import Callable, Sequence, Set
from fractions import Fraction
from typing import Literal

from shardproof.verifier.kernel.program.registry import ONE, REGISTRY, traits
from shardproof.verifier.terms.refs import Ref, Term

Sign = int | None
"""1: positive, 0: not negative, None: not known."""
LEAST: dict[str, Literal[0, 1]] = {"positive": 1, "not zero": 1, "not negative": 0, "above -1": 0}
"""The sign with which an operand is surely as it must be."""


Open = frozenset[tuple[int, bool]]
"""Functions in a term that may have no value, by the ids of their terms, each with whether the
entries of the term stand, as broadcasting has them, where those of the function do."""
NONE: Open = frozenset()
MANY: Open = frozenset({(-1, False)})
MAX_OPEN = 16


class Defined:
    """What is known of the entries of terms, in the order in which these were made."""

    def __init__(self) -> None:
        self.signs: list[Sign] = []
        self.open: list[Open] = []
        self.above: Callable[[int], bool] = lambda id: False
        """Says of further terms that every entry is above 0."""

    def read(self, nodes: Sequence[Term], needed: Set[int], id: int) -> bool:
        """Whether an entry of a term may have no value though the `needed` terms have all."""
        for at in range(len(self.signs), id + 1):
            term = nodes[at]
            signs = [self._of(a) for a in term.args]
            empty = any(0 in nodes[a.id].shape for a in term.args)
            sign = 0 if rest_of_parts(nodes, term) else _sign(term, signs)
            self.signs.append(0 if empty and sign == 1 else sign)
            self.open.append(NONE if at in needed else self._opened(nodes, at, signs))
        return bool(self.open[id])

    def _of(self, ref: Ref) -> Sign:
        if ref.coef == 0:
            return 0
        return self.signs[ref.id] if ref.coef > 0 else None

    def _opened(self, nodes: Sequence[Term], id: int, signs: list[Sign]) -> Open:
        term = nodes[id]
        given = [self.open[a.id] for a in term.args]
        if term.op == "where":
            for branch, holds in ((1, True), (2, False)):
                given[branch] = frozenset(
                    (at, placed)
                    for at, placed in given[branch]
                    if not (placed and _guards(nodes, term.args[0], holds, nodes[at]))
                )
        found = NONE.union(*given)
        if not _by_entry(term):
            found = frozenset((at, False) for at, _ in found)
        if _partial(term, signs):
            (arg,) = term.args
            if found or arg.coef <= 0 or not self.above(arg.id):
                found |= {(id, True)}
        return found if len(found) <= MAX_OPEN else MANY


def _by_entry(term: Term) -> bool:
    """Whether an entry is made of the entries that stand at its place."""
    if term.op in ("lin", "prod", "expand"):
        return True
    op = REGISTRY.get(term.op)
    return op is not None and op.kind == "map"


def _guards(nodes: Sequence[Term], cond: Ref, holds: bool, function: Term) -> bool:
    """Whether a function has a value where a comparison holds, or where it does not."""
    term, (arg,) = nodes[cond.id], function.args
    least = LEAST[traits(function.op).needs]
    if cond.coef != 1 or term.op not in ("lt", "le", "eq", "ne"):
        return False
    left, right = term.args
    if term.op in ("eq", "ne"):
        other = left if right.coef == 0 else right
        zero = left.coef == 0 or right.coef == 0
        differs = (term.op == "ne") == holds and zero and other.id == arg.id and other.coef
        return bool(differs and function.op == "reciprocal")
    small, large = (left, right) if holds else (right, left)
    if large.id != arg.id or large.coef <= 0 or arg.coef <= 0:
        return False
    strict = (term.op == "lt") == holds
    number = small.coef if nodes[small.id].op == "ones" or not small.coef else Fraction(-1)
    return number > 0 or (number == 0 and (strict or least == 0))


def uses_all(term: Term) -> bool:
    """Whether every entry of every operand is used for a result that is not empty."""
    return traits(term.op).strict or term.op in ("lin", "prod", "matmul")


def _partial(term: Term, signs: list[Sign]) -> bool:
    """Whether a function is taken of what may be outside of where it has values."""
    least = LEAST.get(traits(term.op).needs)
    if least is None or (term.op == "pow" and term.attrs[0] == abs(int(term.attrs[0]))):
        return False
    (sign,) = signs
    return sign is None or sign < least


def _sign(term: Term, signs: list[Sign]) -> Sign:
    """The sign of every entry, from those of the operands."""
    op, known = term.op, traits(term.op)
    if op == "ones":
        return 1
    if known.sign is not None:
        return 1 if known.keeps == 1 and all(s == 1 for s in signs) else known.sign
    if op == "ramp" or (op == "addend" and term.attrs[-1]):
        return 0
    if op == "prod":
        even = [power % 2 == 0 for power in term.attrs]
        signs = [0 if e and s is None else s for e, s in zip(even, signs, strict=True)]
    if op == "maximum":
        return max((s for s in signs if s is not None), default=None)
    if known.index is not None:
        signs = signs[: known.index]
    if op == "where":
        signs = signs[1:]
    if not signs or any(s is None for s in signs):
        return None
    least, most = min(s for s in signs if s is not None), max(s for s in signs if s is not None)
    if op == "lin":
        return most
    if op == "prod":
        return least
    return 0 if op == "matmul" or known.keeps == 0 else least if known.keeps == 1 else None


def rest_of_parts(nodes: Sequence[Term], term: Term) -> bool:
    """Whether a term is a sum of which some addends were taken away, none of them negative."""
    if term.op != "lin":
        return False
    parts = [a for a in term.args if nodes[a.id].op == "addend"]
    rest = [a for a in term.args if a not in parts]
    if len(rest) != 1 or not parts or any(a.coef != parts[0].coef for a in parts):
        return False
    kinds = [nodes[a.id].attrs for a in parts]
    alike = {(*k[:2], *k[3:]) for k in kinds}
    (whole,), by, first = rest, -parts[0].coef, kinds[0]
    same = all(nodes[a.id].args == (Ref(ONE, whole.id),) for a in parts)
    summed = dict(first[3].partial)[first[1]] == "sum"
    return (
        same and summed and len(alike) == 1 and first[-1] and whole.coef == by * first[5] and by > 0
    )
