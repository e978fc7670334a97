"""What each collective asks of its tensors, as gloo and NCCL have it.

The rules of `changing.py` go by value; a backend goes by memory. It takes the bytes from a tensor's
first entry on, in the order in which they lie, so what it gives for other tensors is no sum of
them. Where a backend refuses, or gives other numbers without a word, the call is refused here.
"""

# pyright: basic
# (PyTorch has no types for what is used here.)

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from typing import Any

import torch

from shardproof.synthesis.frontends.torch.ranks.spans import Span, share


class Memory(Enum):
    """How the entries of a tensor must lie."""

    ROWS = "contiguous"
    DENSE = "dense, in one order on all ranks"
    ANY = "any"


class Backend(Enum):
    """What a real backend does with a tensor that breaks a row."""

    RIGHT = "gives the right numbers"
    WRONG = "gives wrong numbers without an error"
    RAISES = "raises"


@dataclass(frozen=True)
class Row:
    """What one op of c10d asks."""

    name: str
    """As users call it."""
    writes: str
    """The argument that it writes."""
    reads: str = ""
    """The argument that it reads; none where it reads what it writes."""
    out: Memory = Memory.ROWS
    input: Memory = Memory.ROWS
    factor: Callable[[int], tuple[int, int]] = lambda n: (1, 1)
    """Entries written and read are as these, by the size of the group; (0, 0) where its splits
    say."""
    in_place: bool = False
    """Whether the smaller side may be the rank's own part of the larger one."""
    gloo_out: Backend = Backend.RIGHT
    """What gloo does where what is written does not lie so; tested against it."""
    gloo_input: Backend = Backend.RIGHT


ROWS: dict[str, Row] = {
    "allreduce_": Row("all_reduce", "tensors", out=Memory.DENSE, gloo_out=Backend.WRONG),
    "broadcast_": Row("broadcast", "tensors", out=Memory.DENSE, gloo_out=Backend.WRONG),
    "scatter_": Row(
        "scatter",
        "output_tensors",
        "input_tensors",
        factor=lambda n: (1, n),
        gloo_out=Backend.WRONG,
        gloo_input=Backend.WRONG,
    ),
    "reduce_": Row("reduce", "tensors", out=Memory.DENSE, gloo_out=Backend.WRONG),
    "gather_": Row("gather", "output_tensors", "input_tensors", factor=lambda n: (n, 1)),
    "allgather_": Row(
        "all_gather",
        "output_tensors",
        "input_tensors",
        out=Memory.ANY,
        factor=lambda n: (n, 1),
        in_place=True,
    ),
    "_allgather_base_": Row(
        "all_gather_into_tensor",
        "output_tensor",
        "input_tensor",
        factor=lambda n: (n, 1),
        in_place=True,
    ),
    "reduce_scatter_": Row(
        "reduce_scatter",
        "output_tensors",
        "input_tensors",
        factor=lambda n: (1, n),
        in_place=True,
        gloo_out=Backend.WRONG,
        gloo_input=Backend.WRONG,
    ),
    "_reduce_scatter_base_": Row(
        "reduce_scatter_tensor",
        "output_tensor",
        "input_tensor",
        factor=lambda n: (1, n),
        in_place=True,
    ),
    "alltoall_base_": Row(
        "all_to_all_single",
        "output",
        "input",
        factor=lambda n: (0, 0),
        gloo_out=Backend.WRONG,
        gloo_input=Backend.RAISES,
    ),
    "alltoall_": Row(
        "all_to_all",
        "output_tensors",
        "input_tensors",
        factor=lambda n: (0, 0),
    ),
    "send": Row("send", "", "tensors", gloo_input=Backend.RAISES),
    "recv_": Row("recv", "tensors", gloo_out=Backend.RAISES),
}
"""By the names of c10d. On NCCL, memory that is not dense raises, and what is dense in another
order than its rows' is sent as it lies."""


@dataclass(frozen=True)
class Breach:
    """What is asked and is not so."""

    message: str
    hint: str


def breach(op: str, given: Mapping[str, Any], size: int, rank: int) -> Breach | None:
    """The first thing that a call in a group of this size, on this rank of it, does not keep."""
    row = ROWS.get(op)
    if row is None:
        return None
    outs, inputs = _flat(given.get(row.writes)), _flat(given.get(row.reads))
    return (
        _lies(row, outs, row.out, "out")
        or _lies(row, inputs, row.input, "input")
        or _types(row, [*outs, *inputs])
        or _sizes(row, outs, inputs, size)
        or _apart(row, outs, inputs, rank)
    )


def order(given: Mapping[str, Any], op: str) -> str:
    """How the written tensors lie that need not be contiguous: other ranks must have the same."""
    row = ROWS.get(op)
    if row is None or row.out is not Memory.DENSE:
        return ""
    strides = [t.stride() for t in _flat(given[row.writes]) if not t.is_contiguous()]
    return f"strides {', '.join(map(str, strides))}" if strides else ""


def _flat(given: Any) -> list[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    return [t for part in given or () for t in _flat(part)]


def _dense(t: torch.Tensor) -> bool:
    step = 1
    for stride, extent in sorted(zip(t.stride(), t.shape, strict=True)):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def _lies(row: Row, ts: Sequence[torch.Tensor], asked: Memory, side: str) -> Breach | None:
    for t in ts:
        kept = asked is Memory.ANY or t.is_contiguous() or (asked is Memory.DENSE and _dense(t))
        if kept or t.numel() == 0:
            continue
        gloo = row.gloo_out if side == "out" else row.gloo_input
        says = "" if gloo is Backend.RIGHT else f"gloo {gloo.value}, "
        return Breach(
            f"{row.name} of a tensor whose entries are not contiguous in memory (shape "
            f"{tuple(t.shape)}, strides {t.stride()}): {says}NCCL raises, or takes the memory in "
            "the order in which it lies",
            f"expected {asked.value}: call it with t.contiguous()"
            + (" and copy the result back: t.copy_(...)" if side == "out" else ""),
        )
    return None


def _types(row: Row, ts: Sequence[torch.Tensor]) -> Breach | None:
    found = list(dict.fromkeys(str(t.dtype) for t in ts))
    if len(found) < 2:
        return None
    return Breach(
        f"{row.name} of tensors of unlike types, {' and '.join(found)}: gloo and NCCL raise",
        "give it tensors of one type",
    )


def _sizes(
    row: Row, outs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], size: int
) -> Breach | None:
    written, read = row.factor(size)
    if not (outs and inputs and written):
        return None
    has, got = sum(t.numel() for t in outs), sum(t.numel() for t in inputs)
    several = outs if written > 1 else inputs
    alike = len(several) == 1 or len({t.numel() for t in (*outs, *inputs)}) == 1
    if has * read == got * written and alike:
        return None
    return Breach(
        f"{row.name} over {size} ranks reads {[tuple(t.shape) for t in inputs]} and writes "
        f"{[tuple(t.shape) for t in outs]}: gloo and NCCL raise",
        f"expected {written} entries written for {read} read, in equal pieces",
    )


def _apart(
    row: Row, outs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], rank: int
) -> Breach | None:
    """Outputs apart from each other and from what is read, but for the rank's own part."""
    if any(share(a, b) for a, b in combinations(outs, 2)):
        return Breach(
            f"{row.name} writes two of its outputs into the same memory: which one stays is not "
            "said",
            "give it one tensor for each rank",
        )
    for out in outs:
        for read in inputs:
            if share(out, read) and not _own(row, outs, inputs, rank):
                return Breach(
                    f"{row.name} writes into memory that it reads: NCCL may read what was just "
                    "written",
                    "give it an output of its own: torch.empty_like(...)",
                )
    return None


def _own(row: Row, outs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], rank: int) -> bool:
    """Whether the one tensor is the rank's own part of the others."""
    if not row.in_place:
        return False
    many, one = (
        (outs, inputs)
        if len(outs) > 1 or outs[0].numel() >= inputs[0].numel()
        else (
            inputs,
            outs,
        )
    )
    mine, part = Span.of(one[0]), Span.of(many[0])
    if len(many) > 1:
        others = [t for index, t in enumerate(many) if index != rank]
        same = Span.of(many[rank]) == mine
        return same and not any(share(t, one[0]) for t in others)
    width = one[0].numel() * one[0].element_size()
    return mine.first == part.first + rank * width
