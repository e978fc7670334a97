"""Finds the op whose attribute is wrong: with another one in its place, all numbers are right.

A value that one device never has may be innocent, as the product of two weights is that are
merged. An op that makes every output right once a number, an offset or a group of it is another
one is to blame. On numbers alone: what is found is a place, and no repair that is offered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from verifier.ir.errors import IRError
from verifier.ir.program import Node, Program
from verifier.ops import lookup
from verifier.repair.edits import Edit, apply
from verifier.repair.near import attributes

SECONDS = 1.0
"""What may be spent on one program."""
NUMBERS = ("value", "exponent")
TOLD = (
    *("offset", "q_offset", "k_offset", "reduce", "mesh_dim", "shift", "index"),
    *("dim", "split_dim", "concat_dim", "exclusive", "reverse", "causal"),
)
"""Attributes that are changed, besides numbers."""


def mended(
    sequential: Program,
    distributed: Program,
    among: Sequence[Node],
    right: Callable[[Program], bool],
) -> list[tuple[Node, Edit]]:
    """The ops of some that one changed attribute makes right, those of the likeliest kind alone.

    Likeliest is a number that one device has in the place of one that it has not; then an offset or
    a group; then any other number. `right` says whether all outputs of a program are right.
    """
    theirs = set(_numbers(sequential))
    end = time.monotonic() + SECONDS
    found: dict[int, list[tuple[Node, Edit]]] = {}
    for node in among:
        for edit in _edits(distributed, node, theirs):
            if time.monotonic() > end:
                break
            try:
                edited = apply(distributed, edit)
                works = right(edited)
            except (IRError, KeyError, ValueError):
                continue
            if works:
                found.setdefault(_rank(node, edit, theirs), []).append((node, edit))
                break
    return found[min(found)] if found else []


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


def _rank(node: Node, edit: Edit, theirs: set[Fraction]) -> int:
    ((name, other), *_) = edit.attrs
    if name not in NUMBERS:
        return 1
    now = node.attrs[name]
    assert isinstance(now, int | Fraction)
    assert isinstance(other, int | Fraction)
    return 0 if Fraction(now) not in theirs and Fraction(other) in theirs else 2
