"""T3 on a real group: sums in the order of the ranks by moves that are hashed, and the backend's
own sum on inputs that leave it nothing to round."""

from collections.abc import Callable
from typing import Any

import torch

from shardproof.synthesis.guard import private, wire
from shardproof.synthesis.guard.calls import Call, Tensors
from shardproof.synthesis.guard.flights import kind_of
from shardproof.synthesis.guard.words import flat_bytes


def ordered(pieces: Tensors) -> torch.Tensor:
    """The sum in the order of the ranks, in their dtype."""
    total = pieces[0].clone()
    for piece in pieces[1:]:
        total += piece
    return total


Move = Callable[[int, int, Call, Callable[[], None]], None]
"""(part, step, the call, what runs it): hashes a move before and after."""


def fits(call: Call, n: int) -> bool:
    """Whether T3 can give the backend terms that it cannot round: sums of floats, and averages over
    a power of two. The same on all ranks, so nothing is asked here that may differ between them,
    such as strides."""
    return (
        (call.reduce == "sum" or (call.reduce == "avg" and n & (n - 1) == 0))
        and call.op in ("all_reduce", "reduce_scatter")
        and bool(call.terms)
        and kind_of(call.terms).startswith(("f", "bf"))
    )


def sums_of(
    call: Call, group: Any, me: int, n: int, move: Move, seconds: float
) -> tuple[Tensors, str]:
    """The sums of the terms in the order of the ranks, each added twice, and what went wrong.

    Of a reduce-scatter they are this rank's part.

    Raises:
        RuntimeError: a rank is gone, or did not come within `seconds`.
    """
    sums: Tensors = []
    fault = ""

    def run(start: Callable[..., Any], target: torch.Tensor, source: torch.Tensor) -> None:
        flat = target.view(-1)
        wire.finish(start(flat, source, group), flat, seconds)

    for part, term in enumerate(call.terms):
        arrived, moved = exchange_terms(term, group, me, n)
        source = torch.cat([t for _, t in moved.sent])
        move(part, 0, moved, lambda a=arrived, s=source: run(wire.start_all_to_all, a, s))
        pieces = list(arrived.unbind(0))
        chunk, again = ordered(pieces), ordered(pieces)
        if not torch.equal(flat_bytes(chunk), flat_bytes(again)):
            fault = "two sums of the same terms differ"
        if call.op == "all_reduce":
            whole, gathered = gather_sums(chunk, group, me, n)
            move(part, 1, gathered, lambda w=whole, c=chunk: run(wire.start_all_gather, w, c))
            chunk = whole.reshape(-1)[: term.numel()].reshape(term.shape)
        sums.append(chunk)
    return sums, fault


def exchange_terms(term: torch.Tensor, group: Any, me: int, n: int) -> tuple[torch.Tensor, Call]:
    """Chunk j of every rank's term to rank j: what arrived [n, chunk], and the call to judge."""
    flat = term.detach().contiguous().reshape(-1)
    chunk = -(-flat.numel() // n)
    padded = torch.nn.functional.pad(flat, (0, chunk * n - flat.numel()))
    arrived = torch.empty_like(padded)
    call = Call(
        "all_to_all",
        group,
        [((0, me, j), t) for j, t in enumerate(padded.reshape(n, chunk).unbind(0))],
        [((0, j, me), t) for j, t in enumerate(arrived.reshape(n, chunk).unbind(0))],
        dtype=str(term.dtype).removeprefix("torch."),
        extent=chunk,
    )
    return arrived.reshape(n, chunk), call


def gather_sums(chunk: torch.Tensor, group: Any, me: int, n: int) -> tuple[torch.Tensor, Call]:
    """All chunks of the sum on every rank [n, chunk], and the call to judge."""
    whole = torch.empty((n, chunk.numel()), dtype=chunk.dtype, device=chunk.device)
    call = Call(
        "all_gather",
        group,
        [((0, me, -1), chunk)],
        [((0, j, -1), t) for j, t in enumerate(whole.unbind(0))],
        dtype=str(chunk.dtype).removeprefix("torch."),
        extent=whole.numel(),
    )
    return whole, call


def stand_ins(call: Call, sums: Tensors, me: int, n: int) -> Tensors:
    """Terms for the backend whose sum is `sums` to the bit in any order: one rank has it, the
    others zeros."""
    out: Tensors = []
    for term, total in zip(call.terms, sums, strict=True):
        new = torch.zeros_like(term, memory_format=torch.contiguous_format)
        if call.op == "reduce_scatter":
            new.reshape(n, -1)[me] = total.reshape(-1)
        elif me == 0:
            new.copy_(total.reshape(term.shape))
        out.append(new)
    return out


def in_form_of(given: Any, new: Tensors) -> Any:
    """The stand-ins as the op takes its input: a tensor, a list of them, or a list of pieces."""
    if isinstance(given, torch.Tensor):
        return new[0]
    out: list[Any] = []
    for row, term in zip(given, new, strict=True):
        if isinstance(row, torch.Tensor):
            out.append(term)
            continue
        pieces = private.split(term.reshape(-1), [t.numel() for t in row])
        out.append([p.reshape(t.shape) for p, t in zip(pieces, row, strict=True)])
    return out
