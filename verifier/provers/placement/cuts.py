"""Cuts and joins along one dim."""

from shardproof.verifier.kernel.layout import (
    Atom,
    Dim,
    Layout,
    bound,
    global_extent,
    local_extent,
    normal,
    whole,
)
from shardproof.verifier.kernel.ops import cuts
from shardproof.verifier.kernel.program.registry import (
    Op,
    Refused,
)
from shardproof.verifier.provers.placement.rule import Operands, Placed, of_ops


def _only_sum(op: Op, layout: Layout) -> None:
    for name, fold in layout.partial:
        if fold != "sum":
            raise Refused(f"{op.name} inserts zeros into a pending {fold} over {name}", name, 0)


@of_ops(cuts.slice_)
def _slice_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    index, start, stop, step = (given.number(k) for k in ("dim", "start", "stop", "step"))
    dim = x.dims[index]
    if not bound(dim):
        kept = whole(len(range(start, stop, step)))
        return [Placed((x.with_dim(index, kept),), given.attrs)]
    inner = local_extent(dim)
    if (start, stop, step) == (0, inner, 1):
        return [
            Placed((x,), (("dim", index), ("start", 0), ("stop", global_extent(dim)), ("step", 1)))
        ]
    if dim[0].mesh_dim is None and step == 1:
        rest = dim[1:]
        local, total = local_extent(rest), global_extent(rest)
        if local and start % local == 0 and stop % local == 0:
            first, last = start // local, stop // local
            layout = x.with_dim(index, (Atom(last - first), *rest))
            attrs = (("dim", index), ("start", first * total), ("stop", last * total), ("step", 1))
            return [Placed((layout,), attrs, facts=(f"{local} divides {start} and {stop}",))]
    raise Refused(f"slices dim {index}, which is sharded over {bound(dim)[0]}", bound(dim)[0], 0)


def _blocks(dim: Dim) -> tuple[int, Dim]:
    """How many equal blocks a dim is, one behind the other, each split alike; and how one is."""
    return (dim[0].size, dim[1:]) if dim and dim[0].mesh_dim is None else (1, dim)


@of_ops(cuts.concat)
def _concat_place(op: Op, given: Operands) -> list[Placed]:
    index = given.number("dim")
    first = given.layouts[0]
    for i, layout in enumerate(given.layouts):
        if (
            layout.dims[:index] != first.dims[:index]
            or layout.dims[index + 1 :] != first.dims[index + 1 :]
        ):
            name = next(iter(sorted(layout.mentioned ^ first.mentioned)), None)
            raise Refused(f"operands 0 and {i} are sharded differently", name, i)
    holders = [i for i in range(len(given.layouts)) if i not in given.zeros] or [0]
    partial = given.layouts[holders[0]].partial
    for i in holders:
        layout = given.layouts[i]
        if layout.partial != partial:
            name = next(iter(sorted(layout.pending ^ {n for n, _ in partial})), None)
            raise Refused(f"joins a partial sum over {name} to a complete value", name, i)
    for name, fold in partial:
        if fold != "sum" and given.zeros:
            raise Refused(f"joins zeros to a pending {fold} over {name}", name, 0)
        if any(name in layout.sharded for layout in given.layouts):
            raise Refused(
                f"an operand is sharded over {name}, over which a sum is pending", name, 0
            )
    dims = [layout.dims[index] for layout in given.layouts]
    if not any(bound(d) for d in dims):
        joined = whole(sum(local_extent(d) for d in dims))
    elif all(_blocks(d)[1] == _blocks(dims[0])[1] for d in dims):
        count = sum(_blocks(d)[0] for d in dims)
        joined = normal((Atom(count), *_blocks(dims[0])[1]))
    else:
        name = next(n for d in dims for n in bound(d))
        raise Refused(f"joins unequal pieces of dim {index}, which is sharded over {name}", name, 0)
    layout = Layout(first.dims, partial).with_dim(index, joined)
    return [Placed((layout,), given.attrs)]


@of_ops(cuts.pad)
def _pad_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    _only_sum(op, x)
    index, lo, hi = given.number("dim"), given.number("lo"), given.number("hi")
    dim = x.dims[index]
    if not bound(dim):
        return [Placed((x.with_dim(index, whole(local_extent(dim) + lo + hi)),), given.attrs)]
    count, rest = _blocks(dim)
    local, total = local_extent(rest), global_extent(rest)
    if local and lo % local == 0 and hi % local == 0:
        layout = x.with_dim(index, (Atom(count + (lo + hi) // local), *rest))
        attrs = (("dim", index), ("hi", hi // local * total), ("lo", lo // local * total))
        return [Placed((layout,), attrs, facts=(f"{local} divides {lo} and {hi}",))]
    raise Refused(f"pads dim {index}, which is sharded over {bound(dim)[0]}", bound(dim)[0], 0)


@of_ops(cuts.flip)
def _flip_place(op: Op, given: Operands) -> list[Placed]:
    (x,) = given.layouts
    dim = x.dims[given.number("dim")]
    if bound(dim):
        raise Refused(f"reverses a dim that is sharded over {bound(dim)[0]}", bound(dim)[0], 0)
    return [Placed((x,), given.attrs)]
