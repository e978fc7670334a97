"""Joins the programs of the ranks of a group into one program on a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from verifier.ir.builder import Builder
from verifier.ir.errors import IRError
from verifier.ir.program import Node, Program
from verifier.ir.types import Affine, Attr
from verifier.rewrite import Rewriting, rewrite


class RankError(IRError):
    """Ranks that no one program stands for: what differs."""


def join(programs: Sequence[Program], mesh_dim: str) -> Program:
    """The one program that is `programs[i]` on the rank with coordinate i.

    Names of values may differ; ops, operands and their order may not. Integers that grow evenly
    with the rank become `offset` attributes, slices that cut a value into its chunks become
    `shard_slice`. Where each rank pads its chunk with zeros to the whole, and the ranks are then
    summed, that is an `all_gather`. Every rank is compared.

    Raises:
        RankError: the ranks differ in any other way.
    """
    first = programs[0]
    size = len(programs)
    if first.mesh[mesh_dim] != size or first.mesh.size != size:
        raise RankError(f"{size} programs for the mesh {first.mesh}")
    b = Builder(first.name, first.mesh)
    b.reserve(first.types)
    names: list[dict[str, str]] = [{} for _ in programs]
    chunks: dict[str, str] = {}
    """For a value that is its own chunk of a whole and zeros elsewhere on each rank: the whole."""
    for items in _zip("inputs", [p.inputs for p in programs]):
        if any(item != items[0] for item in items):
            raise RankError(f"the input %{items[0].name} differs between ranks")
        b.input(items[0].name, items[0].type, items[0].role, items[0].path)
        for known in names:
            known[items[0].name] = items[0].name
    for nodes in _zip("ops", [p.nodes for p in programs]):
        node = nodes[0]
        operands = [tuple(k[v] for v in n.inputs) for k, n in zip(names, nodes, strict=True)]
        if any(n.op != node.op for n in nodes) or any(o != operands[0] for o in operands):
            raise RankError(f"ranks run different ops: {', '.join(_shown(n) for n in nodes)}")
        shapes = [b.types.get(v, first.types[v]).shape for v in operands[0]]
        padded = node.op == "pad" and _pads_chunks(nodes, shapes[0])
        with b.at(node.source):
            if padded and operands[0][0] not in chunks:
                dim = node.attrs["dim"]
                whole = b.add("all_gather", operands[0][0], mesh_dim=mesh_dim, dim=dim)
                chunks[node.outputs[0]] = whole
            elif any(v in chunks for v in operands[0]):
                _follow(b, node, operands[0][0], chunks)
            else:
                op, attrs = _joined(nodes, mesh_dim, shapes)
                b.add_node(op, operands[0], attrs, outputs=node.outputs, source=node.source)
        for known, n in zip(names, nodes, strict=True):
            known.update(zip(n.outputs, node.outputs, strict=True))
    for outs in _zip("outputs", [p.outputs for p in programs]):
        values = {k[o.value] for k, o in zip(names, outs, strict=True)}
        if len(values) != 1 or len({(o.role, o.path) for o in outs}) != 1:
            raise RankError(f"the output {outs[0].role}:{outs[0].path} differs between ranks")
        value = values.pop()
        if value in chunks:
            raise RankError(f"the output {outs[0].role}:{outs[0].path} is one chunk on each rank")
        b.output(value, outs[0].role, outs[0].path)
    return b.build()


def _pads_chunks(nodes: Sequence[Node], shape: tuple[int, ...]) -> bool:
    """Whether rank i puts its operand at chunk i of as many as there are ranks."""
    dim, n = nodes[0].attrs["dim"], len(nodes)
    assert isinstance(dim, int)
    ends = [(k.attrs["dim"], k.attrs["lo"], k.attrs["hi"]) for k in nodes]
    return ends == [(dim, i * shape[dim], (n - 1 - i) * shape[dim]) for i in range(n)]


def _follow(b: Builder, node: Node, operand: str, chunks: dict[str, str]) -> None:
    """An op on chunks padded with zeros: reshapes keep them so, a sum over ranks joins them."""
    whole = chunks.get(operand)
    if whole is not None and node.op == "reshape":
        chunks[node.outputs[0]] = b.add("reshape", whole, **node.attrs)
    elif whole is not None and node.op == "all_reduce" and node.attrs.get("reduce") == "sum":
        attrs: dict[str, Attr] = {"shape": b.types[whole].shape}
        b.add_node("reshape", [whole], attrs, outputs=node.outputs, source=node.source)
    else:
        raise RankError(f"{_shown(node)} reads a chunk that each rank padded with zeros")


def _zip(what: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    counts = {len(row) for row in rows}
    if len(counts) != 1:
        raise RankError(f"ranks have different numbers of {what}: {sorted(counts)}")
    return list(zip(*rows, strict=True))


def _shown(node: Node) -> str:
    attrs = ", ".join(f"{k}={v}" for k, v in sorted(node.attrs.items()))
    return f"{node.op} ({attrs})"


def _joined(
    nodes: Sequence[Node], mesh_dim: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[str, dict[str, Attr]]:
    node = nodes[0]
    attrs = dict(node.attrs)
    if all(dict(n.attrs) == attrs for n in nodes):
        return node.op, attrs
    changing = {k for n in nodes for k in attrs if n.attrs.get(k) != attrs[k]}
    if changing == {"offset"}:
        return node.op, {**attrs, "offset": _fit(nodes, mesh_dim)}
    if changing == {"start", "stop"}:
        dim, n = attrs["dim"], len(nodes)
        assert isinstance(dim, int)
        chunk, left = divmod(shapes[0][dim], n)
        cuts = [(k.attrs["start"], k.attrs["stop"], k.attrs["step"]) for k in nodes]
        if not left and cuts == [(i * chunk, (i + 1) * chunk, 1) for i in range(n)]:
            return "shard_slice", {"mesh_dim": mesh_dim, "dim": dim}
    raise RankError(f"ranks differ: {', '.join(_shown(n) for n in nodes)}")


def _fit(nodes: Sequence[Node], mesh_dim: str) -> Attr:
    offsets = [n.attrs.get("offset", 0) for n in nodes]
    whole = [o for o in offsets if isinstance(o, int)]
    if len(whole) == len(offsets):
        step = whole[1] - whole[0]
        if whole == [whole[0] + i * step for i in range(len(whole))]:
            return Affine.of(whole[0], {mesh_dim: step})
    raise RankError(f"offsets do not grow evenly with the rank: {offsets}")


def gathers_by_dim(program: Program) -> Program:
    """Collectives on dim 0 with the chunks and joins around them, as collectives on one dim.

    With g = all_gather(x, 0) of n pieces and their chunks along dim 0 in order:
    concat(chunks of g, d) = all_gather(x, d). With the n chunks of x along d in order:
    reduce_scatter(concat(chunks, 0), 0) = reduce_scatter(x, d). A row-parallel layer adds its bias
    divided by n before the sum: all_reduce(x + b / n) = all_reduce(x) + all_reduce(b / n).
    """
    program = rewrite(program, {"concat": _gather, "reduce_scatter": _scatter})
    return rewrite(program, {"reduce_scatter": _scattered_bias, "all_reduce": _bias})


def _chunks(r: Rewriting, node: Node, dim: int, count: int) -> str | None:
    """The value whose `count` equal chunks along `dim`, in order, are the operands of `node`."""
    parts = [r.made(v, "slice") for v in node.inputs]
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


def _gather(r: Rewriting, node: Node) -> str | None:
    x = _chunks(r, node, 0, len(node.inputs))
    gather = r.made(x, "all_gather") if x is not None else None
    if gather is None or gather.attrs["dim"] != 0:
        return None
    name = gather.attrs["mesh_dim"]
    if not isinstance(name, str) or r.b.mesh[name] != len(node.inputs):
        return None
    return r.add("all_gather", gather.inputs[0], mesh_dim=name, dim=node.attrs["dim"])


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
    x = _chunks(r, joined, dim, r.b.mesh[name])
    if x is None:
        return None
    reduce = node.attrs.get("reduce", "sum")
    return r.add("reduce_scatter", x, mesh_dim=name, dim=dim, reduce=reduce)


def _bias(r: Rewriting, node: Node) -> str | None:
    name = node.attrs["mesh_dim"]
    source = r.through(node.inputs[0], "reshape")
    total = r.made(source, "add")
    if total is None or not isinstance(name, str) or node.attrs.get("reduce", "sum") != "sum":
        return None
    for x, bias in (total.inputs, total.inputs[::-1]):
        share = r.made(bias, "mul_scalar")
        if share is not None and share.attrs["value"] == Fraction(1, r.b.mesh[name]):
            summed = [r.add("all_reduce", v, mesh_dim=name, reduce="sum") for v in (x, bias)]
            return r.reshape(r.add("add", *summed), r.type(node.outputs[0]).shape)
    return None


def _scattered_bias(r: Rewriting, node: Node) -> str | None:
    """A reduce_scatter is a chunk of an all_reduce."""
    whole = r.add("all_reduce", node.inputs[0], mesh_dim=node.attrs["mesh_dim"], reduce="sum")
    made = r.node(whole)
    opened = _bias(r, made) if made is not None and node.attrs["reduce"] == "sum" else None
    if opened is None:
        return None
    return r.add("shard_slice", opened, mesh_dim=node.attrs["mesh_dim"], dim=node.attrs["dim"])
