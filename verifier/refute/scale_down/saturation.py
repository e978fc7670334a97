"""Whether what one node computes can be lost again before it reaches an output.

`maximum(2 x, 64 y)` may hide what `2 x` is on 64 ranks, and show it on two. So what follows from a
node is judged by the ops it passes: most of them lose nothing, a maximum or minimum is looked at
with either operand in its place, and what chooses in another way is refused.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops import facets
from shardproof.verifier.ops.classes import REDUCING
from shardproof.verifier.refute.compare import TOLERANCE
from shardproof.verifier.refute.dedup import BUDGET, Arrays, simulate
from shardproof.verifier.refute.evaluate import Ranks
from shardproof.verifier.refute.scale_down.fold import each
from shardproof.verifier.refute.scale_down.system import Declined
from shardproof.verifier.refute.scatter import scatter

Seed = Callable[[Node], bool]
SHIFTS = frozenset({"all_reduce", "expand", "reshape"})
"""Ops that a maximum passes on its way to what it is subtracted from."""


@dataclass
class Cone:
    """What follows from the nodes that are seeds."""

    seed: Seed
    values: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """By the id of a program or block, the values that depend on one."""

    def spread(self, scope: Program, given: set[str]) -> set[str]:
        reached = self.values.setdefault(id(scope), set())
        reached |= given
        for node in scope.nodes:
            if self.seed(node):
                reached |= set(node.outputs)
            elif node.body is not None:
                reached |= self._block(node, node.body, reached)
            elif reached.intersection(node.inputs):
                reached |= set(node.outputs)
        return reached

    def _block(self, node: Node, body: Program, reached: set[str]) -> set[str]:
        pairs = zip(body.inputs, node.inputs, strict=True)
        entering = {i.name for i, v in pairs if v in reached}
        while True:
            inner = self.spread(body, entering)
            carries = body.outputs[: int(str(node.attrs["carry"]))]
            again = {i.name for i, o in zip(body.inputs, carries, strict=False) if o.value in inner}
            if again <= entering:
                outs = zip(node.outputs, body.outputs, strict=True)
                return {name for name, o in outs if o.value in inner}
            entering |= again


def loses_nothing(program: Program, seed: Seed) -> bool:
    """Whether every op that follows from a seed is analytic, or a choice between two operands."""
    cone = Cone(seed)
    cone.spread(program, set())
    return all(_keeps(scope, cone.values.get(id(scope), set())) for scope in program.scopes())


def _keeps(scope: Program, reached: set[str]) -> bool:
    shifts = {v for n in scope.nodes if n.op == "amax" for v in _shift(scope, n)}
    for node in scope.nodes:
        mine = [v in reached for v in node.inputs]
        op = lookup(node.op)
        if not any(mine) or facets(op.name).analytic or _chooses(node):
            continue
        attrs, index = op.with_defaults(node.attrs), op.traits.index
        ok = node.outputs[0] in shifts
        ok |= node.op == "where" and not mine[0]
        ok |= node.op in REDUCING and attrs["reduce"] in ("sum", "avg")
        ok |= index is not None and not mine[index]
        ok |= node.op == "cast" and scope.types[node.outputs[0]].is_float
        if not ok:
            return False
    return True


def _chooses(node: Node) -> bool:
    """Whether the result is the larger, or the smaller, of two operands."""
    known = facets(node.op)
    return known.picks == "pair" and not known.truth


def _shift(scope: Program, top: Node) -> set[str]:
    """A maximum and its copies, where they are only subtracted from what it is the maximum of: that
    loses no more than what all entries have in common."""
    copies, results = {top.outputs[0]}, {o.value for o in scope.outputs}
    for node in scope.nodes:
        if not copies.intersection(node.inputs):
            continue
        shifts = node.op in SHIFTS or lookup(node.op).traits.alias
        if shifts and (node.op != "all_reduce" or node.attrs.get("reduce") == "max"):
            copies |= set(node.outputs)
        elif node.op != "sub" or node.inputs[0] != top.inputs[0] or node.inputs[0] in copies:
            return set()
    return set() if copies & results else copies


def shows_in_both(
    wrong: Program,
    right: Program,
    seeds: tuple[Seed, Seed],
    contract: Contract,
    inputs: Iterable[Mapping[str, Array]],
    first: str,
) -> bool:
    """Whether two programs of all ranks differ on numbers whichever operand every choice takes that
    follows from their seeds: on some of the inputs with the first, on some with the second.

    `first` is the key of the output that is looked at before the others.
    """
    left: list[tuple[Program, Program]] = []
    for place in (0, 1):
        a, b = (_chosen(p, s, place) for p, s in zip((wrong, right), seeds, strict=True))
        if a is None or b is None:
            return False
        if a is wrong and b is right:
            return True
        left.append((a, b))
    for given in inputs:
        pieces = _pieces(wrong, contract, given)
        known = Arrays(Floats(), 4 * BUDGET)
        left = [pair for pair in left if not _unlike_on(*pair, pieces, known, first)]
        if not left:
            return True
    return False


def _pieces(many: Program, contract: Contract, inputs: Mapping[str, Array]) -> Ranks:
    mesh, domain, rng = many.mesh, Floats(), np.random.default_rng(0)
    names = [i.name for i in many.inputs]
    pieces = {n: scatter(inputs[n], contract.inputs[n], mesh, domain, rng) for n in names}
    return [{n: pieces[n][r] for n in names} for r in range(mesh.size)]


def _unlike_on(one: Program, other: Program, given: Ranks, known: Arrays, first: str) -> bool:
    """Whether some output of two programs is not alike on some rank."""
    ours, theirs = ({output_key(o): o.value for o in p.outputs} for p in (one, other))
    for keys in ({first}, ours.keys() - {first}):
        mine = simulate(one, given, known, {ours[k] for k in keys})
        yours = simulate(other, given, known, {theirs[k] for k in keys})
        pairs = (
            (x.get(ours[k]), y.get(theirs[k]))
            for x, y in zip(mine, yours, strict=True)
            for k in keys
        )
        if any(x is not None and y is not None and _unlike(x, y) for x, y in pairs):
            return True
    return False


def _unlike(a: Array, b: Array) -> bool:
    if a.shape != b.shape or not np.all(np.isfinite(b)):
        return False
    return bool(np.any(np.abs(a - b) > TOLERANCE * max(1e-12, float(np.max(np.abs(b), initial=0)))))


def _chosen(program: Program, seed: Seed, place: int) -> Program | None:
    """The program with one operand in place of each choice that follows from the seed; None where
    operands are of another shape than the result."""
    cone = Cone(seed)
    cone.spread(program, set())

    def changed(scope: Program, node: Node) -> Node:
        reached = cone.values.get(id(scope), set())
        if not _chooses(node) or not reached.intersection(node.inputs):
            return node
        value = node.inputs[place]
        if scope.types[value].shape != scope.types[node.outputs[0]].shape:
            raise Declined("an operand of a choice has another shape than the result")
        return replace(node, op="mul_scalar", inputs=(value,), attrs={"value": 1})

    try:
        return each(program, changed)
    except Declined:
        return None
