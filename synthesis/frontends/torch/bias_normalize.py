"""Biases, sums and products beside a reshape of leading dims, in one form.

PyTorch computes a linear layer on rows: it merges the leading dims, adds the bias to rows, and
splits them again. Where a bias is added after the ranks were summed, it is added to the whole.
Where no gradient is recorded, `matmul` may repeat the weight for each batch instead.

    reshape(a + b, [..., k])            = reshape(a, [..., k]) + b      for b of shape [k], where
                                          the last dim may be gathered in between, and the sum
                                          be cast
    bmm(x, expand(w, [n, k, m]))        = reshape(mm(reshape(x, [n * b, k]), w), [n, b, m])
    sum(reshape(x, [n, ...]), dims=[0]) = sum(x, dims=[0, ..., m - 1])  for n the first m extents
"""

import math
from collections import Counter
from collections.abc import Mapping

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.program import Node, Program


def leading_dims(program: Program) -> Program:
    """The program with biases added after reshapes, rows summed before they are merged, and one
    weight for all batches multiplied by rows."""
    uses = Counter(v for n in program.nodes for v in n.inputs)
    uses.update(o.value for o in program.outputs)

    def bias_last(r: Rewriting, node: Node) -> str | None:
        found = _bias_last(r, node, uses)
        if found is not None:
            uses[found] = uses[node.outputs[0]]
        return found

    program = rewrite(program, {"bmm": _by_rows})
    return rewrite(program, {"reshape": bias_last, "sum": _sum_first})


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


def _bias_last(r: Rewriting, node: Node, uses: Mapping[str, int]) -> str | None:
    x, new = node.inputs[0], r.type(node.outputs[0]).shape
    cast = r.made(x, "cast")
    if cast is not None and uses[x] == 1 and r.type(cast.inputs[0]).is_float:
        found = _added_last(r, cast.inputs[0], new, uses)
        return None if found is None else r.add("cast", found, **cast.attrs)
    gather = r.made(x, "all_gather")
    if gather is None or gather.attrs["dim"] != len(r.type(x).shape) - 1:
        return _added_last(r, x, new, uses)
    whole = len(new) < len(r.type(x).shape) and uses[x] > 1
    if whole or new[-1:] != r.type(x).shape[-1:]:
        return None
    (part,) = gather.inputs
    found = _added_last(r, part, (*new[:-1], r.type(part).shape[-1]), uses)
    if found is None:
        return None
    return r.add("all_gather", found, **{**gather.attrs, "dim": len(new) - 1})


def _added_last(r: Rewriting, x: str, new: tuple[int, ...], uses: Mapping[str, int]) -> str | None:
    """`x` in another shape, the bias that was added to it added to that; None where none was."""
    total, old = r.made(x, "add"), r.type(x).shape
    if total is None or not old or not new or old[-1] != new[-1]:
        return None
    if new[-2:-1] == (1,) != old[-2:-1]:
        return None  # one head of a rank: where there are several, the bias stays
    if len(new) < len(old) and uses[x] > 1:
        return None  # the whole is used: ranks may gather it first
    width = old[-1]
    row = (1,) * (len(old) - 1) + (width,)
    for place in (0, 1):
        a, b = total.inputs[place], total.inputs[1 - place]
        if r.type(a).shape == old and r.type(b).shape in ((width,), row) and old != row:
            parts = [r.reshape(a, new), r.reshape(b, (width,))]
            return r.add("add", *(parts if place == 0 else parts[::-1]))
    return None


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
