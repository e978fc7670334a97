"""Ops that communicate. On one device each is the identity; on the ranks, an op of the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from shardproof.compat.errors import ProgramError
from shardproof.compat.program import IROp, Ranks, Unchanged
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.program.types import Attr

REDUCE = {"sum": "sum", "mean": "avg", "avg": "avg", "max": "max", "min": "min"}


def fold(op_type: str, what: str) -> str:
    """The core's word for a reduction. Raises ProgramError."""
    if op_type not in REDUCE:
        raise ProgramError(f"{what}: op_type {op_type!r}; expected one of {', '.join(REDUCE)}")
    return REDUCE[op_type]


@dataclass
class CollectiveOp(Unchanged):
    """Base of the collectives: `core` is the core's op, its attributes are the fields."""

    x: str
    output: str
    core: ClassVar[str] = ""
    communicates: ClassVar[bool] = True

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        return at.b.add(self.core, *operands, **self.attrs(at, operands[0]))

    def attrs(self, at: Ranks, x: str) -> dict[str, Attr]:
        """Raises ProgramError: a mesh dim, a dim or a reduction that there is not."""
        what, own = str(self), vars(self)
        over = own["mesh_dim"]
        out: dict[str, Attr] = {
            "mesh_dim": at.one_dim(over, what) if "root" in own else at.dims(over)
        }
        if "root" in own:
            out["index"] = own["root"]
        if "op_type" in own:
            out["reduce"] = fold(own["op_type"], what)
        for name in ("gather_dim", "scatter_dim", "partition_dim"):
            if name in own:
                out["dim"] = at.dim(x, own[name], what)
        if "concat_dim" in own:
            # the core names the dim that a rank cuts, which is the one split afterwards
            out["concat_dim"] = at.dim(x, own["split_dim"], what)
            out["split_dim"] = at.dim(x, own["concat_dim"], what)
        return out


@dataclass
class AllReduce(CollectiveOp):
    """Everyone gets the reduction of a group. Without `mesh_dim`, of all ranks."""

    op_type: str = "sum"
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_reduce"


@dataclass
class AllGather(CollectiveOp):
    """Everyone gets the blocks of a group, joined along `gather_dim`."""

    gather_dim: int
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_gather"


@dataclass
class ReduceScatter(CollectiveOp):
    """Each rank gets its block of the reduction of a group."""

    scatter_dim: int
    op_type: str = "sum"
    mesh_dim: str | None = None
    core: ClassVar[str] = "reduce_scatter"


@dataclass
class Broadcast(CollectiveOp):
    """Everyone gets what the root holds."""

    root: int = 0
    mesh_dim: str | None = None
    core: ClassVar[str] = "broadcast"


@dataclass
class Reduce(CollectiveOp):
    """The root alone gets the reduction of a group."""

    root: int = 0
    op_type: str = "sum"
    mesh_dim: str | None = None
    core: ClassVar[str] = "reduce_to"


@dataclass
class AllToAll(CollectiveOp):
    """A value split along `split_dim` becomes one split along `concat_dim`."""

    split_dim: int
    concat_dim: int
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_to_all"


@dataclass
class Scatter(CollectiveOp):
    """Each rank gets its block of what the root holds."""

    scatter_dim: int
    root: int = 0
    mesh_dim: str | None = None

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        name = at.one_dim(self.mesh_dim, str(self))
        whole = at.b.add("broadcast", *operands, mesh_dim=name, index=self.root)
        dim = at.dim(whole, self.scatter_dim, str(self))
        return at.b.add("shard_slice", whole, mesh_dim=name, dim=dim)


@dataclass
class Gather(CollectiveOp):
    """The root alone gets the blocks of a group, joined along `gather_dim`."""

    gather_dim: int
    root: int = 0
    mesh_dim: str | None = None

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        name = at.one_dim(self.mesh_dim, str(self))
        dim = at.dim(operands[0], self.gather_dim, str(self))
        whole = at.b.add("all_gather", *operands, mesh_dim=name, dim=dim)
        with at.b.on(**{name: self.root}):
            return at.b.add("only", whole)


@dataclass
class Send(Unchanged):
    """Puts a value of device `src` on its way to device `dst`."""

    x: str
    output: str = ""
    src: int = 0
    dst: int = 1
    stage: int | None = None
    microbatch_id: int | None = None
    communicates: ClassVar[bool] = True
    core: ClassVar[str] = "send"

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        name, src, dst, rest = peers(at, self.src, self.dst, str(self))
        where = {**rest, name: src} if self.core == "send" else {**rest, name: dst}
        with at.b.on(**where):
            return at.b.add(self.core, *operands, mesh_dim=name, src=src, dst=dst)


@dataclass
class Recv(Send):
    """Takes on device `dst` what device `src` sent: the sent tensor, or the result of the send."""

    core: ClassVar[str] = "recv"


@dataclass
class SendAsync(Send):
    """A send that is over once its handle was waited for."""

    handle: str = ""
    stream: str = "comm"
    asynchronous: ClassVar[bool] = True

    def __init__(
        self,
        x: str,
        output: str = "",
        handle: str = "",
        src: int = 0,
        dst: int = 1,
        stage: int | None = None,
        microbatch_id: int | None = None,
        stream: str = "comm",
    ) -> None:
        super().__init__(x, output, src, dst, stage, microbatch_id)
        self.handle, self.stream = handle, stream


@dataclass
class RecvAsync(SendAsync):
    """A receive that is over once its handle was waited for."""

    core: ClassVar[str] = "recv"

    __init__ = SendAsync.__init__


def peers(at: Ranks, src: int, dst: int, what: str) -> tuple[str, int, int, dict[str, int]]:
    """(mesh dim, coordinate of `src` in it, that of `dst`, their other coordinates).

    Raises:
        ProgramError: devices that differ in more than one coordinate, or in none.
    """
    names = at.mesh.dim_names
    a, b = at.mesh.device_to_coord(src), at.mesh.device_to_coord(dst)
    moved = [i for i in range(len(names)) if a[i] != b[i]]
    if len(moved) != 1:
        raise ProgramError(
            f"{what}: devices {src} and {dst} of the mesh {at.mesh.core} differ in "
            f"{len(moved)} coordinates, expected one"
        )
    (i,) = moved
    rest = {n: c for n, c in zip(names, a, strict=True) if n != names[i]}
    return names[i], a[i], b[i], rest


@dataclass
class AllReduceAsync(CollectiveOp):
    """An all-reduce that is over once its handle was waited for."""

    handle: str
    op_type: str = "sum"
    stream: str = "comm"
    mesh_dim: str | None = None
    core: ClassVar[str] = "all_reduce"
    asynchronous: ClassVar[bool] = True

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        super().mark(result, states)
        result._async_handle = self.handle  # pyright: ignore[reportPrivateUsage]


@dataclass
class Wait(Unchanged):
    """The tensor of an asynchronous op, once that is over."""

    handle: str
    tensor: str
    output: str = ""
    reads: ClassVar[tuple[str, ...]] = ("tensor",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.output = self.output or self.tensor

    def check(self, states: Sequence[TensorState]) -> None:
        waited(str(self), self.handle, states[0])


def waited(what: str, handle: str, state: TensorState) -> None:
    """Raise ProgramError where a handle is that of another tensor."""
    own = state._async_handle  # pyright: ignore[reportPrivateUsage]
    if own is not None and own != handle:
        raise ProgramError(f"{what}: {state.name} is in flight under {own}, not under {handle}")


@dataclass
class WaitAll(Unchanged):
    """The tensors of several asynchronous ops, once all are over."""

    handles: list[str]
    tensors: list[str]
    outputs: list[str] = field(default_factory=list[str])
    reads: ClassVar[tuple[str, ...]] = ("tensors",)
    writes: ClassVar[tuple[str, ...]] = ("outputs",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.outputs = list(self.outputs) or list(self.tensors)
        if not len(self.handles) == len(self.tensors) == len(self.outputs):
            raise ProgramError("WaitAll: as many handles as tensors and outputs are expected")

    def check(self, states: Sequence[TensorState]) -> None:
        for handle, state in zip(self.handles, states, strict=True):
            waited(str(self), handle, state)


@dataclass
class OverlapRegion(IROp):
    """Ops that compute and ops that communicate, side by side. Neither reads what the other
    writes; all have ended where the region ends."""

    compute_ops: list[IROp]
    comm_ops: list[IROp]
    output: str = ""
    reads: ClassVar[tuple[str, ...]] = ()

    @property
    def inner(self) -> list[IROp]:
        return [*self.comm_ops, *self.compute_ops]


@dataclass(frozen=True)
class Stream:
    """A queue of work of a device."""

    name: str
    device_id: int = 0


@dataclass
class Handle:
    """What an asynchronous op gives back."""

    name: str
    op_name: str = ""
    buffer_name: str = ""
    is_active: bool = True


DEFAULT_STREAM, COMM_STREAM, COMPUTE_STREAM = "default", "comm", "compute"
