"""Random programs over random layouts: right or wrong, they are what rules must be true of."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.residency import region_of
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.kernel.program.where import joined as union
from shardproof.verifier.refute.scatter import scatter
from tests.laws.samples import layouts

MESHES = (Mesh.of(tp=2), Mesh.of(dp=2, tp=2), Mesh.of(tp=3), Mesh.of(one=1, tp=2))
MAX_SIZE = 256


class Author:
    """Appends random ops to a builder."""

    def __init__(self, b: Builder, rng: np.random.Generator) -> None:
        self.b, self.rng, self.mesh = b, rng, b.mesh
        self.moves = False
        """Whether values may live on some ranks only."""

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def pick(self, kind: str, like: tuple[int, ...] | None = None) -> str:
        """A value of a kind, mostly a late one; one of shape `like` where there is one."""
        names = [n for n, t in self.b.types.items() if t.kind == kind]
        same = [n for n in names if self.b.types[n].shape == like]
        names = same if same and self.rng.random() < 0.7 else names
        recent = names[-6:] if self.rng.random() < 0.6 else names
        return recent[self.integer(0, len(recent))]

    def shape(self, value: str) -> tuple[int, ...]:
        return self.b.types[value].shape

    def step(self) -> str:
        """One random op. Raises IRError where the operands drawn do not fit."""
        families = [self.elementwise, self.elementwise, self.view, self.view, self.joined]
        families += [self.reduced, self.product, self.indexed, self.made]
        families += [self.collective] * 4 if self.mesh.dims else []
        families += [self.moving] * 6 if self.mesh.dims and self.moves else []
        return families[self.integer(0, len(families))]()

    def elementwise(self) -> str:
        b, kind = self.b, self.integer(0, 12)
        x = self.pick("float")
        y = self.pick("float", self.shape(x))
        if kind < 4:
            return b.add(("add", "sub", "mul", "div")[kind], x, y)
        if kind < 6:
            value = Fraction(self.integer(-3, 4), self.integer(1, 3))
            return b.add(("mul_scalar", "add_scalar")[kind - 4], x, value=value)
        if kind == 6:
            return b.add(("exp", "tanh", "neg", "reciprocal", "relu")[self.integer(0, 5)], x)
        if kind == 7:
            return b.add(("maximum", "minimum")[self.integer(0, 2)], x, y)
        if kind == 8:
            return b.add(("lt", "ge", "eq", "ne", "le", "gt")[self.integer(0, 6)], x, y)
        if kind == 9:
            kinds = ("bool", "integer", "float")
            z = self.pick(kinds[self.integer(0, 3)])
            return b.add("cast", z, dtype=("f32", "f64", "bool", "i64")[self.integer(0, 4)])
        if kind == 10:
            exponent = Fraction(self.integer(-2, 4), self.integer(1, 3))
            return b.add("pow", x, exponent=exponent)
        return b.add("where", self.pick("bool", self.shape(x)), x, y)

    def view(self) -> str:
        b = self.b
        x = self.pick(("float", "float", "float", "integer", "bool")[self.integer(0, 5)])
        shape = self.shape(x)
        rank = len(shape)
        dim = self.integer(0, rank) if rank else 0
        kind = self.integer(0, 7)
        if kind == 0:
            return b.add("permute", x, dims=tuple(int(i) for i in self.rng.permutation(rank)))
        if kind == 1:
            return b.add("reshape", x, shape=self.regrouped(shape))
        if kind == 2:
            grown = tuple(self.integer(1, 4) if n == 1 else n for n in shape)
            lead = (2,) if self.rng.random() < 0.3 else ()
            return b.add("expand", x, shape=(*lead, *grown))
        extent = shape[dim] if rank else 0
        if kind == 3:
            start = self.integer(0, extent + 1)
            stop = self.integer(start, extent + 1)
            return b.add("slice", x, dim=dim, start=start, stop=stop, step=self.integer(1, 3))
        if kind == 4:
            half = extent // 2
            return b.add("slice", x, dim=dim, start=half, stop=extent, step=1)
        if kind == 5:
            lo, hi = ((0, extent), (extent, 0), (1, 0), (extent, extent))[self.integer(0, 4)]
            return b.add("pad", x, dim=dim, lo=lo, hi=hi)
        return b.add("flip", x, dim=dim)

    def regrouped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape with as many elements: dims split, joined, or new ones of extent 1."""
        flat = [f for n in shape for f in _factors(n)]
        if self.rng.random() < 0.2:
            flat = [int(f) for f in self.rng.permutation(flat)]
        out: list[int] = []
        for f in flat:
            if out and self.rng.random() < 0.4:
                out[-1] *= f
            else:
                out.append(f)
        if self.rng.random() < 0.3:
            out.insert(self.integer(0, len(out) + 1), 1)
        return tuple(out)

    def joined(self) -> str:
        x = self.pick("float")
        dim = self.integer(0, max(1, len(self.shape(x))))
        return self.b.add("concat", x, self.pick("float", self.shape(x)), dim=dim)

    def reduced(self) -> str:
        x = self.pick(("float", "float", "integer", "bool")[self.integer(0, 4)])
        dims = tuple(i for i in range(len(self.shape(x))) if self.rng.random() < 0.5)
        name = ("sum", "sum", "amax")[self.integer(0, 3)]
        return self.b.add(name, x, dims=dims, keepdim=bool(self.integer(0, 2)))

    def product(self) -> str:
        x = self.pick("float")
        rank = len(self.shape(x))
        names = [n for n, t in self.b.types.items() if t.is_float and len(t.shape) == rank]
        y = names[self.integer(0, len(names))]
        return self.b.add("mm" if rank == 2 else "bmm", x, y)

    def offset(self, extent: int) -> int | Affine:
        if not self.mesh.dims or self.rng.random() < 0.4:
            return 0 if self.rng.random() < 0.8 else 1
        name = self.mesh.names[self.integer(0, len(self.mesh.names))]
        return Affine.of(self.integer(0, 2) if self.rng.random() < 0.2 else 0, {name: extent})

    def indexed(self) -> str:
        b, x, idx = self.b, self.pick("float"), self.pick("integer")
        rank = len(self.shape(x))
        dim = self.integer(0, rank) if rank else 0
        kind = self.integer(0, 4)
        extent = self.shape(x)[dim] if rank else 1
        size = (2, 4)[self.integer(0, 2)]
        if kind == 0:
            return b.add("take", x, idx, dim=dim, offset=self.offset(extent))
        if kind == 1:
            return b.add("index_add", x, idx, size=size, offset=self.offset(size))
        if kind == 2:
            return b.add("take_along", x, idx, dim=dim, offset=self.offset(extent))
        return b.add("put_along", x, idx, dim=dim, size=size, offset=self.offset(size))

    def made(self) -> str:
        shape = self.shape(self.pick("float"))
        if self.rng.random() < 0.5 or not shape:
            value = Fraction(self.integer(-1, 3))
            return self.b.add("full", shape=shape, value=value, dtype="f32")
        dim = self.integer(0, len(shape))
        offset = self.offset(shape[dim])
        dtype = ("i64", "f32")[self.integer(0, 2)]
        return self.b.add("iota", shape=shape, dim=dim, offset=offset, dtype=dtype)

    def collective(self) -> str:
        kinds = ("float", "float", "float", "integer", "bool")
        b, x = self.b, self.pick(kinds[self.integer(0, 5)])
        rank = len(self.shape(x))
        names = [str(n) for n in self.rng.permutation(self.mesh.names)]
        count = self.integer(1, len(names) + 1)
        group: str | tuple[str, ...] = names[0] if count == 1 else tuple(names[:count])
        dim = self.integer(0, rank) if rank else 0
        reduce = ("sum", "sum", "avg", "max", "min")[self.integer(0, 5)]
        if reduce == "avg" and self.mesh.size == 3:
            reduce = "sum"  # a third rounds, and a comparison may see it
        match self.integer(0, 6):
            case 0:
                return b.add("all_reduce", x, mesh_dim=group, reduce=reduce)
            case 1:
                return b.add("all_gather", x, mesh_dim=group, dim=dim)
            case 2:
                return b.add("reduce_scatter", x, mesh_dim=group, dim=dim, reduce=reduce)
            case 3:
                return b.add("shard_slice", x, mesh_dim=group, dim=dim)
            case 4:
                split = self.integer(0, rank) if rank else 0
                return b.add("all_to_all", x, mesh_dim=group, split_dim=split, concat_dim=dim)
            case _:
                index = self.integer(0, self.mesh[names[0]])
                return b.add("on_coord", x, mesh_dim=names[0], index=index)

    def moving(self) -> str:
        """An op on some ranks, or a value that changes ranks."""
        b, x = self.b, self.pick("float")
        name = self.mesh.names[self.integer(0, len(self.mesh.names))]
        size = self.mesh[name]
        at, rank = self.integer(0, size), len(self.shape(x))
        dim = self.integer(0, rank) if rank else 0
        match self.integer(0, 10):
            case 0 | 1:
                with b.on(**{name: at}):
                    op = ("only", "exp", "neg", "only")[self.integer(0, 4)]
                    return b.add(op, x)
            case 2:
                to = (at + 1) % size
                sent = b.add("send", x, mesh_dim=name, src=at, dst=to)
                return b.add("recv", sent, mesh_dim=name, src=at, dst=to)
            case 3:
                return b.add("broadcast", x, mesh_dim=name, index=at)
            case 4:
                return b.add("reduce_to", x, mesh_dim=name, index=at, reduce="sum")
            case 5:
                return b.add("ring_shift", x, mesh_dim=name, shift=self.integer(0, size))
            case 6:
                return b.add("gather", x, mesh_dim=name, dim=dim, index=at)
            case 7:
                return b.add("scatter", x, mesh_dim=name, dim=dim, index=at)
            case _:
                return self.merged()

    def merged(self) -> str:
        """Values of one type on ranks that differ, put together."""
        limited = [n for n in self.b.types if self.b.held.get(n)]
        if not limited:
            raise IRError("nothing to merge")
        first = limited[self.integer(0, len(limited))]
        parts, where = [first], self.b.held[first]
        for name in self.rng.permutation(limited):
            both = union(where, self.b.held[str(name)], self.mesh)
            if both is not None and self.b.types[str(name)] == self.b.types[first]:
                parts, where = [*parts, str(name)], both
        return self.b.add("merge", *parts)


def _factors(n: int) -> list[int]:
    out: list[int] = []
    for f in (2, 3, 5, 7):
        while n > 1 and n % f == 0:
            out.append(f)
            n //= f
    return [*out, n] if n > 1 or not out else out


def legal(b: Builder, before: int) -> bool:
    """Whether the ranks that should run the last nodes can."""
    try:
        for node in b.nodes[before:]:
            region_of(node, [b.held[v] for v in node.inputs], b.mesh)
    except Refused:
        return False
    return True


def grow(author: Author, count: int) -> None:
    """Append `count` ops that fit."""
    tries = 0
    made = 0
    while made < count and tries < 20 * count:
        tries += 1
        before = len(author.b.nodes)
        try:
            name = author.step()
        except IRError:
            continue
        if author.b.types[name].size > MAX_SIZE or not legal(author.b, before):
            while len(author.b.nodes) > before:
                node = author.b.nodes.pop()
                del author.b.types[node.outputs[0]]
            continue
        made += 1


def inputs(mesh: Mesh, rng: np.random.Generator) -> tuple[Program, Contract]:
    """A one-device program that returns its inputs, and random layouts of them."""
    n = mesh.size
    shapes = [(n, 2 * n), (2 * n, n), (n, 2 * n), (2 * n,), (1, 2 * n), (2, n, n), (), (1,)]
    b, chosen = Builder("one"), {}
    for i, (shape, dtype) in enumerate(
        [
            *((s, "f32") for s in shapes),
            ((n, 2 * n), "i64"),
            ((2 * n,), "i64"),
            ((n, 2 * n), "bool"),
        ]
    ):
        name = b.input(f"x{i}", TensorType(shape, dtype))
        b.output(name)
        options = layouts(shape, mesh, partial=False)
        chosen[name] = options[int(rng.integers(len(options)))]
    outputs = {f"output:{k}": v for k, v in chosen.items()}
    return b.build(), Contract(chosen, outputs)


def values(program: Program, rng: np.random.Generator) -> dict[str, Array]:
    out: dict[str, Array] = {}
    for item in program.inputs:
        shape = item.type.shape
        if item.type.is_float:
            out[item.name] = rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)
        elif item.type.dtype == "bool":
            out[item.name] = rng.integers(0, 2, shape).astype(bool)
        else:
            out[item.name] = rng.integers(-1, 6, shape)
    return out


def pieces(
    given: Mapping[str, Array], contract: Contract, mesh: Mesh, rng: np.random.Generator
) -> list[dict[str, Array]]:
    """The inputs of every rank."""
    parts = {n: scatter(a, contract.inputs[n], mesh, Floats(), rng) for n, a in given.items()}
    return [{n: p[r] for n, p in parts.items()} for r in range(mesh.size)]
