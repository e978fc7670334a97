"""Faults injected below the guard, on one rank, into the real collectives: data, to be replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from shardproof.synthesis.guard import kernels, private
from shardproof.synthesis.guard.calls import READERS, Call, Tensors, process_group, read
from shardproof.synthesis.guard.ours import thread
from shardproof.synthesis.guard.words import flat_bytes

KINDS = (
    "bit_flip", "drop", "swap", "duplicate", "stale", "not_reduced", "missing_rank",
    "wrong_handoff", "race", "permute",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One fault: what kind, on which global rank, in which call of an op on that rank."""

    kind: str
    rank: int
    op: str
    """`all_gather`, `all_reduce`, `reduce_scatter`, `broadcast`, `recv` ..."""
    nth: int = 0
    """In the call of that op after so many others of it."""
    draw: int = 0
    """What the piece and the place are drawn from."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Injector:
    """Injects faults as they are armed. Install it before the guard starts, so that it lies
    between the guard and the backend; the guard's own calls are left alone.

    Raises:
        ValueError: a kind that there is not.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.done: list[tuple[Fault, bool]] = []
        """Every fault, and whether it changed a byte."""
        self.spans: list[tuple[int, int] | None] = []
        """The elements that each changed of what the rank received, counted over all pieces."""
        self._held: list[Callable[[], None]] = []
        """What strikes calls that are gathered, once they were made."""
        self._armed: Fault | None = None
        self._left = 0
        self._before: dict[int, torch.Tensor] = {}
        self._layer = kernels.Layer(self._call)

    def arm(self, fault: Fault | None) -> None:
        """The fault to inject next, on every rank (it acts on its own)."""
        if fault is not None and fault.kind not in KINDS:
            raise ValueError(f"no fault {fault.kind!r}; one of {', '.join(KINDS)}")
        self._armed, self._left = fault, fault.nth if fault else 0

    def remove(self) -> None:
        """Take the layer off, after the guard's."""
        self._layer.remove()

    def _call(self, name: str, args: tuple[Any, ...], proceed: kernels.Proceed) -> Any:
        if name not in READERS or thread.on:
            return proceed(*args)
        group = process_group(name, args)
        call = read(name, args, group.rank(), group.size())
        if call is None:
            return proceed(*args)
        fault = self._armed
        mine = fault is not None and fault.rank == self.rank and fault.op == call.op
        if mine:
            self._left -= 1
        if fault is None or not mine or self._left >= 0:
            result = proceed(*args)
            if call.op == "recv":
                self._after(result, lambda: self._remember(call), group)
            return result
        self._armed = None
        return self._inject(fault, call, process_group(name, args), partial(proceed, *args))

    def _remember(self, call: Call) -> None:
        """This message, for one that is handed over in its place later."""
        for _, t in call.got:
            self._before[t.numel()] = t.detach().clone()

    def _inject(self, fault: Fault, call: Call, group: Any, proceed: kernels.Proceed) -> Any:
        terms = [t.detach().clone() for t in call.terms]
        before = [t.detach().clone() for t in call.written]
        if fault.kind == "missing_rank":
            for t in call.terms:
                t.data.zero_()  # hardware writes, too, are no op that a version counts
        result = proceed()

        def strike() -> None:
            right = [t.detach().clone() for t in call.tensors]
            if fault.kind == "missing_rank":
                if call.op == "reduce_scatter":
                    for t, old in zip(call.terms, terms, strict=True):
                        t.data.copy_(old)
                self.done.append((fault, any(bool(t.any()) for t in terms)))
                self.spans.append(None)
                return
            written = [t.detach().clone() for t in call.written]
            with torch.no_grad():
                self._change(fault, call, terms, before)
            changed = any(not _same(a, b) for a, b in zip(right, call.tensors, strict=True))
            self.done.append((fault, changed))
            self.spans.append(_span(written, call.written))

        now = call.op not in ("send", "recv", "reduce_scatter")
        self._after(result, strike, group, now)
        return result

    def _after(self, result: Any, do: Callable[[], None], group: Any, now: bool = False) -> None:
        """Do this when the call is complete: at once, waiting for it, at the program's own wait
        (gloo's messages cannot be waited for twice, and its reduce-scatter writes when it is), or
        when calls that are gathered were made."""
        work = kernels.work_of(result)
        if work is None and private.coalescing(group):
            self._held.append(do)
        elif work is None or now:
            if work is not None:
                work.wait()
            do()
        else:
            kernels.watch_wait(work, lambda _, wait: _then(wait, do))

    def settle(self) -> None:
        """Strike what was gathered: the calls were made, and nobody has waited for them."""
        for strike in self._held:
            torch.accelerator.synchronize()
            strike()
        self._held.clear()

    def _change(self, fault: Fault, call: Call, terms: Tensors, before: Tensors) -> None:
        generator = torch.Generator().manual_seed(fault.draw)

        def drawn(below: int) -> int:
            return int(torch.randint(below, (), generator=generator))

        if fault.kind == "race":
            target = call.sent[0][1] if call.sent else call.terms[0]
            _flip(target, drawn(target.nbytes * 8))
            return
        pieces = [t.data for t in call.written]
        at = drawn(len(pieces))
        piece = pieces[at]
        if fault.kind == "bit_flip":
            _flip(piece, drawn(piece.nbytes * 8))
        elif fault.kind == "drop":
            piece.zero_()
        elif fault.kind == "permute":
            raw = flat_bytes(piece).clone()
            words = raw[: len(raw) // 8 * 8].reshape(-1, 8)
            words.copy_(words.flip(0))
            piece.copy_(raw.view(piece.dtype).reshape(piece.shape))
        elif fault.kind == "stale":
            piece.copy_(before[at])
        elif fault.kind == "wrong_handoff":
            other = self._before.get(piece.numel())
            piece.copy_(other if other is not None else piece.flip(0))
        elif fault.kind == "not_reduced":
            for t, own in zip(pieces, terms, strict=True):
                mine = own
                if call.op == "reduce_scatter":
                    mine = own.reshape(-1)[: t.numel()]
                t.copy_(mine.reshape(t.shape))
        else:
            other = pieces[(at + 1) % len(pieces)]
            saved = piece.clone()
            piece.copy_(other.reshape(piece.shape))
            if fault.kind == "swap":
                other.copy_(saved.reshape(other.shape))


def _then(wait: kernels.Proceed, do: Callable[[], None]) -> Any:
    done = wait()
    do()
    return done


def _flip(t: torch.Tensor, bit: int) -> None:
    raw = t.data.view(-1).view(torch.uint8)
    raw[bit // 8] ^= 1 << bit % 8


def _span(before: Tensors, after: Tensors) -> tuple[int, int] | None:
    """The first and one past the last element that differ, over all pieces."""
    rows = [
        (flat_bytes(a) != flat_bytes(b)).reshape(a.numel(), -1).any(1)
        for a, b in zip(before, after, strict=True)
    ]
    places = torch.cat(rows).nonzero().reshape(-1) if rows else rows
    return (int(places[0]), int(places[-1]) + 1) if len(places) else None


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(flat_bytes(a), flat_bytes(b))
