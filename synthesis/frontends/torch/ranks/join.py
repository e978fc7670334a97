"""Joins the programs of single ranks into one program on a mesh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from shardproof.synthesis.frontends.torch.ranks.shared_parts import Shared
from shardproof.verifier.analysis.rewrite import Rewriting, rewrite
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Affine, Attr

Coords = Mapping[str, int]
"""Where a rank stands: its index along each mesh dim."""


class RankError(IRError):
    """Ranks that no one program stands for: what differs."""


class FewRanksError(RankError):
    """Ranks that differ, and too few of them to say along which mesh dim."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What each rank has of a whole, and zeros elsewhere."""

    whole: str
    mesh_dim: str
    part: str
    dim: int
    """The chunk alone, and the dim of which it is one before any reshape."""


def join(programs: Sequence[tuple[Coords, Program]]) -> Program:
    """The one program that is `program` on the rank at `coords`, for each pair.

    Names of values may differ; ops, operands and their order may not. Integers that grow evenly
    along one mesh dim become `offset` attributes, slices that cut a value into its chunks become
    `shard_slice`. Where each rank pads its chunk with zeros to the whole, and the ranks are then
    summed, that is an `all_gather`. Ranks in a row may have the same chunk (`shared_parts`), if all
    along the mesh dim are given. Every rank that is given is compared; the others are
    taken to follow the same rule.

    Raises:
        FewRanksError: they differ in a way that several mesh dims would explain.
        RankError: they differ in any other way.
    """
    places = [coords for coords, _ in programs]
    given = [program for _, program in programs]
    first = given[0]
    b = Builder(first.name, first.mesh)
    b.reserve(first.types)
    names: list[dict[str, str]] = [{} for _ in given]
    chunks: dict[str, Chunk] = {}
    """The values that are their own chunk of a whole and zeros elsewhere on each rank."""
    for items in _zip("inputs", [p.inputs for p in given]):
        if any(item != items[0] for item in items):
            raise RankError(f"the input %{items[0].name} differs between ranks")
        b.input(items[0].name, items[0].type, items[0].role, items[0].path)
        for known in names:
            known[items[0].name] = items[0].name
    for nodes in _zip("ops", [p.nodes for p in given]):
        node = nodes[0]
        operands = [tuple(k[v] for v in n.inputs) for k, n in zip(names, nodes, strict=True)]
        if any(n.op != node.op for n in nodes) or any(o != operands[0] for o in operands):
            raise RankError(f"ranks run different ops: {_apart(nodes)}")
        shapes = [b.types.get(v, first.types[v]).shape for v in operands[0]]
        varied = _Varied(nodes, places, first.mesh)
        part = varied.part(shapes) if varied else None
        made = node.outputs[0]
        with b.at(node.source):
            if any(v in chunks for v in operands[0]) and _follow(b, node, operands[0][0], chunks):
                pass
            elif part is None:
                op, attrs = varied.joined()
                b.add_node(op, operands[0], attrs, outputs=node.outputs, source=node.source)
            elif node.op == "slice":
                part.chunk(b, operands[0][0], made)
            elif part.share > 1:
                part.padded(b, operands[0][0], made)
            else:
                name, dim, own = part.mesh_dim, part.dim, operands[0][0]
                whole = b.add("all_gather", own, mesh_dim=name, dim=dim)
                chunks[made] = Chunk(whole, name, own, dim)
        for known, n in zip(names, nodes, strict=True):
            known.update(zip(n.outputs, node.outputs, strict=True))
    for outs in _zip("outputs", [p.outputs for p in given]):
        values = {k[o.value] for k, o in zip(names, outs, strict=True)}
        if len(values) != 1 or len({(o.role, o.path) for o in outs}) != 1:
            raise RankError(f"the output {outs[0].role}:{outs[0].path} differs between ranks")
        value = values.pop()
        if value in chunks:
            raise RankError(f"the output {outs[0].role}:{outs[0].path} is one chunk on each rank")
        b.output(value, outs[0].role, outs[0].path)
    return b.build()


Rule = Mapping[str, tuple[int, int]]
"""Attribute -> (value of the first part, step from one part to the next)."""


class _Varied:
    """The ops that ranks run at one place, and what of them depends on the rank."""

    def __init__(self, nodes: Sequence[Node], places: Sequence[Coords], mesh: Any) -> None:
        self.nodes, self.places, self.mesh = nodes, places, mesh
        attrs = nodes[0].attrs
        self.keys = {k for n in nodes for k in attrs if n.attrs.get(k) != attrs[k]}

    def __bool__(self) -> bool:
        return bool(self.keys)

    def fits(self, name: str, rule: Rule, share: int = 1) -> bool:
        """Whether they follow the rule along a mesh dim, `share` ranks in a row with one part."""
        return set(rule) == self.keys and all(
            node.attrs.get(key) == start + step * (place[name] // share)
            for node, place in zip(self.nodes, self.places, strict=True)
            for key, (start, step) in rule.items()
        )

    def part(self, shapes: Sequence[tuple[int, ...]]) -> Shared | None:
        """How a slice takes a part of its operand, or a pad makes its operand a part, by rank; None
        where it does not.

        Raises:
            FewRanksError: the ranks leave open which mesh dim it is, or which share a part.
        """
        count, rule = _parts_of(self.nodes[0], shapes)
        shares = {n: size // count for n, size in self.mesh.dims if count and size % count == 0}
        name = self._sure([n for n, share in shares.items() if self.fits(n, rule, share)])
        if name is None:
            return None
        if shares[name] > 1 and len({place[name] for place in self.places}) < self.mesh[name]:
            raise FewRanksError(f"ranks along {name} share parts: {_apart(self.nodes)}")
        return Shared(name, self.nodes[0].number("dim"), count, shares[name])

    def _sure(self, found: Sequence[str]) -> str | None:
        """The one mesh dim that fits; the ranks must tell every dim from the others."""
        if found and not _spans(self.places, [n for n, size in self.mesh.dims if size > 1]):
            raise FewRanksError(f"ranks differ along {' or '.join(found)}: {_apart(self.nodes)}")
        return found[0] if len(found) == 1 else None

    def joined(self) -> tuple[str, dict[str, Attr]]:
        """The op and attributes that stand for all."""
        node = self.nodes[0]
        attrs = dict(node.attrs)
        if not self.keys:
            return node.op, attrs
        if self.keys == {"offset"}:
            return node.op, {**attrs, "offset": self._offset()}
        raise RankError(f"ranks differ: {_apart(self.nodes)}")

    def _offset(self) -> Attr:
        found: dict[str, Attr] = {}
        for name, _ in self.mesh.dims:
            values = {place[name]: node.attrs.get("offset", 0)
                      for node, place in zip(self.nodes, self.places, strict=True)}  # fmt: skip
            low, high = min(values), max(values)
            a, z = values[low], values[high]
            if low == high or not isinstance(a, int) or not isinstance(z, int):
                continue
            step, left = divmod(z - a, high - low)
            if not left and self.fits(name, {"offset": (a - step * low, step)}):
                found[name] = Affine.of(a - step * low, {name: step})
        name = self._sure(list(found))
        if name is None:
            raise RankError(f"offsets do not grow evenly with the rank: {_apart(self.nodes)}")
        return found[name]


def _spans(places: Sequence[Coords], names: Sequence[str]) -> bool:
    """Whether a number that grows evenly along each mesh dim is known everywhere once it is known
    at these places."""
    rows: list[list[Fraction]] = [
        [Fraction(place[n] - places[0][n]) for n in names] for place in places[1:]
    ]
    for at in range(len(names)):
        pivot = next((i for i in range(at, len(rows)) if rows[i][at]), None)
        if pivot is None:
            return False
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for i in range(at + 1, len(rows)):
            factor = rows[i][at] / rows[at][at]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[at], strict=True)]
    return True


def _parts_of(node: Node, shapes: Sequence[tuple[int, ...]]) -> tuple[int, Rule]:
    """Of how many parts of one size a slice takes one, or a pad makes its operand one, and how it
    does with part i; 0 where it does not."""
    match node.op:
        case "slice" if node.attrs["step"] == 1:
            whole, size = shapes[0][node.number("dim")], node.number("stop") - node.number("start")
            rule = {"start": (0, size), "stop": (size, size)}
        case "pad" if isinstance(node.attrs["lo"], int) and isinstance(node.attrs["hi"], int):
            size = shapes[0][node.number("dim")]
            whole = size + node.number("lo") + node.number("hi")
            rule = {"lo": (0, size), "hi": (whole - size, -size)}
        case _:
            return 0, {}
    return (whole // size, rule) if size > 0 and whole % size == 0 else (0, {})


def _apart(nodes: Sequence[Node]) -> str:
    """What ranks run at one place, each kind once."""
    shown = list(dict.fromkeys(_shown(n) for n in nodes))
    source = f" at {nodes[0].source}" if nodes[0].source.line else ""
    return ", ".join(shown[:4]) + (", ..." if len(shown) > 4 else "") + source


def _follow(b: Builder, node: Node, operand: str, chunks: dict[str, Chunk]) -> bool:
    """An op on chunks padded with zeros: reshapes keep them so, a sum over their ranks joins
    them. Whether it was one of these; any other reads the chunk with its zeros."""
    chunk = chunks.get(operand)
    summed = node.op == "all_reduce" and node.attrs.get("reduce") == "sum"
    if chunk is not None and node.op == "reshape":
        whole = b.add("reshape", chunk.whole, **node.attrs)
        chunks[node.outputs[0]] = replace(chunk, whole=whole)
        return True
    if chunk is not None and summed and node.attrs["mesh_dim"] == chunk.mesh_dim:
        attrs: dict[str, Attr] = {"shape": b.types[chunk.whole].shape}
        b.add_node("reshape", [chunk.whole], attrs, outputs=node.outputs, source=node.source)
        return True
    for value in dict.fromkeys(v for v in node.inputs if v in chunks):
        _spread(b, value, chunks.pop(value))
    return False


def _spread(b: Builder, value: str, chunk: Chunk) -> None:
    """The chunk at its place in the whole, zeros elsewhere, as the value of that name."""
    padded = b.add("shard_pad", chunk.part, mesh_dim=chunk.mesh_dim, dim=chunk.dim)
    attrs: dict[str, Attr] = {"shape": b.types[chunk.whole].shape}
    b.add_node("reshape", [padded], attrs, outputs=[value])


def _zip(what: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    counts = {len(row) for row in rows}
    if len(counts) != 1:
        raise RankError(f"ranks have different numbers of {what}: {sorted(counts)}")
    return list(zip(*rows, strict=True))


def _shown(node: Node) -> str:
    attrs = ", ".join(f"{k}={v}" for k, v in sorted(node.attrs.items()))
    return f"{node.op} ({attrs})"


def gathers_by_dim(program: Program) -> Program:
    """Collectives on dim 0 with the chunks and joins around them, as collectives on one dim.

    With g = all_gather(x, 0) of n pieces and their chunks along dim 0 in order:
    concat(chunks of g, d) = all_gather(x, d). With the n chunks of x along d in order:
    reduce_scatter(concat(chunks, 0), 0) = reduce_scatter(x, d). A row-parallel layer adds its bias
    divided by n before the sum: all_reduce(x + b / n) = all_reduce(x) + all_reduce(b / n). Where
    each micro-batch averages what was accumulated, avg(avg(x) + y) = avg(x) + avg(y). What
    an all_to_all is given or brings, in chunks that are joined, as they are or each reshaped, is
    the value of these with its dims in another order. What it brings from each rank, joined along a
    dim, is an all_to_all that joins along that; and of stacked chunks of x, one that splits x along
    their dim. Added up, it is a reduce_scatter.
    """
    program = rewrite(
        program, {"concat": gathered_along, "reduce_scatter": _scatter}, some_ranks=True
    )
    program = rewrite(
        program, {"reduce_scatter": _scattered_bias, "all_reduce": _bias}, some_ranks=True
    )
    program = rewrite(
        program, {"concat": _stacked_of_all, "all_to_all": _of_stacked}, some_ranks=True
    )
    program = rewrite(program, {"reshape": _exchanged, "sum": _added_up}, some_ranks=True)
    return rewrite(program, {"all_to_all": _along}, some_ranks=True)


def _chunks(r: Rewriting, values: Sequence[str], dim: int, count: int) -> str | None:
    """The value whose `count` equal chunks along `dim`, in order, these are."""
    parts = [r.made(v, "slice") for v in values]
    first = parts[0]
    if first is None or len(parts) != count:
        return None
    x = first.inputs[0]
    chunk, left = divmod(r.type(x).shape[dim], count)
    for i, part in enumerate(parts):
        expected = {"dim": dim, "start": i * chunk, "stop": (i + 1) * chunk, "step": 1}
        if left or part is None or part.inputs[0] != x or dict(part.attrs) != expected:
            return None
    return x


def gathered_along(r: Rewriting, node: Node) -> str | None:
    """The chunks of an all_gather on dim 0, joined along another dim."""
    x = _chunks(r, node.inputs, 0, len(node.inputs))
    gather = r.made(x, "all_gather") if x is not None else None
    if gather is None or gather.attrs["dim"] != 0:
        return None
    name = gather.attrs["mesh_dim"]
    if not isinstance(name, str) or r.b.mesh[name] != len(node.inputs):
        return None
    return r.add("all_gather", gather.inputs[0], mesh_dim=name, dim=node.attrs["dim"])


def _stacked_of_all(r: Rewriting, node: Node) -> str | None:
    """Chunks of what an all_to_all brings, joined."""
    chunk = r.made(r.through(node.inputs[0], "reshape"), "slice")
    came = chunk is not None and r.made(_arranged(r, chunk.inputs[0]), "all_to_all") is not None
    return _stacked(r, node) if came else None


def _of_stacked(r: Rewriting, node: Node) -> str | None:
    """An all_to_all of chunks that are joined."""
    joined = r.made(r.through(node.inputs[0], "reshape"), "concat")
    stack = None if joined is None else _stacked(r, joined)
    if stack is None:
        return None
    return r.add("all_to_all", r.reshape(stack, r.type(node.inputs[0]).shape), **node.attrs)


def _arranged(r: Rewriting, name: str) -> str:
    """What a value is by reshapes and permutations."""
    while (node := r.made(name, "reshape", "permute")) is not None:
        name = node.inputs[0]
    return name


def _stacked(r: Rewriting, node: Node) -> str | None:
    count, shapes = len(node.inputs), {r.type(v).shape for v in node.inputs}
    parts = [r.through(v, "reshape") for v in node.inputs]
    first, along = r.made(parts[0], "slice"), node.attrs["dim"]
    dim = first.attrs["dim"] if first is not None else None
    if count < 2 or len(shapes) > 1 or not isinstance(dim, int) or not isinstance(along, int):
        return None
    x = _chunks(r, parts, dim, count)
    if x is None:
        return None
    shape, (piece,) = r.type(x).shape, shapes
    wide = r.reshape(x, (*shape[:dim], count, shape[dim] // count, *shape[dim + 1 :]))
    front = r.add("permute", wide, dims=_to_place(len(shape) + 1, dim, 0))
    stack = r.reshape(front, (count, *piece))
    placed = r.add("permute", stack, dims=_to_place(len(piece) + 1, 0, along))
    return r.reshape(placed, (*piece[:along], piece[along] * count, *piece[along + 1 :]))


def _exchanged(r: Rewriting, node: Node) -> str | None:
    """The pieces [n, ...] that all ranks sent, joined along a dim of theirs."""
    turned = r.made(node.inputs[0], "permute")
    came = turned.inputs[0] if turned is not None else node.inputs[0]
    sent = r.made(_unmoved(r, came), "all_to_all")
    if sent is None or (sent.attrs["split_dim"], sent.attrs["concat_dim"]) != (0, 1):
        return None
    shape, pieces = r.type(sent.inputs[0]).shape, r.type(came).shape
    n, got = shape[0], r.type(sent.outputs[0]).shape
    several = got[1] != n
    piece = shape[1:] if several else shape[2:]
    if got[0] != 1 or got[1] not in (n, n * shape[1]) or pieces != (n, *piece):
        return None
    order = turned.attrs["dims"] if turned is not None else tuple(range(len(pieces)))
    at = order.index(0) if isinstance(order, tuple) else len(piece)
    if at == len(piece) or order != _to_place(len(pieces), 0, at):
        return None
    joined = (*piece[:at], n * piece[at], *piece[at + 1 :])
    if r.type(node.outputs[0]).shape != joined or (several and at == 0):
        return None
    attrs = {**sent.attrs, "concat_dim": at + 2}
    apart = r.reshape(sent.inputs[0], (n, 1, *piece))
    return r.reshape(r.add("all_to_all", apart, **attrs), joined)


def _along(r: Rewriting, node: Node) -> str | None:
    """The chunks [n, 1, ...] or [n, ...] of a value that all ranks send, which are stacked."""
    split, joins = node.attrs["split_dim"], node.attrs["concat_dim"]
    given, got = r.type(node.inputs[0]).shape, r.type(node.outputs[0]).shape
    turned = r.made(_unmoved(r, node.inputs[0]), "permute")
    if turned is None or split != 0 or not isinstance(joins, int) or joins < 1 or got[0] != 1:
        return None
    before = 2 if given[1] == 1 and joins > 1 else 1
    n, piece = given[0], given[before:]
    order, wide = turned.attrs["dims"], r.type(turned.inputs[0]).shape
    at = order[0] if isinstance(order, tuple) else None
    if not isinstance(at, int):
        return None
    chunked = (*piece[:at], n, *piece[at:])
    if order != _to_place(len(piece) + 1, at, 0) or wide != chunked or at == len(piece):
        return None
    x = r.reshape(turned.inputs[0], (*piece[:at], n * piece[at], *piece[at + 1 :]))
    attrs = {**node.attrs, "split_dim": at, "concat_dim": joins - before}
    return r.reshape(r.add("all_to_all", x, **attrs), got)


def _added_up(r: Rewriting, node: Node) -> str | None:
    """The sum of the pieces [n, ...] that all ranks sent."""
    sent = r.made(_unmoved(r, node.inputs[0]), "all_to_all")
    if sent is None or (sent.attrs["split_dim"], sent.attrs["concat_dim"]) != (0, 1):
        return None
    name, n = sent.attrs["mesh_dim"], r.type(node.inputs[0]).shape[0]
    each = isinstance(name, str) and r.b.mesh[name] == n == r.type(sent.inputs[0]).shape[0]
    if not each or node.attrs["dims"] != (0,):
        return None
    total = r.add("reduce_scatter", sent.inputs[0], mesh_dim=name, dim=0, reduce="sum")
    return r.reshape(total, r.type(node.outputs[0]).shape)


def _unmoved(r: Rewriting, name: str) -> str:
    """What a value is by reshapes, and by permutations that keep the order of dims."""
    while (node := r.made(name, "reshape", "permute")) is not None:
        dims = node.attrs.get("dims")
        if isinstance(dims, tuple) and dims != tuple(range(len(dims))):
            break
        name = node.inputs[0]
    return name


def _to_place(rank: int, source: int, target: int) -> tuple[int, ...]:
    """The order of dims that puts one at another place."""
    order = [d for d in range(rank) if d != source]
    return (*order[:target], source, *order[target:])


def _scatter(r: Rewriting, node: Node) -> str | None:
    name = node.attrs["mesh_dim"]
    joined = r.made(node.inputs[0], "concat")
    if joined is None or not isinstance(name, str) or node.attrs["dim"] != 0:
        return None
    if joined.attrs["dim"] != 0:
        return None
    first = r.made(joined.inputs[0], "slice")
    dim = first.attrs["dim"] if first is not None else None
    if not isinstance(dim, int):
        return None
    x = _chunks(r, joined.inputs, dim, r.b.mesh[name])
    if x is None:
        return None
    reduce = node.attrs.get("reduce", "sum")
    return r.add("reduce_scatter", x, mesh_dim=name, dim=dim, reduce=reduce)


def _bias(r: Rewriting, node: Node) -> str | None:
    name = node.attrs["mesh_dim"]
    source = r.through(node.inputs[0], "reshape")
    total = r.made(source, "add")
    if total is None or not isinstance(name, str):
        return None
    if node.attrs.get("reduce", "sum") == "avg" and source == node.inputs[0]:
        for x, new in (total.inputs, total.inputs[::-1]):
            if _is_mean(r, x, name):
                return r.add("add", x, r.add("all_reduce", new, **node.attrs))
    if node.attrs.get("reduce", "sum") != "sum":
        return None
    for x, bias in (total.inputs, total.inputs[::-1]):
        share = r.made(bias, "mul_scalar")
        if share is not None and share.attrs["value"] == Fraction(1, r.b.mesh[name]):
            summed = [r.add("all_reduce", v, mesh_dim=name, reduce="sum") for v in (x, bias)]
            return r.reshape(r.add("add", *summed), r.type(node.outputs[0]).shape)
    return None


def _is_mean(r: Rewriting, name: str, dim: str) -> bool:
    """Whether all ranks along a mesh dim have a value alike: a sum of means over it."""
    node = r.made(r.through(name, "reshape"), "all_reduce", "add")
    if node is None or node.op == "add":
        return node is not None and all(_is_mean(r, v, dim) for v in node.inputs)
    return (node.attrs["mesh_dim"], node.attrs.get("reduce")) == (dim, "avg")


def _scattered_bias(r: Rewriting, node: Node) -> str | None:
    """A reduce_scatter is a chunk of an all_reduce."""
    whole = r.add("all_reduce", node.inputs[0], mesh_dim=node.attrs["mesh_dim"], reduce="sum")
    made = r.node(whole)
    opened = _bias(r, made) if made is not None and node.attrs["reduce"] == "sum" else None
    if opened is None:
        return None
    return r.add("shard_slice", opened, mesh_dim=node.attrs["mesh_dim"], dim=node.attrs["dim"])
