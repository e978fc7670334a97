"""Ops on whole lines: a dim that is read as a whole is whole on each rank."""

from shardproof.verifier.kernel.layout import Atom, Layout, bound, normal
from shardproof.verifier.kernel.ops import rows
from shardproof.verifier.kernel.program.registry import Op, Refused
from shardproof.verifier.provers.placement.map import join_partial
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_kind, of_ops


@of_kind("rows")
def place_rows(op: Op, given: Operands) -> list[Placed]:
    """Pending folds pass by the op's linearity."""
    (x,) = given.layouts
    dim = given.number("dim")
    names = bound(x.dims[dim])
    if names:
        raise Refused(f"{op.name} along dim {dim}, which is sharded", names[0], 0)
    return [Placed((Layout(x.dims, join_partial(op, given)),), given.attrs)]


@of_ops(rows.topk_index)
def _index_place(op: Op, given: Operands) -> list[Placed]:
    (placed,) = place_rows(op, given)
    (x,) = placed.layouts
    found = x.with_dim(given.number("dim"), normal([Atom(given.number("k"))]))
    return [Placed((found,), given.attrs)]
