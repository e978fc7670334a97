"""The collectives of a group, run once on payloads whose result is known before."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from synthesis.guard import wire
from verifier.fingerprint.exact import expected_sum, sum_canary
from verifier.fingerprint.mix import key as make_key
from verifier.fingerprint.movement import colors, sources
from verifier.fingerprint.region import Region

WORDS = 64
"""8-byte words of colors that a rank sends."""


def run(group: Any, me: int, n: int, seed: int, device: torch.device) -> str:
    """All-gather, all-to-all and broadcast of colors, all-reduce and reduce-scatter of integers.

    Returns what is wrong on this rank, empty where nothing is. Sees wiring faults to the bit: ranks
    in another order than they think, a rank left out or added twice. Does not see what happens in
    any other call.
    """
    salt = make_key(seed, "canary")
    whole = colors(Region.whole((n * WORDS,)), salt, "i8")
    rows = whole.reshape(n, WORDS)

    def put(x: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.tensor(x, device=device)

    target = put(np.zeros_like(whole))
    wire.all_gather(target, put(rows[me]), group)
    if said := _moved("all_gather", target, whole, salt, n):
        return said
    table = colors(Region.whole((n * n * 8,)), salt, "i8").reshape(n, n, 8)
    target = put(np.zeros(n * 8, np.int64))
    wire.all_to_all(target, put(table[me].reshape(-1)), group)
    if not np.array_equal(target.cpu().numpy(), table[:, me].reshape(-1)):
        return "all_to_all: pieces of colors in the wrong places"
    root = n - 1
    target = put(rows[root] if me == root else np.zeros(WORDS, np.int64))
    wire.broadcast(target, root, group)
    if said := _moved("broadcast", target, rows[root], salt, n):
        return said
    payload = sum_canary((n * WORDS,), n, me, salt, "float32")
    want = expected_sum((n * WORDS,), n, salt, "float32")
    target = put(payload)
    wire.all_reduce(target, group)
    if not np.array_equal(target.cpu().numpy(), want):
        return "all_reduce: a sum of integers that is not exact: a rank missing or counted twice"
    target = put(np.zeros(WORDS, np.float32))
    wire.reduce_scatter(target, put(payload), group)
    if not np.array_equal(target.cpu().numpy(), want.reshape(n, WORDS)[me]):
        return "reduce_scatter: a sum of integers that is not this rank's part of it"
    return ""


def _moved(op: str, target: torch.Tensor, want: np.ndarray[Any, Any], salt: int, n: int) -> str:
    got = target.cpu().numpy()
    wrong = np.flatnonzero(got != want)
    if not len(wrong):
        return ""
    first = int(wrong[0])
    piece = got[first // WORDS * WORDS :][:WORDS]
    came = sources(piece, salt, (n * WORDS,))
    if came is None:
        return f"{op}: words at {first} that are no color of this run"
    return f"{op}: the piece of rank {came[0] // WORDS} where that of {first // WORDS} belongs"
