"""`python -m benchmarks.fingerprint_runs.gloo RANK SIZE FILE`: one rank of the fingerprints' runs
on gloo. Takes calls from stdin and answers on stdout, pickled; ends with its parent.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import IO, Any

import numpy as np
import torch
from torch import distributed

from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.ops import facets

untyped: Any = torch  # its stubs know few types
dist: Any = distributed
SUMS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM}
REDUCE = {**SUMS, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
PATIENCE = timedelta(seconds=60)
Piece = np.ndarray[Any, np.dtype[Any]]


class Rank:
    """The calls of one rank. Every op runs the collective of its name."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.groups: dict[tuple[int, ...], Any] = {tuple(range(size)): dist.group.WORLD}

    def new_group(self, members: tuple[int, ...]) -> None:
        """Every rank calls this, members or not."""
        self.groups[members] = dist.new_group(list(members), timeout=PATIENCE)

    def run(
        self,
        op: str,
        members: tuple[int, ...],
        mine: Piece | None,
        form: tuple[tuple[int, ...], str],
        attrs: Mapping[str, Any],
    ) -> Piece | None:
        """What this rank holds after the op."""
        pg, me, n = self.groups[members], members.index(self.rank), len(members)
        if op in ("all_reduce", "reduce_scatter", "reduce_to"):
            assert mine is not None
            return self._add(op, pg, mine, me, members, attrs)
        if op == "all_to_all":
            assert mine is not None
            return self._exchange(pg, mine, n, attrs)
        if op in ("send", "broadcast", "ring_shift"):
            return self._copy(op, mine, form, me, members, attrs)
        shape, dtype = form
        held = [torch.zeros(1, dtype=torch.uint8) for _ in members]
        dist.all_gather(held, torch.tensor([mine is not None], dtype=torch.uint8), group=pg)
        pieces = [_empty(shape, dtype) for _ in members]
        dist.all_gather(pieces, _bytes(np.empty(shape, dtype) if mine is None else mine), group=pg)
        given = [
            _array(p, shape, dtype) if int(h) else None for p, h in zip(pieces, held, strict=True)
        ]
        found = lookup(op)
        return facets(op).meaning(Floats(), given, **found.with_defaults(dict(attrs)))[me]

    def _add(
        self,
        op: str,
        pg: Any,
        mine: Piece,
        me: int,
        members: tuple[int, ...],
        attrs: Mapping[str, Any],
    ) -> Piece | None:
        how, n = str(attrs.get("reduce", "sum")), len(members)
        t = untyped.from_numpy(np.array(mine, copy=True, order="C"))
        if op == "all_reduce":
            dist.all_reduce(t, REDUCE[how], group=pg)
        elif op == "reduce_to":
            dist.reduce(t, members[int(attrs.get("index", 0))], REDUCE[how], group=pg)
            if me != int(attrs.get("index", 0)):
                return None
        else:
            chunks = [c.contiguous() for c in t.chunk(n, int(attrs["dim"]))]
            t = torch.empty_like(chunks[me])
            dist.reduce_scatter(t, chunks, REDUCE[how], group=pg)
        return (t / n if how == "avg" else t).numpy()

    def _exchange(self, pg: Any, mine: Piece, n: int, attrs: Mapping[str, Any]) -> Piece:
        chunks = np.split(mine, n, axis=int(attrs["split_dim"]))
        stacked = _bytes(np.stack(chunks))
        arrived = torch.empty_like(stacked)
        dist.all_to_all_single(arrived, stacked, group=pg)
        parts = _array(arrived, (n, *chunks[0].shape), mine.dtype.str)
        return np.concatenate(list(parts), axis=int(attrs["concat_dim"]))

    def _copy(
        self,
        op: str,
        mine: Piece | None,
        form: tuple[tuple[int, ...], str],
        me: int,
        members: tuple[int, ...],
        attrs: Mapping[str, Any],
    ) -> Piece | None:
        n, t = len(members), _empty(*form)
        if op == "broadcast":
            root = int(attrs.get("index", 0))
            if me == root and mine is not None:
                t = _bytes(mine)
            dist.broadcast(t, members[root], group=self.groups[members])
            return _array(t, *form)
        if op == "send":
            to, of = (
                (int(attrs["dst"]) if me == int(attrs["src"]) else None),
                (int(attrs["src"]) if me == int(attrs["dst"]) else None),
            )
        else:
            shift = int(attrs.get("shift", 1))
            to, of = (me + shift) % n, (me - shift) % n
        if of == me:
            return mine
        going = [] if to is None or mine is None else [(_bytes(mine), members[to])]
        works: list[Any] = [dist.isend(t, rank) for t, rank in going]
        if of is not None:
            works.append(dist.irecv(t, members[of]))
        for work in works:
            work.wait()
        return None if of is None else _array(t, *form)


def _empty(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype=torch.uint8)


def _bytes(x: Piece) -> torch.Tensor:
    return untyped.from_numpy(np.array(x, copy=True, order="C").reshape(-1).view(np.uint8))


def _array(t: torch.Tensor, shape: tuple[int, ...], dtype: str) -> Piece:
    return t.numpy().view(dtype).reshape(shape)


def serve(rank: int, size: int, meet: str, calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answers calls until there are no more."""

    def answer(good: bool, value: object) -> None:
        pickle.dump((good, value), answers)
        answers.flush()

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meet}", rank=rank, world_size=size, timeout=PATIENCE
    )
    here = Rank(rank, size)
    answer(True, None)
    while True:
        try:
            op, *rest = pickle.load(calls)
        except EOFError:
            return
        try:
            answer(True, here.new_group(*rest) if op == "new group" else here.run(op, *rest))
        except Exception as error:  # noqa: BLE001  whatever it is, the parent has to say it
            text = str(error).strip().splitlines()
            answer(False, f"{op}: {type(error).__name__}: {text[0] if text else ''}")


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.stdin.buffer, out)
