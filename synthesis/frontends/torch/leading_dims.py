"""Sums and products beside a reshape of leading dims, in one form.

Where no gradient is recorded, `matmul` may repeat the weight for each batch:

    bmm(x, expand(w, [n, k, m]))        = reshape(mm(reshape(x, [n * b, k]), w), [n, b, m])
    sum(reshape(x, [n, ...]), dims=[0]) = sum(x, dims=[0, ..., m - 1])  for n the first m extents
"""

import math

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program


def leading_dims(program: Program) -> Program:
    """The program with rows summed before they are merged, and one weight for all batches
    multiplied by rows."""
    program = rewrite(program, {"bmm": _by_rows})
    return rewrite(program, {"sum": _sum_first})


def _by_rows(r: Rewriting, node: Node) -> str | None:
    x, repeated = node.inputs
    wide = r.made(repeated, "expand")
    if wide is None:
        return None
    w = wide.inputs[0]
    rows, (k, m) = r.type(x).shape[:2], r.type(repeated).shape[1:]
    if r.type(w).shape not in ((k, m), (1, k, m)):
        return None
    flat = r.reshape(x, (math.prod(rows), k))
    return r.reshape(r.add("mm", flat, r.reshape(w, (k, m))), (*rows, m))


def _sum_first(r: Rewriting, node: Node) -> str | None:
    x = node.inputs[0]
    merged = r.made(x, "reshape")
    if merged is None or node.numbers("dims") != (0,):
        return None
    source = merged.inputs[0]
    rows, rest = r.type(x).shape[0], r.type(x).shape[1:]
    whole = r.type(source).shape
    count = len(whole) - len(rest)
    if count < 2 or whole[count:] != rest or math.prod(whole[:count]) != rows:
        return None
    found = r.add("sum", source, dims=tuple(range(count)), keepdim=False)
    return r.reshape(found, r.type(node.outputs[0]).shape)
