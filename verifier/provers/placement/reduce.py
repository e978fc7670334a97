"""Reductions and products: split dims that are folded leave a pending fold."""

from shardproof.verifier.kernel.layout import Dim, Layout, bound
from shardproof.verifier.kernel.ops.reduce import parse
from shardproof.verifier.kernel.program.registry import Op, Refused
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.placement.map import join_partial
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


@of_kind("einsum")
def place_einsum(op: Op, given: Operands) -> list[Placed]:
    """A factor split alike wherever it occurs is split in the result, or leaves a pending sum."""
    operands, result = parse(op.signature)
    dims: dict[str, Dim] = {}
    for i, (layout, factors) in enumerate(zip(given.layouts, operands, strict=True)):
        for factor, dim in zip(factors, layout.dims, strict=True):
            if dims.setdefault(factor, dim) != dim:
                name = next((n for n in (*bound(dim), *bound(dims[factor]))), None)
                raise Refused(f"factor {factor} is sharded differently in the operands", name, i)
    owner: dict[str, str] = {}
    for factor, dim in dims.items():
        for name in bound(dim):
            if owner.setdefault(name, factor) != factor:
                raise Refused(
                    f"factors {owner[name]} and {factor} are both sharded over {name}", name
                )
    partial = dict(join_partial(op, given))
    for name, factor in owner.items():
        if name in partial:
            raise Refused(
                f"factor {factor} is sharded over {name}, over which a sum is pending", name
            )
        if factor not in result:
            partial[name] = "sum"
    layout = Layout(tuple(dims[f] for f in result)).with_partial(partial.items())
    return [Placed((layout,), given.attrs)]
