"""Numbers in a program that may count entries: which follow the extents, and which are in doubt.

A factor such as the 1/4096 of a mean is left as it is: both programs hold it, and factors that
multiply to the same number do so at every extent. That fails where a program counts entries
without a literal, or where the mesh is another; then such factors are doubtful. Integers are
compared with indices, so an integer that is an extent follows it.
"""

from collections.abc import Callable, Collection
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import FLOATS, Attr
from shardproof.verifier.ops import compares, facets

NEAR = 8
"""A larger integer that is one off an extent follows it: the last index, or one past it."""
LOCAL = frozenset({"map", "einsum", "reduce", "view", "index", "rows", "create"})
MOST_MADE = 1 << 16
"""Entries of what is computed from nothing to see which numbers it holds."""
MOST_ENTRIES = 1 << 50
"""No tensor has more."""
FEW = 4
"""Factors up to this, and one over it, count no entries."""
ONE_SIDED = "only one of the programs has the factors"
"""How a caveat begins, where a factor may stand for what the other program counts by its mesh."""


def literal(node: Node) -> Fraction | None:
    """The number that a node has as an attribute."""
    name = facets(node.op).literal
    value = node.attrs.get(name) if name else None
    if isinstance(value, Fraction):
        return value
    return Fraction(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _compared(scope: Program) -> set[str]:
    """The values that are compared in a program or block."""
    return {v for node in scope.nodes if compares(node.op) for v in node.inputs}


def _counts(scope: Program, node: Node, compared: Collection[str]) -> bool:
    """Whether the literal is among indices or compared: an integer, or a number in a comparison."""
    if node.op == "pow":
        return False
    out = node.outputs[0]
    if scope.types[out].dtype not in FLOATS:
        return scope.types[out].dtype != "bool"
    return node.op in ("full", "add_scalar") and out in compared


class Literals:
    """New values of literals. `now` gives the new values of all extents that have a value now."""

    def __init__(self, now: Callable[[int], set[int]]) -> None:
        self.now = now
        self.caveats: dict[str, None] = {}
        self.compared: dict[int, tuple[Program, set[str]]] = {}
        """By the identity of a program or block, what is compared in it."""

    def attrs(self, scope: Program, node: Node) -> dict[str, Attr]:
        """The attributes of a node with its literal at the new extents."""
        value = literal(node)
        if value is None or value.denominator != 1:
            return dict(node.attrs)
        if id(scope) not in self.compared:
            self.compared[id(scope)] = scope, _compared(scope)
        if not _counts(scope, node, self.compared[id(scope)][1]):
            return dict(node.attrs)
        return {**node.attrs, facets(node.op).literal: Fraction(self._index(node, int(value)))}

    def _index(self, node: Node, value: int) -> int:
        size = abs(value)
        if size <= 1:
            return value
        sign = 1 if value > 0 else -1
        found = self.now(size)
        if len(found) == 1:
            return found.pop() * sign
        if not found and size > NEAR:
            for more in (1, -1):
                near = self.now(size + more)
                if len(near) == 1:
                    return (near.pop() - more) * sign
        if found:
            self.caveats[f"%{node.outputs[0]}: {value} may count one of several extents"] = None
        elif value > 0:
            self.caveats[f"%{node.outputs[0]}: it is not known what {value} counts"] = None
        return value


def factors(program: Program) -> set[Fraction]:
    """The literals that multiply, add to or are raised to, among floats; without sign."""
    out: set[Fraction] = set()
    for scope in program.scopes():
        compared = _compared(scope)
        for node in scope.nodes:
            value = literal(node)
            if value and abs(value) != 1 and not _counts(scope, node, compared):
                out.add(abs(value))
    return out


def counts_entries(program: Program) -> bool:
    """Whether numbers of entries may be computed, and not written: sums of values made from
    nothing, or integers cut from such values."""
    for scope in program.scopes():
        made: set[str] = set()
        for node in scope.nodes:
            if node.body is not None or any(v not in made for v in node.inputs):
                continue
            made |= set(node.outputs)
            known = facets(node.op)
            if known.steps or known.adds or (node.op == "cast" and _cuts(scope, node)):
                return True
    return False


def counted(program: Program) -> set[int] | None:
    """The whole numbers that are computed, and not written, from nothing. None where they are not
    known, being too many or not those of one rank."""
    domain, found = Floats(), set[int]()
    for scope in program.scopes():
        made: dict[str, Array] = {}
        for node in scope.nodes:
            if node.body is not None or any(v not in made for v in node.inputs):
                continue
            op, (out,) = lookup(node.op), node.outputs
            largest = max(scope.types[v].size for v in (*node.inputs, out))
            if largest > MOST_MADE or any(scope.types[v].size == 0 for v in node.inputs):
                return None
            given = [made[v] for v in node.inputs]
            if op.traits.meets == "all_reduce":
                value = given[0]
            elif op.kind in LOCAL:
                with np.errstate(all="ignore"):
                    meaning = facets(node.op).meaning
                    value = np.asarray(meaning(domain, *given, **op.with_defaults(node.attrs)))
            else:
                return None
            made[out] = value
            if node.inputs:
                whole = value[np.isfinite(value)] if value.dtype.kind == "f" else value
                found |= {abs(int(n)) for n in np.unique(whole) if n == int(n)}
    return {n for n in found if n > FEW}


def _counted_elsewhere(sequential: Program, distributed: Program, factor: Fraction) -> bool:
    """Whether a factor may be a multiple, or a part, of numbers of entries that are computed."""
    found = [counted(sequential), counted(distributed)]
    if None in found:
        return True
    size, ranks = int(max(factor, 1 / factor)), distributed.mesh.size
    computed = {n for numbers in found for n in numbers or ()}
    return size <= MOST_ENTRIES and any(
        (size * ranks) % n == 0 or (n * ranks) % size == 0 for n in computed
    )


def _cuts(scope: Program, node: Node) -> bool:
    return scope.types[node.inputs[0]].is_float and not scope.types[node.outputs[0]].is_float


def doubts(sequential: Program, distributed: Program, mesh_changed: bool) -> list[str]:
    """Caveats about factors: what they stand for may depend on the extents or on the mesh."""
    ours, theirs = factors(sequential), factors(distributed)
    out: list[str] = []
    if ours != theirs and mesh_changed:
        shown = _shown(ours ^ theirs)
        out.append(f"{ONE_SIDED} {shown}, and the mesh is smaller")
    counts = {
        f for f in ours | theirs if min(f.numerator, f.denominator) == 1 and max(f, 1 / f) > FEW
    }
    if counts_entries(sequential) or counts_entries(distributed):
        counts = {f for f in counts if _counted_elsewhere(sequential, distributed, f)}
    else:
        counts = set[Fraction]()
    if counts:
        out.append(f"the factors {_shown(counts)} may count entries that are counted elsewhere")
    return out


def _shown(found: set[Fraction]) -> str:
    return ", ".join(str(f) for f in sorted(found)[:3])
