"""Writes a model once and builds it for one device or for a mesh.

On one device the collectives below vanish and every extent is whole, so that one text gives the
sequential program, the distributed one and the contract between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Atom, Layout, normal, whole
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType


@dataclass(frozen=True)
class Base:
    """A one-device program, a distributed one that is equal to it, and the contract."""

    name: str
    sequential: Program
    distributed: Program
    contract: Contract

    def __str__(self) -> str:
        return f"{self.name}[{self.distributed.mesh}]"


class Author:
    """A builder that knows the mesh. `split` and the collectives do nothing on one device."""

    def __init__(self, name: str, mesh: Mesh) -> None:
        self.b = Builder(name, mesh)
        self.mesh = mesh
        self.layouts: dict[str, Layout] = {}
        self.reduced: dict[str, list[tuple[str, str]]] = {}
        self.stopped: list[str] = []
        self.loss: str | None = None
        self.outputs: dict[str, dict[str, str]] = {}

    def size(self, name: str) -> int:
        """Extent of a mesh dim, 1 where the mesh has none of that name."""
        return dict(self.mesh.dims).get(name, 1)

    def split(self, extent: int, name: str = "tp") -> int:
        """What is left of an extent on one rank."""
        return extent // self.size(name)

    def layout(self, shape: tuple[int, ...], **placements: str) -> Layout:
        return from_placements(
            shape, [(n, size, placements.get(n, "R")) for n, size in self.mesh.dims]
        )

    def param(self, name: str, *shape: int, **placements: str) -> str:
        return self._input(name, self.layout(shape, **placements), "f32", "param")

    def fused(self, name: str, rows: int, parts: int, columns: int) -> str:
        """A weight `[rows, parts * columns]`, each part split over tp by columns."""
        size = self.size("tp")
        bound = (Atom(size, "tp"),) if "tp" in self.mesh else ()
        dim = normal((Atom(parts), *bound, Atom(columns // size)))
        return self._input(name, Layout((whole(rows), dim)), "f32", "param")

    def input(self, name: str, *shape: int, dtype: str = "f32", **placements: str) -> str:
        return self._input(name, self.layout(shape, **placements), dtype, "input")

    def _input(self, name: str, layout: Layout, dtype: str, role: str) -> str:
        self.layouts[name] = layout
        return self.b.input(name, TensorType(layout.local_shape, dtype), role)

    def add(self, op: str, *values: str, **attrs: object) -> str:
        return self.b.add(op, *values, **attrs)  # type: ignore[arg-type]

    def enter(self, x: str, name: str = "tp") -> str:
        """A replicated value that each rank uses for its own part: its cotangent is summed."""
        if name not in self.mesh:
            return x
        seen = self.add("reshape", x, shape=self.b.types[x].shape)
        self.reduced[seen] = [(name, "sum")]
        return seen

    def sync(self, param: str, name: str, reduce: str = "sum") -> None:
        """Reduce the gradient of a param over a mesh dim."""
        if name in self.mesh:
            self.reduced.setdefault(param, []).append((name, reduce))

    def all_reduce(self, x: str, name: str = "tp", reduce: str = "sum") -> str:
        return self._collective("all_reduce", x, name, reduce=reduce)

    def all_gather(self, x: str, dim: int, name: str = "tp") -> str:
        return self._collective("all_gather", x, name, dim=dim)

    def reduce_scatter(self, x: str, dim: int, name: str = "tp") -> str:
        return self._collective("reduce_scatter", x, name, dim=dim, reduce="sum")

    def all_to_all(self, x: str, split_dim: int, concat_dim: int, name: str = "tp") -> str:
        return self._collective("all_to_all", x, name, split_dim=split_dim, concat_dim=concat_dim)

    def _collective(self, op: str, x: str, name: str, **attrs: object) -> str:
        return self.add(op, x, mesh_dim=name, **attrs) if name in self.mesh else x

    def offset(self, extent: int, name: str = "tp") -> int | Affine:
        """Where the rows of a rank start, `extent` being what a rank holds."""
        return Affine.of(0, {name: extent}) if name in self.mesh else 0

    def output(self, value: str, path: str, role: str = "output", **placements: str) -> None:
        self.b.output(value, role, path)
        self.outputs[f"{role}:{path}"] = placements

    def scale(self, x: str, value: Fraction) -> str:
        return self.add("mul_scalar", x, value=value)

    def linear(self, x: str, w: str, bias: str | None = None) -> str:
        y = self.add("mm", x, w)
        return self.add("add", y, bias) if bias else y


Model = Callable[[Author], None]


def base(name: str, model: Model, mesh: Mesh) -> Base:
    """Both programs of a model, with the gradients of all params, and their contract."""
    one, many = Author(name, Mesh()), Author(name, mesh)
    programs: list[Program] = []
    for author in (one, many):
        model(author)
        programs.append(
            grad(
                author.b.build(),
                loss=author.loss,
                stopped=author.stopped,
                reduced=author.reduced,
            )
        )
    sequential, distributed = programs
    inputs = dict(many.layouts)
    outputs: dict[str, Layout] = {}
    for out in sequential.outputs:
        key, shape = output_key(out), sequential[out.value].shape
        if out.role == "grad":
            outputs[key] = many.layouts[
                next(i.name for i in sequential.inputs if i.path == out.path)
            ]
        else:
            outputs[key] = many.layout(shape, **many.outputs[key])
            for item in sequential.inputs:
                if item.role == "cotangent" and item.path == out.path:
                    inputs[item.name] = outputs[key]
    return Base(name, sequential, distributed, Contract(inputs, outputs))
