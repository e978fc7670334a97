"""Elementwise ops: equal splits combine, and sums pass where the op is linear."""

from shardproof.verifier.kernel.layout import Dim, Layout, local_extent
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.kernel.program.types import FLOATS
from shardproof.verifier.ops import facets
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_kind


def join_partial(op: Op, given: Operands) -> tuple[tuple[str, str], ...]:
    """Pending folds of the result, by the op's linearity. Raises Refused."""
    out: list[tuple[str, str]] = []
    names = sorted({name for layout in given.layouts for name in layout.pending})
    for name in names:
        holders = {i for i, layout in enumerate(given.layouts) if layout.fold(name)}
        folds = {given.layouts[i].fold(name) for i in holders}
        first = min(holders)
        if len(folds) > 1:
            raise Refused(f"operands have different pending reductions over {name}", name, first)
        fold = folds.pop() or "sum"
        keeps = fold in facets(op.name).folds
        rises = len(holders) == 1 and first in facets(op.name).rises
        if fold != "sum" and not keeps and not rises:
            raise Refused(
                f"a pending {fold} over {name} does not pass through {op.name}", name, first
            )
        allowed = any(
            holders <= group and all(i in holders or i in given.zeros for i in group)
            for group in op.linear
        )
        if fold == "sum" and not allowed:
            others = [i for i in range(len(given.layouts)) if i not in holders]
            if op.linear and others and any(holders <= g for g in op.linear):
                why = f"{op.name} adds a partial sum over {name} to a complete value"
            elif len(holders) > 1:
                why = f"{op.name} of several partial sums over {name}"
            else:
                why = f"{op.name} is not linear in operand {first}, a partial sum over {name}"
            raise Refused(why, name, first)
        for i, layout in enumerate(given.layouts):
            if i not in holders and name in layout.sharded:
                raise Refused(
                    f"operand {i} is sharded over {name}, operand {first} is a partial sum over it",
                    name,
                    first,
                )
        out.append((name, fold))
    return tuple(out)


@of_kind("map")
def place_map(op: Op, given: Operands) -> list[Placed]:
    """Equal splits combine; a dim of whole extent 1 broadcasts against any split."""
    rank = max(len(layout.dims) for layout in given.layouts)
    dims: list[Dim] = []
    for position in range(rank):
        chosen: Dim = ()
        owner = 0
        for i, layout in enumerate(given.layouts):
            offset = position - (rank - len(layout.dims))
            dim = layout.dims[offset] if offset >= 0 else ()
            if not dim or dim == chosen:
                continue
            if chosen:
                if local_extent(dim) != local_extent(chosen):
                    raise Refused(
                        f"local extents {local_extent(chosen)} and {local_extent(dim)} differ "
                        f"at dim {position}",
                        next((a.mesh_dim for a in (*chosen, *dim) if a.mesh_dim), None),
                        i,
                    )
                raise Refused(
                    f"operands {owner} and {i} are sharded differently at dim {position}",
                    next((a.mesh_dim for a in (*chosen, *dim) if a.mesh_dim), None),
                    i,
                )
            chosen, owner = dim, i
        dims.append(chosen)
    names = [a.mesh_dim for d in dims for a in d if a.mesh_dim]
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise Refused(f"two dims of the result would be sharded over {twice}", twice, 0)
    layout = Layout(tuple(dims), join_partial(op, given))
    dtype = dict(given.attrs).get("dtype")
    if dtype is not None and dtype not in FLOATS and layout.partial:
        name = layout.partial[0][0]
        raise Refused(f"a cast to {dtype} of a partial value over {name}", name, 0)
    return [Placed((layout,), given.attrs)]
