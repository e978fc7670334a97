"""Which terms have a value wherever the outputs of the one-device program have one.

A rank that computes `log(x) - log(x)` computes nothing where x is negative: it is not 0. So what
may have no value is never dropped from a term, whatever factor it is left with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from verifier.needed import STRICT
from verifier.ops.registry import ONE
from verifier.terms.refs import Ref, Term

Sign = int | None
"""1: positive, 0: not negative, None: not known."""
LEAST = {"reciprocal": 1, "log": 1, "rsqrt": 1, "pow": 1, "sqrt": 0, "log1p": 0}
"""Functions without a value everywhere: the sign of the arguments for which they have one."""
POSITIVE = frozenset({"exp", "sigmoid", "softplus", "rsqrt"})
NOT_NEGATIVE = frozenset({"abs", "sqrt", "relu"})
KEEPING = frozenset(
    {"expand", "reshape", "permute", "slice", "flip", "sum", "amax", "concat"}
    | {"prod", "minimum", "where", "reciprocal"}
)
"""Ops whose entries have the least sign of the operands."""
WITH_ZEROS = frozenset({"cast", "matmul", "pad", "take", "take_along", "index_add", "put_along"})
FIRST_ONLY = frozenset({"take", "take_along", "index_add", "put_along"})
"""Ops whose other operands are indices."""


class Defined:
    """What is known of the entries of terms, in the order in which these were made."""

    def __init__(self) -> None:
        self.signs: list[Sign] = []
        self.loose: list[bool] = []
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
            inner = any(self.loose[a.id] for a in term.args)
            loose = at not in needed and (inner or _partial(term, signs))
            if loose and not inner and term.args[0].coef > 0 and self.above(term.args[0].id):
                loose = False
            self.loose.append(loose)
        return self.loose[id]

    def _of(self, ref: Ref) -> Sign:
        if ref.coef == 0:
            return 0
        return self.signs[ref.id] if ref.coef > 0 else None


def uses_all(term: Term) -> bool:
    """Whether every entry of every operand is used for a result that is not empty."""
    return term.op in STRICT or term.op in ("lin", "prod", "matmul")


def _partial(term: Term, signs: list[Sign]) -> bool:
    """Whether a function is taken of what may be outside of where it has values."""
    least = LEAST.get(term.op)
    if least is None or (term.op == "pow" and term.attrs[0] == abs(int(term.attrs[0]))):
        return False
    (sign,) = signs
    return sign is None or sign < least


def _sign(term: Term, signs: list[Sign]) -> Sign:
    """The sign of every entry, from those of the operands."""
    op = term.op
    if op == "ones" or op in POSITIVE:
        return 1
    if op in NOT_NEGATIVE or (op == "addend" and term.attrs[-1]):
        return 0
    if op == "prod":
        even = [power % 2 == 0 for power in term.attrs]
        signs = [0 if e and s is None else s for e, s in zip(even, signs, strict=True)]
    if op == "maximum":
        return max((s for s in signs if s is not None), default=None)
    if op in FIRST_ONLY:
        signs = signs[:1]
    if op == "where":
        signs = signs[1:]
    known = [s for s in signs if s is not None]
    if not known or len(known) < len(signs):
        return None
    if op == "lin":
        return max(known)
    if op in KEEPING:
        return min(known)
    return 0 if op in WITH_ZEROS else None


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
