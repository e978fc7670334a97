"""Collectives that write into tensors: each is a functional one, and a write of its result. A
message is an op that sends, and on the other rank one that gives what arrives."""

# pyright: basic
# (PyTorch has no types for what is used here.)

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.distributed._functional_collectives  # registers the functional ops
from torch._subclasses import FakeTensor

import shardproof.synthesis.frontends.torch.ranks.messages  # noqa: F401  (registers ops)

COVERED = (
    "covered are all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, scatter, reduce, "
    "gather and barrier, also into tensors and as functional collectives; send and recv with a peer"
)


def without_value(result: torch.Tensor) -> torch.Tensor:
    """What came of other ranks: a fake tensor keeps the value that an op has of known values, and
    here nothing is sent."""
    if isinstance(result, FakeTensor):
        result.constant = None
    return result


class Watcher(Protocol):
    """What the rules ask of the one who watches a rank."""

    def fail(self, message: str, hint: str = "") -> Exception: ...

    def write(self, target: torch.Tensor, value: torch.Tensor, what: str) -> None: ...

    def rooted(self, group: Any) -> None: ...

    def peer(self, group: Any, index: int) -> tuple[str, int, int]: ...

    def note_piece(self, kind: str, group: Any, index: int, like: torch.Tensor) -> None: ...


@dataclass
class Call:
    """A call with its arguments by name."""

    watch: Watcher
    given: dict[str, Any]
    group: Any
    reduce: str
    arrives: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """What puts results into their tensors. Done when they are waited for."""

    @property
    def size(self) -> int:
        return self.group.size()

    def run(self, name: str, *args: Any) -> torch.Tensor:
        ops: Any = torch.ops._c10d_functional
        result = without_value(getattr(ops, name).default(*args, self.group.group_name))
        return ops.wait_tensor.default(result)

    def write(self, target: torch.Tensor, value: torch.Tensor, what: str) -> None:
        self.arrives.append(lambda: self.watch.write(target, value, what))

    def one(self, key: str) -> torch.Tensor:
        """The one tensor of a list. Raises CaptureError where there are several."""
        found = self.given[key]
        if len(found) != 1:
            raise self.watch.fail("a collective of several tensors at once is not covered")
        return found[0]


Done = tuple[list[torch.Tensor], list[torch.Tensor], Any]
"""Tensors written, tensors read, and what the op returns beside its handle."""


def _all_reduce(c: Call) -> Done:
    x = c.one("tensors")
    c.write(x, c.run("all_reduce", x, c.reduce), "all_reduce")
    return [x], [], c.given["tensors"]


def _all_reduce_coalesced(c: Call) -> Done:
    tensors = c.given["tensors"]
    for x in tensors:
        c.write(x, c.run("all_reduce", x, c.reduce), "all_reduce")
    return list(tensors), [], None


def _reduce(c: Call) -> Done:
    """An all_reduce, of which the root alone has the result: what others are left with is not
    said, as memory that nothing was written to."""
    x = c.one("tensors")
    got = c.run("all_reduce", x, c.reduce)
    if c.group.rank() != c.given["root_rank"]:
        got = torch.empty_like(got)
    c.write(x, got, "reduce")
    return [x], [], None


def _broadcast(c: Call) -> Done:
    x, root = c.one("tensors"), c.given["root_rank"]
    c.watch.rooted(c.group.group_name)
    c.write(x, c.run("broadcast", x, root), "broadcast")
    return [x], [], c.given["tensors"]


def _gather(c: Call) -> Done:
    """An all_gather, of which the root alone keeps the result."""
    x = c.one("input_tensors")
    gathered = c.run("all_gather_into_tensor", _row(x), c.size)
    outs = c.one("output_tensors") if c.group.rank() == c.given["root_rank"] else []
    for out, part in zip(outs, gathered.chunk(c.size), strict=False):
        c.write(out, part, "gather")
    return list(outs), [x], None


def _gather_base(c: Call) -> Done:
    out, x = c.given["output_tensor"], c.given["input_tensor"]
    c.write(out, c.run("all_gather_into_tensor", _row(x), c.size), "all_gather")
    return [out], [x], out


def _row(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(1) if x.ndim == 0 else x


def _all_gather(c: Call) -> Done:
    x = c.one("input_tensors")
    outs = c.one("output_tensors")
    gathered = c.run("all_gather_into_tensor", _row(x), c.size)
    for out, part in zip(outs, gathered.chunk(c.size), strict=True):
        c.write(out, part, "all_gather")
    return list(outs), [x], c.given["output_tensors"]


def _scatter_base(c: Call) -> Done:
    out, x = c.given["output_tensor"], c.given["input_tensor"]
    plain = out.ndim > 0 and tuple(x.shape) == (out.shape[0] * c.size, *out.shape[1:])
    rows = x if plain else x.reshape(c.size * math.prod(out.shape))
    c.write(out, c.run("reduce_scatter_tensor", rows, c.reduce, c.size), "reduce_scatter")
    return [out], [x], out


def _reduce_scatter(c: Call) -> Done:
    out, pieces = c.one("output_tensors"), c.one("input_tensors")
    joined = torch.cat([_row(p) for p in pieces])
    c.write(out, c.run("reduce_scatter_tensor", joined, c.reduce, c.size), "reduce_scatter")
    return [out], list(pieces), c.given["output_tensors"]


def _all_to_all_base(c: Call) -> Done:
    out, x = c.given["output"], c.given["input"]
    got, sent = c.given["output_split_sizes"], c.given["input_split_sizes"]
    if len({*got, *sent}) > 1:
        equal = [[t.shape[0] // c.size] * c.size for t in (out, x)]
        pieces = (t.split(s or e) for t, s, e in zip((out, x), (got, sent), equal, strict=True))
        _exchange(c, *pieces)
        return [out], [x], None
    each = x.shape[0] // c.size
    got = c.run("all_to_all_single", x, [each] * c.size, [each] * c.size)
    c.write(out, got, "all_to_all")
    return [out], [x], None


def _all_to_all(c: Call) -> Done:
    outs, pieces = c.given["output_tensors"], c.given["input_tensors"]
    if len({tuple(p.shape) for p in (*outs, *pieces)}) != 1:
        _exchange(c, outs, pieces)
        return list(outs), list(pieces), outs
    rows = [_row(p) for p in pieces]
    splits = [rows[0].shape[0]] * c.size
    got = c.run("all_to_all_single", torch.cat(rows), splits, splits)
    for out, part in zip(outs, got.chunk(c.size), strict=True):
        c.write(out, part, "all_to_all")
    return list(outs), list(pieces), outs


def _exchange(c: Call, outs: Sequence[torch.Tensor], pieces: Sequence[torch.Tensor]) -> None:
    """An all_to_all of unequal pieces: a message to each other rank that gets any, and one from
    each that gives any. What stays is copied."""
    ops: Any = torch.ops.shardproof_frontend
    me = c.group.rank()
    if outs[me].shape != pieces[me].shape:
        raise c.watch.fail("what a rank sends itself is of another shape than what it receives")
    with torch.no_grad():
        kept = pieces[me].clone()
        for index, piece in enumerate(pieces):
            if index != me and piece.numel():
                c.watch.note_piece("send", c.group, index, piece)
                ops.message_sent(piece.contiguous(), *c.watch.peer(c.group, index))
        for index, out in enumerate(outs):
            if index == me:
                c.watch.write(out, kept, "all_to_all")
            elif out.numel():
                c.watch.note_piece("recv", c.group, index, out)
                peer = c.watch.peer(c.group, index)
                arrived = without_value(ops.message_received(out, *peer))
                c.watch.write(out, arrived, "all_to_all")


def _send(c: Call) -> Done:
    x = c.one("tensors")
    ops: Any = torch.ops.shardproof_frontend
    with torch.no_grad():
        ops.message_sent(x, *c.watch.peer(c.group, c.given["dst"]))
    return [], [x], None


def _recv(c: Call) -> Done:
    x = c.one("tensors")
    peer = c.watch.peer(c.group, c.given["src"])
    ops: Any = torch.ops.shardproof_frontend

    def arrives() -> None:
        with torch.no_grad():
            c.watch.write(x, without_value(ops.message_received(x, *peer)), "recv")

    c.arrives.append(arrives)
    return [x], [], None


def _scatter(c: Call) -> Done:
    """What the root has for all, broadcast: each takes its own part of it."""
    out, root, me = c.one("output_tensors"), c.given["root_rank"], c.group.rank()
    pieces = c.one("input_tensors") if me == root else []
    c.watch.rooted(c.group.group_name)
    like = _row(out)
    rows = [_row(p) for p in pieces] or [like.new_zeros(like.shape)] * c.size
    sent = c.run("broadcast", torch.cat(rows), root)
    c.write(out, sent.chunk(c.size)[me], "scatter")
    return [out], list(pieces), c.given["output_tensors"]


def _barrier(c: Call) -> Done:
    return [], [], None


CHANGING: dict[str, Callable[[Call], Done]] = {
    "send": _send,
    "recv_": _recv,
    "barrier": _barrier,
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce_coalesced,
    "broadcast_": _broadcast,
    "scatter_": _scatter,
    "reduce_": _reduce,
    "gather_": _gather,
    "_allgather_base_": _gather_base,
    "allgather_": _all_gather,
    "_reduce_scatter_base_": _scatter_base,
    "reduce_scatter_": _reduce_scatter,
    "alltoall_base_": _all_to_all_base,
    "alltoall_": _all_to_all,
}
