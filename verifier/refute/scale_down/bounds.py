"""Choices that the extents decide: what can go one way only at the given extents, and both ways at
small ones.

`minimum(s, 1000)` of a sum of 4096 numbers above 1 is 1000 for all inputs, and not so of 4 numbers.
So a difference that is found at small extents need not be there at the given ones. Each value is
bounded by the ops that make it, inputs by nothing.
"""

import math
from collections.abc import Iterator

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import mesh_dims
from shardproof.verifier.ops import facets
from shardproof.verifier.ops.bounds import ANY, Bounded, Bounds


def saturated(given: Program, small: Program) -> list[str]:
    """Caveats: the choices of a program that its extents decide, and smaller ones do not."""
    before, after = (dict(_decided(p, "", set())) for p in (given, small))
    return [
        f"at the given extents %{name} can only go one way"
        for name, way in before.items()
        if after.get(name) != way
    ]


def _decided(program: Program, path: str, seen: set[int]) -> Iterator[tuple[str, float]]:
    """The choices of a program, those of its blocks included, that can only go one way: which."""
    known = {i.name: (0.0, 1.0) if i.type.dtype == "bool" else ANY for i in program.inputs}
    for node in program.nodes:
        if node.body is not None:
            if id(node.body) not in seen:
                seen.add(id(node.body))
                yield from _decided(node.body, f"{path}{node.outputs[0]}/", seen)
            known |= dict.fromkeys(node.outputs, ANY)
            continue
        args = [known[v] for v in node.inputs]
        (out,) = node.outputs
        known[out] = _bounds(program, node, args)
        way = _way(node, args, known[out])
        if way is not None:
            yield f"{path}{out}", way


def _way(node: Node, args: list[Bounds], out: Bounds) -> float | None:
    known = facets(node.op)
    if known.steps:
        return out[0] if out[0] == out[1] else None
    if known.picks == "zero":
        args = [*args, (0, 0)]
    elif known.picks != "pair":
        return None
    (a, b), (c, d) = args
    return -1 if b < c else 1 if d < a else None


def _bounds(program: Program, node: Node, args: list[Bounds]) -> Bounds:
    op = lookup(node.op)
    bounds = facets(node.op).bounds
    if bounds is None:
        return ANY
    attrs = op.with_defaults(node.attrs)
    return bounds(
        Bounded(
            args,
            attrs,
            [program[v].shape for v in node.inputs],
            math.prod(program.mesh[n] for n in mesh_dims(attrs.get("mesh_dim", ()))),
            len(set(node.inputs)) == 1,
            program[node.outputs[0]].is_float,
        )
    )
