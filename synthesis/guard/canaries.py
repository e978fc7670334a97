"""The collectives of a group, run once on payloads whose result is known before."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from shardproof.synthesis.guard import wire
from shardproof.synthesis.guard.fingerprint.exact import expected_sum, sum_canary
from shardproof.synthesis.guard.fingerprint.mix import key as make_key
from shardproof.synthesis.guard.fingerprint.movement import colors, sources
from shardproof.synthesis.guard.fingerprint.region import Region

WORDS = 64
"""8-byte words of colors that a rank sends."""


@dataclass
class Canary:
    """All-gather, all-to-all and broadcast of colors, all-reduce and reduce-scatter of integers:
    started before the first call of a group, and judged when they are complete.

    Sees wiring faults to the bit: ranks in another order than they think, a rank left out or added
    twice. Does not see what happens in any other call.
    """

    works: list[Any] = field(default_factory=list[Any])
    sources: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """What is sent, kept until it was."""
    checks: list[Callable[[], str]] = field(default_factory=list[Callable[[], str]])

    @property
    def complete(self) -> bool:
        """Whether it can be judged. Never waits: members may not have come yet. The last call is
        not asked (gloo's reduce-scatter is complete when it was waited for): a rank that started
        the one before starts it at once."""
        return all(work.is_completed() for work in self.works[:-1])

    def verdict(self) -> str:
        """What is wrong on this rank, empty where nothing is."""
        for work in self.works:
            work.wait()
        return next(filter(None, (check() for check in self.checks)), "")


def start(group: Any, me: int, n: int, seed: int, device: torch.device) -> Canary:
    """Start the canary on this rank, `me` of `n`; every member has to."""
    canary = Canary()
    salt = make_key(seed, "canary")
    whole = colors(Region.whole((n * WORDS,)), salt, "i8")
    rows = whole.reshape(n, WORDS)

    def put(x: np.ndarray[Any, Any]) -> torch.Tensor:
        canary.sources.append(torch.tensor(x, device=device))
        return canary.sources[-1]

    def then(work: Any, check: Callable[[], str]) -> None:
        canary.works.append(work)
        canary.checks.append(check)

    gathered = put(np.zeros_like(whole))
    work = wire.start_all_gather(gathered, put(rows[me]), group)
    then(work, lambda: _moved("all_gather", gathered, whole, salt, n))

    table = colors(Region.whole((n * n * 8,)), salt, "i8").reshape(n, n, 8)
    exchanged = put(np.zeros(n * 8, np.int64))
    work = wire.start_all_to_all(exchanged, put(table[me].reshape(-1)), group)
    said = "all_to_all: pieces of colors in the wrong places"
    then(work, lambda: _same(exchanged, table[:, me].reshape(-1), said))

    root = n - 1
    told = put(rows[root] if me == root else np.zeros(WORDS, np.int64))
    then(
        wire.start_broadcast(told, root, group),
        lambda: _moved("broadcast", told, rows[root], salt, n),
    )

    payload = sum_canary((n * WORDS,), n, me, salt, "float32")
    want = expected_sum((n * WORDS,), n, salt, "float32")
    added = put(payload)
    exact = "a sum of integers that is not exact: a rank missing or counted twice"
    then(wire.start_all_reduce(added, group), lambda: _same(added, want, f"all_reduce: {exact}"))

    part = put(np.zeros(WORDS, np.float32))
    work = wire.start_reduce_scatter(part, put(payload), group)
    mine = want.reshape(n, WORDS)[me]
    then(work, lambda: _same(part, mine, f"reduce_scatter: {exact}"))
    return canary


def _same(target: torch.Tensor, want: np.ndarray[Any, Any], said: str) -> str:
    return "" if np.array_equal(target.cpu().numpy(), want) else said


def _moved(op: str, target: torch.Tensor, want: np.ndarray[Any, Any], salt: int, n: int) -> str:
    got = target.cpu().numpy()
    wrong = np.flatnonzero(got != want)
    if not len(wrong):
        return ""
    first = int(wrong[0])
    piece = got[first // WORDS * WORDS :][:WORDS]
    came = sources(piece, salt, (n * WORDS,))
    if came is None:
        return f"{op}: words at {first} that are not a color of this run"
    return f"{op}: the piece of rank {came[0] // WORDS} where that of {first // WORDS} belongs"
