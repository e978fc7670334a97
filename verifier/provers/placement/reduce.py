"""Reductions over dims: split dims leave a pending fold."""

from shardproof.verifier.kernel.layout import Dim, Layout, bound
from shardproof.verifier.kernel.program.registry import Op, Refused
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_kind


@of_kind("reduce")
def place_reduce(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    dims = given.attr("dims")
    partial = dict(x.partial)
    for name, pending in x.partial:
        if pending != facets(op.name).fold:
            raise Refused(f"{op.name} of a partial {pending} over {name}", name, 0)
    kept: list[Dim] = []
    for i, dim in enumerate(x.dims):
        if i in dims:
            for name in bound(dim):
                partial[name] = facets(op.name).fold
            if given.attr("keepdim"):
                kept.append(())
        else:
            kept.append(dim)
    return [Placed((Layout(tuple(kept)).with_partial(partial.items()),), given.attrs)]
