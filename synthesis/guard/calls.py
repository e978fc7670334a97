"""What one call of a c10d op moves or adds: pieces sent, pieces received, terms and sums.

Every functional collective, DTensor, FSDP, DDP's reducer and compiled graphs end in these ops.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup

from shardproof.synthesis.guard import private

Tensors = list[torch.Tensor]
Slot = tuple[int, int, int]
"""(part, from, to): which of several tensors, and ranks of the group; to is -1 where all get it."""

EVERYONE = -1
PAIRS = ("send", "recv_")


@dataclass
class Call:
    """One call, as this rank sees it. Ranks here are those of the group."""

    op: str
    group: Any
    sent: list[tuple[Slot, torch.Tensor]] = field(default_factory=list[Any])
    got: list[tuple[Slot, torch.Tensor]] = field(default_factory=list[Any])
    terms: Tensors = field(default_factory=list[Any])
    """Inputs of a sum, one a tensor of the call, whole."""
    sums: Tensors = field(default_factory=list[Any])
    """Outputs of a sum."""
    reduce: str = ""
    peer: int = -1
    tag: int = 0
    dtype: str = ""
    extent: int = -1
    """Elements, where all ranks have to name the same number."""
    device: str = "cpu"

    @property
    def is_sum(self) -> bool:
        return bool(self.reduce)

    @property
    def tensors(self) -> Tensors:
        """Every tensor that the call reads or writes."""
        return [t for _, t in (*self.sent, *self.got)] + self.terms + self.sums

    @property
    def written(self) -> Tensors:
        """What the call writes here."""
        return [t for _, t in self.got] + self.sums

    def text(self) -> str:
        """What all ranks of the call have to agree on."""
        size = f"[{self.extent}]" if self.extent >= 0 else ""
        how = f" {self.reduce}" if self.reduce else ""
        root = f" root {self.peer}" if self.peer >= 0 and self.op not in ("send", "recv") else ""
        where = "" if self.device == "cpu" else f" on {self.device}"
        return f"{self.op}{how} {self.dtype}{size}{root}{where}"


REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")


def _reduce(op: Any) -> str:
    return REDUCTIONS[int(op.op())]


def _of(op: str, group: Any, tensors: Tensors, extent: Tensors | None = None, **more: Any) -> Call:
    """A call whose dtype is that of some tensors, and its extent that of these or of others."""
    size = sum(t.numel() for t in (tensors if extent is None else extent))
    dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
    return Call(op, group, dtype=dtype, extent=size, **more)


def _chunks(t: torch.Tensor, n: int) -> Tensors:
    """`n` equal parts of a contiguous tensor, as views."""
    size = t.numel() // n
    return private.split(t.reshape(-1), [size] * n)


def _all_gather(a: Any, me: int, n: int) -> Call:
    outputs, inputs = a[0], a[1]
    got = [((p, j, EVERYONE), t) for p, row in enumerate(outputs) for j, t in enumerate(row)]
    sent = [((p, me, EVERYONE), t) for p, t in enumerate(inputs)]
    flat = [t for row in outputs for t in row]
    return _of("all_gather", a[2], inputs, flat, sent=sent, got=got)


def _all_gather_list(a: Any, me: int, n: int) -> Call:
    # all_gather_coalesced has its outputs by rank, then by tensor
    outputs = [list(row) for row in zip(*a[0], strict=True)]
    return _all_gather((outputs, *a[1:]), me, n)


def _all_gather_base(a: Any, me: int, n: int) -> Call:
    outputs, inputs = _as_list(a[0]), _as_list(a[1])
    return _all_gather(([_chunks(t, n) for t in outputs], inputs, a[2]), me, n)


def _as_list(x: Any) -> Tensors:
    return [x] if isinstance(x, torch.Tensor) else list(x)


def _all_reduce(a: Any, me: int, n: int) -> Call:
    tensors = list(a[0])
    return _of("all_reduce", a[1], tensors, terms=tensors, sums=tensors, reduce=_reduce(a[2]))


def _reduce_to(a: Any, me: int, n: int) -> Call:
    tensors = list(a[0])
    sums = tensors if me == a[3] else []
    how = _reduce(a[2])
    return _of("reduce", a[1], tensors, terms=tensors, sums=sums, reduce=how, peer=a[3])


def _reduce_scatter_base(a: Any, me: int, n: int) -> Call:
    outputs, inputs = _as_list(a[0]), _as_list(a[1])
    return _of("reduce_scatter", a[2], inputs, terms=inputs, sums=outputs, reduce=_reduce(a[3]))


def _reduce_scatter(a: Any, me: int, n: int) -> Call:
    # uneven pieces are allowed: the terms are then pieces, one tensor a rank
    inputs = [torch.cat([t.reshape(-1) for t in row]) for row in a[1]]
    sizes = {t.numel() for row in a[1] for t in row}
    call = _reduce_scatter_base((a[0], inputs, a[2], a[3]), me, n)
    if len(sizes) > 1:
        call.terms, call.sums = [], []
    return call


def _broadcast(a: Any, me: int, n: int) -> Call:
    tensors, root = list(a[0]), a[2]
    items = [((p, root, EVERYONE), t) for p, t in enumerate(tensors)]
    sent = items if me == root else []
    return _of("broadcast", a[1], tensors, sent=sent, got=items, peer=root)


def _all_to_all(a: Any, me: int, n: int) -> Call:
    outputs, inputs = list(a[0]), list(a[1])
    sent = [((0, me, j), t) for j, t in enumerate(inputs)]
    got = [((0, j, me), t) for j, t in enumerate(outputs)]
    return replace(_of("all_to_all", a[2], inputs, sent=sent, got=got), extent=-1)


def _rows(t: torch.Tensor, sizes: list[int], n: int) -> Tensors:
    """So many rows for each rank, or equal parts."""
    return private.split(t, list(sizes) or [t.shape[0] // n] * n)


def _all_to_all_base(a: Any, me: int, n: int) -> Call:
    out, source, group, out_sizes, in_sizes = a[:5]
    outputs, inputs = _rows(out, out_sizes, n), _rows(source, in_sizes, n)
    return _all_to_all((outputs, inputs, group), me, n)


def _send(a: Any, me: int, n: int) -> Call:
    tensors = list(a[0])
    sent = [((p, me, a[2]), t) for p, t in enumerate(tensors)]
    return _of("send", a[1], tensors, sent=sent, peer=a[2], tag=a[3])


def _recv(a: Any, me: int, n: int) -> Call:
    tensors = list(a[0])
    got = [((p, a[2], me), t) for p, t in enumerate(tensors)]
    return _of("recv", a[1], tensors, got=got, peer=a[2], tag=a[3])


def _scatter(a: Any, me: int, n: int) -> Call:
    outputs, root = list(a[0]), a[3]
    lists: Any = a[1] if me == root else []
    sent = [((p, root, j), t) for p, row in enumerate(lists) for j, t in enumerate(row)]
    got = [((p, root, me), t) for p, t in enumerate(outputs)]
    return _of("scatter", a[2], outputs, sent=sent, got=got, peer=root)


def _gather(a: Any, me: int, n: int) -> Call:
    inputs, root = list(a[1]), a[3]
    lists: Any = a[0] if me == root else []
    got = [((p, j, root), t) for p, row in enumerate(lists) for j, t in enumerate(row)]
    sent = [((p, me, root), t) for p, t in enumerate(inputs)]
    return _of("gather", a[2], inputs, sent=sent, got=got, peer=root)


READERS: dict[str, tuple[int, Callable[[Any, int, int], Call]]] = {
    "allreduce_": (1, _all_reduce),
    "allreduce_coalesced_": (1, _all_reduce),
    "allgather_": (2, _all_gather),
    "allgather_coalesced_": (2, _all_gather_list),
    "_allgather_base_": (2, _all_gather_base),
    "allgather_into_tensor_coalesced_": (2, _all_gather_base),
    "_reduce_scatter_base_": (2, _reduce_scatter_base),
    "reduce_scatter_tensor_coalesced_": (2, _reduce_scatter_base),
    "reduce_scatter_": (2, _reduce_scatter),
    "broadcast_": (1, _broadcast),
    "alltoall_": (2, _all_to_all),
    "alltoall_base_": (2, _all_to_all_base),
    "send": (1, _send),
    "recv_": (1, _recv),
    "scatter_": (2, _scatter),
    "gather_": (2, _gather),
    "reduce_": (1, _reduce_to),
}
"""Name of a c10d op -> (place of its process group among the arguments, how it is read)."""

ANY_SOURCE = "recv_any_source_"
UNREAD = (ANY_SOURCE, "barrier", "monitored_barrier_")
"""Ops that are counted and not judged: who sends is not known before, or nothing is moved."""


def process_group(name: str, args: tuple[Any, ...]) -> ProcessGroup:
    """The process group of a call."""
    return ProcessGroup.unbox(args[1 if name in UNREAD else READERS[name][0]])


def read(name: str, args: tuple[Any, ...], me: int, n: int) -> Call | None:
    """What a call does, from its arguments; `me` of `n` ranks of the group. None where they do not
    fit together: the backend is the one to say so."""
    try:
        call = READERS[name][1](args, me, n)
    except (RuntimeError, ValueError, IndexError):
        return None
    call.device = device_of(call).type
    return call


def device_of(call: Call) -> torch.device:
    """Where the tensors of a call are."""
    tensors = call.tensors
    return tensors[0].device if tensors else torch.device("cpu")
