"""Class programs: a list of ops on named tensors, and what every op has to say for itself.

An op is one declaration: which fields name what it reads and writes, what it means on one device
(`one_device`), and what the ranks run (`on_ranks`), both as ops of the core. Nothing here judges
a placement; that is left to the rules of the core's ops.
"""

from __future__ import annotations

import linecache
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from shardproof.compat.errors import ProgramError
from shardproof.compat.mesh import DeviceMesh
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.layout import Layout, bound, local_extent
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import NOWHERE, Affine, Source

HERE = str(Path(__file__).parent)


def call_site() -> Source:
    """The first line of the caller's code outside this package."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((HERE, "<string>")):
            text = linecache.getline(name, frame.f_lineno).strip()
            return Source(name, frame.f_lineno, text=text)
        frame = frame.f_back
    return NOWHERE


@dataclass
class Ranks:
    """Where an op is lowered for the ranks: the builder, and what its operands are there."""

    b: Builder
    mesh: DeviceMesh
    layouts: Mapping[str, Layout]
    """Builder name -> layout, for operands that have a relation."""
    states: Mapping[str, TensorState]
    """Class name -> state, for dtypes, handles and scales."""

    def dims(self, mesh_dim: str | None) -> str | tuple[str, ...]:
        """The mesh dims of a collective: the one named, or the whole mesh."""
        names = self.mesh.dim_names
        if mesh_dim is not None:
            if mesh_dim not in names:
                raise ProgramError(f"the mesh {self.mesh.core} has no dim {mesh_dim!r}")
            return mesh_dim
        return names if len(names) > 1 else "".join(names)

    def one_dim(self, mesh_dim: str | None, what: str) -> str:
        """The mesh dim of an op that runs along one only."""
        found = self.dims(mesh_dim)
        if not isinstance(found, str):
            raise ProgramError(f"{what} on the mesh {self.mesh.core}: name a mesh_dim")
        return found

    def dim(self, value: str, dim: int, what: str) -> int:
        """A dim counted from the front. Raises ProgramError where the tensor has no such dim."""
        return real_dim(dim, len(self.b.types[value].shape), what)

    def window(self, value: str, dim: int) -> int | Affine:
        """Where the block of `dim` on a rank starts, for a dim that is split in one block."""
        layout = self.layouts.get(value)
        if layout is None:
            return 0
        atoms = layout.dims[dim]
        names = bound(atoms)
        if len(names) != 1 or atoms[0].mesh_dim is None:
            return 0
        return Affine.of(0, {names[0]: local_extent(atoms)})


KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "int | None": (Integral, type(None)),
}
"""What a field may hold, by its annotation; other annotations are checked by who reads them."""


class IROp:
    """An op of a class program. Subclasses are dataclasses."""

    reads: ClassVar[tuple[str, ...]] = ("x",)
    writes: ClassVar[tuple[str, ...]] = ("output",)
    communicates: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = False
    source: Source = NOWHERE

    def __post_init__(self) -> None:
        self.source = call_site()
        optional = {f.name for f in fields(self) if f.default == ""}  # type: ignore[arg-type]
        for name in self.reads:
            if getattr(self, name) == "" and name not in optional:
                raise ProgramError(f"{type(self).__name__}: {name} names no tensor")
        for item in fields(self):  # type: ignore[arg-type]
            kinds = KINDS.get(str(item.type))
            value: object = getattr(self, item.name)
            if kinds is not None and (
                not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
            ):
                raise ProgramError(
                    f"{type(self).__name__}: {item.name}={value!r}; expected {item.type}"
                )

    @property
    def input_names(self) -> list[str]:
        return _named(self, self.reads)

    @property
    def output_names(self) -> list[str]:
        return _named(self, self.writes)

    @property
    def output_name(self) -> str:
        return self.output_names[0]

    def one_device(self, b: Builder, *operands: str) -> str | tuple[str, ...]:
        """What the op means on one device. Communication is the identity there."""
        raise NotImplementedError(type(self).__name__)

    def on_ranks(self, at: Ranks, *operands: str) -> str | tuple[str, ...]:
        """What every rank runs; the same op on local shapes where nothing else is said."""
        return self.one_device(at.b, *operands)

    def check(self, states: Sequence[TensorState]) -> None:
        """Raise ProgramError for dtypes or scales that do not go together."""

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        """Write dtype, handle or scale into the state of the result."""
        if states:
            result.dtype = states[0].dtype

    def is_communication(self) -> bool:
        return self.communicates

    def is_collective(self) -> bool:
        return self.communicates and not self.is_p2p()

    def is_p2p(self) -> bool:
        return hasattr(self, "src") and hasattr(self, "dst")

    def is_async(self) -> bool:
        return self.asynchronous

    def is_sync(self) -> bool:
        return type(self).__name__ in ("Wait", "WaitAll")

    def __str__(self) -> str:
        rest = [
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)  # type: ignore[arg-type]
            if f.name not in (*self.reads, *self.writes)
            and getattr(self, f.name) not in (None, "", f.default)
        ]
        shown = ", ".join([*self.input_names, *rest])
        return f"{', '.join(self.output_names) or '()'} = {type(self).__name__}({shown})"


class Unchanged(IROp):
    """An op that leaves values as they are on one device: communication, waits, claims."""

    def one_device(self, b: Builder, *operands: str) -> str | tuple[str, ...]:
        return operands[0] if len(operands) == 1 else operands


def _named(op: IROp, names: Sequence[str]) -> list[str]:
    out: list[str] = []
    for name in names:
        value: Any = getattr(op, name)
        out += [value] if isinstance(value, str) and value else []
        out += list(value) if isinstance(value, (list, tuple)) else []  # type: ignore[arg-type]
    return out


@dataclass
class Program:
    """Ops in order. A name written twice is a new value under the old name."""

    name: str = ""
    ops: list[IROp] = field(default_factory=list[IROp])

    def __post_init__(self) -> None:
        self.ops = list(self.ops)
        for op in self.ops:
            if not isinstance(op, IROp):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ProgramError(f"program {self.name}: {op!r} is not an op")

    def add(self, op: IROp) -> Program:
        self.ops.append(op)
        return self

    def __iter__(self) -> Iterator[IROp]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __getitem__(self, index: int) -> IROp:
        return self.ops[index]

    def flat(self) -> list[IROp]:
        """The ops, those of overlapped regions in the order they are written."""
        out: list[IROp] = []
        for op in self.ops:
            inner: list[IROp] | None = getattr(op, "inner", None)
            out += inner if inner is not None else [op]
        return out

    @property
    def collectives(self) -> list[IROp]:
        return [op for op in self.flat() if op.is_collective()]

    @property
    def p2p_ops(self) -> list[IROp]:
        return [op for op in self.flat() if op.is_p2p()]

    @property
    def compute_ops(self) -> list[IROp]:
        return [op for op in self.flat() if not op.is_communication() and not op.is_sync()]

    @property
    def inputs(self) -> list[str]:
        """Names that are read before they are written."""
        made: set[str] = set()
        out: dict[str, None] = {}
        for op in self.flat():
            out |= dict.fromkeys(n for n in op.input_names if n not in made)
            made |= set(op.output_names)
        return list(out)

    @property
    def outputs(self) -> list[str]:
        """Names whose last value nothing reads, in order. A message on its way is none."""
        unread: dict[str, None] = {}
        for op in self.flat():
            for name in op.input_names:
                unread.pop(name, None)
            for name in op.output_names:
                unread.pop(name, None)
                if getattr(op, "core", "") != "send":
                    unread[name] = None
        return list(unread)

    def validate_names(self) -> list[str]:
        """Names written more than once."""
        names = [n for op in self.flat() for n in op.output_names]
        return sorted({n for n in names if names.count(n) > 1})

    def __str__(self) -> str:
        return "\n".join([f"program {self.name}", *(f"  {op}" for op in self.ops)])


def ir_to_str(program: Program) -> str:
    """The program as text, one op a line."""
    return str(program)


def real_dim(dim: int, rank: int, what: str) -> int:
    """A dim counted from the front. Raises ProgramError where the tensor has no such dim."""
    if not -rank <= dim < rank:
        raise ProgramError(f"{what}: dim {dim} of a tensor of {rank} dims")
    return dim % rank


def merged(shape: Sequence[int]) -> int:
    return math.prod(shape)
