"""Finds the op whose attribute is wrong: with another one in its place, all numbers are right.

A value that one device never has may be innocent, as the product of two weights is that are
merged. An op that makes every output right once a number, an offset or a group of it is another
one is to blame. On numbers alone: what is found is a place, and no repair that is offered.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations

from shardproof.synthesis.repair.edits import Edit, apply
from shardproof.synthesis.repair.near import attributes
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program

SECONDS = 1.0
"""Of the processor, that may be spent on one program."""
NUMBERS = ("value", "exponent")
TOLD = (
    *("offset", "q_offset", "k_offset", "reduce", "mesh_dim", "shift", "index"),
    *("dim", "split_dim", "concat_dim", "exclusive", "reverse", "causal"),
)
"""Attributes that are changed, besides numbers."""


def fixed_alone(
    sequential: Program,
    distributed: Program,
    among: Sequence[Node],
    right: Callable[[Program], bool],
) -> list[tuple[Node, Edit]]:
    """The ops of some that one changed attribute makes right, those of the likeliest kind alone.

    Likeliest is a number that one device has in the place of one that it has not; then an offset or
    a group; then such a number that is off by the number of ranks, unless it stands behind that
    group: what all ranks hold is divided by what one of them counts. Then any other. `right` says
    whether all outputs of a program are right.
    """
    theirs = set(_numbers(sequential))
    counts = [n for _, n in distributed.mesh.dims]
    sizes = {Fraction(math.prod(some)) for k in (1, 2, 3) for some in combinations(counts, k)}
    end = time.process_time() + SECONDS
    found: dict[int, list[tuple[Node, Edit]]] = {}
    for node in among:
        for edit in _edits(distributed, node, theirs):
            if time.process_time() > end:
                break
            try:
                edited = apply(distributed, edit)
                works = right(edited)
            except (IRError, KeyError, ValueError):
                continue
            if works:
                found.setdefault(_rank(node, edit, theirs, sizes), []).append((node, edit))
                break
    if not found:
        return []
    order = {n.outputs: k for k, n in enumerate(distributed.nodes)}
    ends = [order[found[k][0][0].outputs] for k in (1, 2) if k in found]
    behind = len(ends) == 2 and ends[1] > ends[0] and 0 not in found
    return found[2 if behind else min(found)]


def _numbers(program: Program) -> Iterator[Fraction]:
    for _, node in program.walk():
        for name in NUMBERS:
            value = node.attrs.get(name)
            if isinstance(value, int | Fraction) and not isinstance(value, bool):
                yield Fraction(value)


def _edits(program: Program, node: Node, theirs: set[Fraction]) -> Iterator[Edit]:
    (value, *_) = node.outputs
    for name in NUMBERS:
        now = node.attrs.get(name)
        if isinstance(now, int | Fraction) and not isinstance(now, bool):
            for other in sorted(theirs - {Fraction(now)}):
                yield Edit("set", value, attrs=((name, other),))
    if lookup(node.op).kind == "view" or node.body is not None:
        return
    for edit in attributes(program, node):
        if all(name in (*TOLD, *NUMBERS) for name, _ in edit.attrs):
            yield edit


def _rank(node: Node, edit: Edit, theirs: set[Fraction], sizes: set[Fraction]) -> int:
    ((name, other), *_) = edit.attrs
    if name not in NUMBERS:
        return 1
    now = node.attrs[name]
    assert isinstance(now, int | Fraction)
    assert isinstance(other, int | Fraction)
    if Fraction(now) in theirs or Fraction(other) not in theirs:
        return 3
    ratio = Fraction(other) / Fraction(now) if now else Fraction(0)
    return 2 if ratio in sizes or (ratio and 1 / ratio in sizes) else 0
