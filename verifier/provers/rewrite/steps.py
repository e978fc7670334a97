"""Steps from one term to an equal one, as a certificate holds them: each is a law at one term.

Nothing is searched for here: a step says which law, and at which term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from verifier.kernel.program.registry import REGISTRY
from verifier.provers.rewrite.blocks import elementwise, matmul, rebuilt, scaled
from verifier.provers.rewrite.laws import LAWS
from verifier.terms import ONE, Ref, Term, Terms

OPERANDS = "operands"
"""The law that the same op on operands that earlier steps made equal gives equal results."""
_SLICE = ("dim", "start", "stop", "step")

Path = tuple[int, ...]
"""Where a term stands: 0 for the first of two terms, 1 for the second, n + 2 for what step n gave;
then numbers of operands, from there inwards."""


@dataclass(frozen=True, slots=True)
class Step:
    """One equality: `before`, a term, equals `after`."""

    law: str
    """The name of a law, or `operands`."""
    before: int
    after: Ref


def written(terms: Terms, a: Ref, b: Ref, steps: Sequence[Step]) -> list[tuple[str, Path]]:
    """The laws of the steps, and where the terms stand that they were applied to."""
    known: dict[int, Path] = {}

    def name(id: int, path: Path) -> None:
        todo = [(id, path)]
        while todo:
            id, path = todo.pop()
            if id not in known:
                known[id] = path
                todo += [(x.id, (*path, i)) for i, x in enumerate(terms[id].args)]

    name(a.id, (0,))
    name(b.id, (1,))
    out: list[tuple[str, Path]] = []
    for number, step in enumerate(steps):
        out.append((step.law, known[step.before]))
        name(step.after.id, (number + 2,))
    return out


def follow(terms: Terms, a: Ref, b: Ref, steps: Sequence[tuple[str, Path]]) -> str:
    """Empty where every step follows and they take `a` and `b` to one term; else what is wrong."""
    equal: dict[int, Ref] = {}
    roots = [a.id, b.id]

    def resolved(ref: Ref) -> Ref:
        seen: set[int] = set()
        while ref.id in equal and ref.id not in seen:
            seen.add(ref.id)
            ref = scaled(equal[ref.id], ref.coef)
        return ref

    if terms.shape(a) != terms.shape(b):
        return "the shapes differ"
    for number, (law, path) in enumerate(steps):
        id = _at(terms, roots, path)
        if id is None:
            return f"step {number}: no term stands at {list(path)}"
        term = terms[id]
        if law == OPERANDS:
            after = with_operands(terms, term, [resolved(Ref(ONE, x.id)) for x in term.args])
        elif law in LAWS:
            after = LAWS[law].rewrite(terms, term)
        else:
            return f"step {number}: no law {law}"
        if after is None or terms.shape(after) != term.shape:
            return f"step {number}: {law} says nothing of the term"
        equal[id] = after
        roots.append(after.id)
    left, right = resolved(a), resolved(b)
    same = left == right or left.coef == right.coef == Fraction(0)
    return "" if same else f"the steps lead to {left} and {right}"


def _at(terms: Terms, roots: Sequence[int], path: Path) -> int | None:
    if not path or not 0 <= path[0] < len(roots):
        return None
    id = roots[path[0]]
    for index in path[1:]:
        args = terms[id].args
        if not 0 <= index < len(args):
            return None
        id = args[index].id
    return id


def with_operands(terms: Terms, term: Term, bare: Sequence[Ref]) -> Ref:
    """The term with its operands, taken without their factors, replaced by equal ones."""
    args = [scaled(new, old.coef) for new, old in zip(bare, term.args, strict=True)]
    op, attrs, shape = term.op, term.attrs, term.shape
    match op:
        case "matmul":
            return matmul(terms, args[0], args[1])
        case "expand":
            return terms.expand(args[0], shape)
        case "reshape":
            return terms.reshape(args[0], shape)
        case "permute":
            return terms.permute(args[0], attrs[0])
        case "sum" | "amax":
            return terms.reduce(op, args[0], attrs[0], False)
        case "slice":
            named: dict[str, Any] = dict(zip(_SLICE, attrs, strict=True))
            return terms.apply("slice", args, named, ["f32"])
        case "concat":
            return terms.apply("concat", args, {"dim": attrs[0]}, ["f32"] * len(args))
        case _ if elementwise(term):
            return terms.fit(rebuilt(terms, term, args), shape)
        case _ if op in REGISTRY and frozenset({0}) in REGISTRY[op].linear:
            return terms.linear(op, args, attrs, shape)
        case _:
            return Ref(ONE, terms.intern(op, args, attrs, shape).id)
