"""T3 on a real group: sums in the order of the ranks by moves that are hashed, and the backend's
own sum on inputs that leave it nothing to round."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from synthesis.guard.calls import Call, Tensors


def ordered(pieces: Tensors) -> torch.Tensor:
    """The sum in the order of the ranks, in their dtype."""
    total = pieces[0].clone()
    for piece in pieces[1:]:
        total += piece
    return total


def exchange_terms(term: torch.Tensor, group: Any, n: int) -> tuple[torch.Tensor, Call]:
    """Chunk j of every rank's term to rank j: what arrived [n, chunk], and the call to judge."""
    flat = term.detach().contiguous().reshape(-1)
    chunk = -(-flat.numel() // n)
    padded = torch.nn.functional.pad(flat, (0, chunk * n - flat.numel()))
    arrived = torch.empty_like(padded)
    me = dist.get_rank(group)
    call = Call(
        "all_to_all",
        group,
        [((0, me, j), t) for j, t in enumerate(padded.reshape(n, chunk).unbind(0))],
        [((0, j, me), t) for j, t in enumerate(arrived.reshape(n, chunk).unbind(0))],
        dtype=str(term.dtype).removeprefix("torch."),
        extent=chunk,
    )
    return arrived.reshape(n, chunk), call


def gather_sums(chunk: torch.Tensor, group: Any, n: int) -> tuple[torch.Tensor, Call]:
    """All chunks of the sum on every rank [n, chunk], and the call to judge."""
    whole = torch.empty((n, chunk.numel()), dtype=chunk.dtype, device=chunk.device)
    me = dist.get_rank(group)
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
        new = torch.zeros_like(term)
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
        pieces = term.reshape(-1).split([t.numel() for t in row])
        out.append([p.reshape(t.shape) for p, t in zip(pieces, row, strict=True)])
    return out
