"""Sums of what an all_gather brings from each rank, as the all_reduce that they are.

With g = all_gather(x, 0), and one f of each piece:

    sum over the ranks of reshape(g, [n, ...])    = all_reduce(x)
    f(first piece of g) + ... + f(last piece of g) = all_reduce(f(x))

What is pending on x, as of gradients of a rank's own rows, has no gathered value. Its sum has one.
"""

from collections.abc import Iterator

from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine

Piece = tuple[Node, int, list[Node]]
"""The all_gather, of which rank a piece is, and what was made of it, the last op first."""


def sums_of_gathers(program: Program) -> Program:
    """The program with sums over all pieces of an all_gather as all_reduces."""
    return rewrite(program, {"sum": _stacked, "add": _added}, some_ranks=True)


def _gather(r: Rewriting, name: str) -> tuple[Node, int] | None:
    """An all_gather along dim 0 of numbers, and of how many ranks."""
    gather = r.made(name, "all_gather")
    if gather is None or gather.attrs["dim"] != 0:
        return None
    given = r.type(gather.inputs[0])
    extent = given.shape[0]
    count = r.type(name).shape[0] // extent if extent else 0
    return (gather, count) if given.kind != "bool" and count > 1 else None


def _reduced(r: Rewriting, gather: Node, x: str) -> str:
    return r.add("all_reduce", x, mesh_dim=gather.attrs["mesh_dim"], reduce="sum")


def _stacked(r: Rewriting, node: Node) -> str | None:
    stack, dims = node.inputs[0], node.attrs["dims"]
    found = _gather(r, r.through(stack, "reshape"))
    made, shape = r.type(node.outputs[0]), r.type(stack).shape
    if found is None or not isinstance(dims, tuple) or 0 not in dims or shape[0] != found[1]:
        return None
    x = found[0].inputs[0]
    if made.dtype != r.type(x).dtype:
        return None
    own = r.add("sum", r.reshape(x, (1, *shape[1:])), dims=dims, keepdim=node.attrs["keepdim"])
    return _reduced(r, found[0], own)


def _added(r: Rewriting, node: Node) -> str | None:
    terms = list(_terms(r, node.outputs[0]))
    pieces = [_piece(r, term) for term in terms]
    for first in filter(None, pieces):
        alike = [p is not None and _alike(first, p) for p in pieces]
        ranks = [p[1] for p, same in zip(pieces, alike, strict=True) if same and p is not None]
        found = _gather(r, first[0].outputs[0])
        if found is None or sorted(ranks) != [*range(found[1])]:
            continue
        own = found[0].inputs[0]
        for op in reversed(first[2]):
            own = r.add(op.op, own, **op.attrs)
        total = _reduced(r, found[0], own)
        for term, same in zip(terms, alike, strict=True):
            total = total if same else r.add("add", total, term)
        made = r.type(node.outputs[0])
        return total if r.type(total) == made else None
    return None


def _terms(r: Rewriting, name: str) -> Iterator[str]:
    """What a value is the sum of, but for zeros that leave its shape."""
    node = r.made(name, "add", "add_scalar")
    if node is None or node.attrs.get("value", 0) != 0:
        yield name
        return
    shape = r.type(name).shape
    for part in node.inputs:
        if r.number(part) != 0 or all(r.type(p).shape != shape for p in node.inputs if p != part):
            yield from _terms(r, part)


def _piece(r: Rewriting, name: str) -> Piece | None:
    made: list[Node] = []
    while (node := r.node(name)) is not None and node.where == r.where:
        found = _gather(r, node.inputs[0]) if node.op == "slice" else None
        if found is not None:
            gather, count = found
            rows = r.type(gather.inputs[0]).shape[0]
            start = node.number("start")
            cut = {"dim": 0, "start": start, "stop": start + rows, "step": 1}
            whole = start % rows == 0 and dict(node.attrs) == cut and count > 1
            return (gather, start // rows, made) if whole else None
        same_everywhere = "mesh_dim" not in node.attrs and not any(
            isinstance(v, Affine) for v in node.attrs.values()
        )
        if len(node.inputs) != 1 or lookup(node.op).kind not in ("map", "view"):
            return None
        if not same_everywhere:
            return None
        made.append(node)
        name = node.inputs[0]
    return None


def _alike(one: Piece, other: Piece) -> bool:
    """Whether one function is taken of two pieces of one all_gather."""
    ops = [[(n.op, dict(n.attrs)) for n in piece[2]] for piece in (one, other)]
    return one[0].outputs == other[0].outputs and ops[0] == ops[1]
