"""Tensors that are sent in one piece, sent one by one: what fully_shard and flat buckets do.

With parts p_i of n_i numbers and w ranks:
all_gather(concat(p_i, 0), 0) as [w, n], columns of part i  =  all_gather(p_i, 0) as [w, n_i];
reduce_scatter(concat(g_i, 1) as [w n], 0), numbers of part i  =  reduce_scatter(g_i as [w n_i], 0).
Both hold by what the collectives do with dim 0, whatever the numbers are, and if a bucket is cast
on its way, since a cast is of each number alone. So does what is sent as a row of numbers and read
as a tensor again: with x of shape [m, ...] on each of w ranks, and g of shape [w m, ...],
reshape(all_gather(reshape(x, [n]), 0), [w m, ...])             =  all_gather(x, 0);
reshape(reduce_scatter(reshape(g, [w n]), 0), [m, ...])         =  reduce_scatter(g, 0);
and along any dim before which all extents are 1. An all_reduce of what was scattered, as over the
replicas of a mesh, and a sum of several such, as of micro-batches, are of each part.
"""

from collections.abc import Callable

from shardproof.synthesis.frontends.torch.ranks.join import gathered_along
from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program


def one_by_one(program: Program) -> Program:
    """The program with every part of a bucket that is read sent on its own, as the tensor it is.
    What is gathered along another dim than the first is one op before its parts are looked at."""
    joined = rewrite(program, {"concat": gathered_along}, some_ranks=True)
    bucket = _sent(joined) | _received(joined) | _written(joined) | _joined_again(joined)

    def narrowed(r: Rewriting, node: Node) -> str | None:
        return _narrowed(r, node) if node.outputs[0] in bucket else None

    narrow = rewrite(joined, {"slice": narrowed}, some_ranks=True)
    return rewrite(
        rewrite(narrow, {"slice": _part}, some_ranks=True), {"reshape": _whole}, some_ranks=True
    )


def _sent(program: Program) -> set[str]:
    """Values that ranks send to one another, moved at most: other joins are the model's own."""
    found = set[str]()
    for node in reversed(program.nodes):
        moved = lookup(node.op).kind == "view" or node.op == "cast"
        if lookup(node.op).kind == "collective" or (moved and found.intersection(node.outputs)):
            found.update(node.inputs)
    return found


def _received(program: Program) -> set[str]:
    """Rows of numbers that ranks sent to one another, and those with pieces of them written anew,
    as clipping writes gradients."""
    found = set[str]()
    for node in program.nodes:
        is_row = len(program.types[node.outputs[0]].shape) == 1
        if is_row and (lookup(node.op).kind == "collective" or not found.isdisjoint(node.inputs)):
            found.update(node.outputs)
    return found


def _written(program: Program) -> set[str]:
    """Rows of numbers of which pieces were written anew, and what is cut from them."""
    found, rows = set[str](), set[str]()
    for node in program.nodes:
        row = len(program.types[node.outputs[0]].shape) == 1
        cuts = row and node.op == "slice"
        if row and node.op == "concat" and not rows.isdisjoint(node.inputs):
            found.update(node.outputs)
        if cuts:
            rows.update(node.outputs)
            found.update(node.outputs if node.inputs[0] in found else ())
    return found


def _joined_again(program: Program) -> set[str]:
    """What is cut from joins of pieces that were each added up over ranks."""
    found, summed, joins = set[str](), set[str](), set[str]()
    for node in program.nodes:
        moved = lookup(node.op).kind == "view" and node.op != "slice"
        if node.op == "all_reduce" or (moved and not summed.isdisjoint(node.inputs)):
            summed.update(node.outputs)
        if node.op == "concat" and not (summed | found).isdisjoint(node.inputs):
            joins.update(node.outputs)
        if node.op == "slice" and node.inputs[0] in joins:
            found.update(node.outputs)
    return found


def _narrowed(r: Rewriting, node: Node) -> str | None:
    """A part of one operand of a join: what is written into a bucket piece by piece."""
    dim, start, stop = node.number("dim"), node.number("start"), node.number("stop")
    value, through = node.inputs[0], False
    while node.attrs["step"] == 1 and start < stop:
        made = r.made(value, "concat", "slice")
        if made is None or made.attrs["dim"] != dim:
            break
        if made.op == "slice":
            if made.attrs["step"] != 1:
                break
            value, at = made.inputs[0], -made.number("start")
        else:
            found = _holding(r, made, dim, start, stop)
            if found is None:
                return _several(r, made, start, stop)
            (value, at), through = found, True
        start, stop = start - at, stop - at
    if not through:
        return None
    if (start, stop) == (0, r.type(value).shape[dim]):
        return value
    return r.add("slice", value, dim=dim, start=start, stop=stop, step=1)


def _several(r: Rewriting, join: Node, start: int, stop: int) -> str:
    """What is cut from several operands of a join."""
    at, cuts, dim = 0, list[str](), join.number("dim")
    for value in join.inputs:
        extent = r.type(value).shape[dim]
        first, last = max(start - at, 0), min(stop - at, extent)
        if (first, last) == (0, extent):
            cuts.append(value)
        elif first < last:
            cuts.append(r.add("slice", value, dim=dim, start=first, stop=last, step=1))
        at += extent
    return r.add("concat", *cuts, dim=dim)


def _holding(r: Rewriting, join: Node, dim: int, start: int, stop: int) -> tuple[str, int] | None:
    """The operand of a join that all these entries are of, and where it begins."""
    at = 0
    for value in join.inputs:
        extent = r.type(value).shape[dim]
        if at <= start and stop <= at + extent:
            return value, at
        at += extent
    return None


def _whole(r: Rewriting, node: Node) -> str | None:
    """What is sent as the tensor that is read in the end, along the dim where its pieces join."""
    return _sent_as(r, node.outputs[0], r.type(node.outputs[0]).shape)


def _sent_as(r: Rewriting, read: str, shape: tuple[int, ...]) -> str | None:
    kinds = ("all_gather", "reduce_scatter", *_EACH)
    sent = r.made(r.through(read, "reshape"), *kinds)
    if sent is None:
        return None
    if sent.op in _EACH:
        return _of_each(r, sent, lambda value: _sent_as(r, value, shape))
    along = sent.number("dim")
    if any(n != 1 for n in r.type(sent.inputs[0]).shape[:along]):
        return None
    before, after = r.type(sent.inputs[0]).size, r.type(sent.outputs[0]).size
    value: str | None = sent.inputs[0]
    while value is not None:
        dim = _joins(r.type(value).shape, shape, before, after)
        if dim == along and value == sent.inputs[0]:
            return sent.outputs[0]
        if dim is not None:
            return r.add(sent.op, value, **{**sent.attrs, "dim": dim})
        view = r.made(value, "reshape")
        value = view.inputs[0] if view is not None else None
    return _rows(r, shape, sent) if along == 0 else None


_EACH = ("all_reduce", "add")
"""Ops that do to each number of rows alone what they do to rows."""


def _of_each(r: Rewriting, node: Node, part: Callable[[str], str | None]) -> str | None:
    """Such an op of what `part` makes of its operands, which are rows of one shape."""
    if any(r.type(v) != r.type(node.outputs[0]) for v in node.inputs):
        return None
    found = [made for v in node.inputs if (made := part(v)) is not None]
    alike = len(found) == len(node.inputs) and len({r.type(v).shape for v in found}) == 1
    return r.add(node.op, *found, **node.attrs) if alike else None


def _rows(r: Rewriting, seen: tuple[int, ...], sent: Node) -> str | None:
    """Rows of ranks that hold one line each, where what is read is one dim of all rows:
    [1, n, ...] on w ranks are the rows of [w n, ...] or [1, w n, ...], not of [w, n, ...]. What is
    read as a row of numbers may be any of these."""
    line = r.type(sent.inputs[0]).shape
    dim = next((d for d, n in enumerate(line) if n != 1), 0)
    if sent.op != "all_gather" or not dim or len(seen) < min(2, len(line)):
        return None
    ranks = r.type(sent.outputs[0]).shape[0]
    if seen[0] != 1 and seen[0] % (ranks * line[dim]):
        return None
    joined = r.add(sent.op, sent.inputs[0], **{**sent.attrs, "dim": dim})
    return r.reshape(joined, seen)


def _joins(old: tuple[int, ...], new: tuple[int, ...], before: int, after: int) -> int | None:
    """The dim along which pieces of shape `old` give `new`, in the order of the ranks: all extents
    before it are 1. `before` and `after` count numbers."""
    if len(old) != len(new):
        return None
    differ = [d for d, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
    dim = differ[0] if differ else 0
    if len(differ) > 1 or not old or any(n != 1 for n in old[:dim]):
        return None
    return dim if old[dim] * after == new[dim] * before else None


def _part(r: Rewriting, node: Node) -> str | None:
    dim, start, stop, step = (node.attrs[k] for k in ("dim", "start", "stop", "step"))
    if not isinstance(start, int) or not isinstance(stop, int) or step != 1:
        return None
    if dim == 1:
        return _gathered(r, node.inputs[0], start, stop)
    if dim == 0:
        return _reduced(r, node.inputs[0], start, stop)
    return None


def _gathered(r: Rewriting, columns: str, start: int, stop: int) -> str | None:
    seen = r.made(columns, "reshape")
    gather = r.made(seen.inputs[0], "all_gather") if seen is not None else None
    if gather is None or gather.attrs["dim"] != 0 or len(r.type(gather.inputs[0]).shape) != 1:
        return None
    count = r.type(gather.inputs[0]).size
    shape = r.type(columns).shape
    if len(shape) != 2 or shape[1] != count:
        return None
    part = _piece(r, gather.inputs[0], 0, start, stop)
    if part is None:
        return None
    sent = r.add("all_gather", part, mesh_dim=gather.attrs["mesh_dim"], dim=0)
    return r.reshape(sent, (shape[0], stop - start))


def _reduced(r: Rewriting, numbers: str, start: int, stop: int) -> str | None:
    scatter = r.made(numbers, "reduce_scatter", *_EACH)
    if scatter is not None and scatter.op in _EACH:
        return _of_each(r, scatter, lambda value: _reduced(r, value, start, stop))
    if scatter is None or scatter.attrs["dim"] != 0 or len(r.type(numbers).shape) != 1:
        return None
    source = r.made(scatter.inputs[0], "reshape")
    if source is None:
        return None
    ranks, left = divmod(r.type(scatter.inputs[0]).size, r.type(numbers).size)
    if left or r.type(source.inputs[0]).shape != (ranks, r.type(numbers).size):
        return None
    part = _piece(r, source.inputs[0], 1, start, stop)
    if part is None:
        return None
    flat = r.reshape(part, (r.type(part).size,))
    return r.add("reduce_scatter", flat, **scatter.attrs)


def _piece(r: Rewriting, joined: str, dim: int, start: int, stop: int) -> str | None:
    """The operand of a join that is exactly these entries of it; of a join that is cast, cast."""
    node = r.made(joined, "concat", "cast")
    if node is not None and node.op == "cast":
        part = _piece(r, node.inputs[0], dim, start, stop)
        return None if part is None else r.add("cast", part, dtype=node.attrs["dtype"])
    if node is None or node.attrs["dim"] != dim:
        return None
    at = 0
    for value in node.inputs:
        extent = r.type(value).shape[dim]
        if (at, at + extent) == (start, stop):
            return value
        at += extent
    return None
