"""Faults as data: each a kind and a draw, so that it can be injected again, anywhere.

As in Jepsen, a nemesis draws them, and the history of what was done is kept beside what was found.
A fault that changes no byte is none, and is counted as such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardproof.synthesis.guard.fingerprint.errors import FingerprintError, integer
from shardproof.synthesis.guard.fingerprint.mix import MASK
from shardproof.synthesis.guard.fingerprint.region import Array, checked, raw_words

Rng = np.random.Generator
Pieces = list[Array]


@dataclass(frozen=True)
class Fault:
    """One fault: what kind, on whose piece, and the number its places are drawn from."""

    kind: str
    rank: int
    draw: int


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays hold the same bits (NaNs and signs of zero count)."""
    return a.shape == b.shape and np.array_equal(raw_words(a, 1), raw_words(b, 1))


def flip_bits(data: Array, bits: Sequence[int]) -> Array:
    """A copy with these bits flipped, counted from the first byte's lowest."""
    out = raw_words(data, 1).copy()
    for bit in bits:
        out[bit // 8] ^= np.uint8(1 << bit % 8)
    return out.view(data.dtype).reshape(data.shape)


def _flip(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    n = int(rng.choice([1, 1, 2, 4, 8, 64]))
    if pieces[rank].nbytes:
        pieces[rank] = flip_bits(pieces[rank], rng.integers(0, 8 * pieces[rank].nbytes, n).tolist())


def _drop(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    pieces[rank] = np.zeros_like(pieces[rank])


def _stale(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    pieces[rank] = old[rank].copy()


def _other(pieces: Pieces, rank: int, rng: Rng) -> int:
    fit = [i for i, p in enumerate(pieces) if i != rank and p.shape == pieces[rank].shape]
    return int(rng.choice(fit)) if fit else rank


def _swap(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    other = _other(pieces, rank, rng)
    pieces[rank], pieces[other] = pieces[other], pieces[rank]


def _duplicate(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    pieces[rank] = pieces[_other(pieces, rank, rng)].copy()


def _shift(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    pieces[rank] = np.roll(pieces[rank].reshape(-1), 1).reshape(pieces[rank].shape)


def _rows(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    if pieces[rank].ndim:
        pieces[rank] = rng.permutation(pieces[rank], axis=0)


def _transpose(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    shape = pieces[rank].shape
    pieces[rank] = np.ascontiguousarray(pieces[rank].T).reshape(shape)


def _tail(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    pieces[rank] = pieces[rank].copy()
    pieces[rank].reshape(-1)[-8:] = 0


def _rotate(pieces: Pieces, rank: int, rng: Rng, old: Pieces) -> None:
    if len({p.shape for p in pieces}) == 1:
        pieces[:] = [*pieces[1:], pieces[0]]


MOVEMENT: dict[str, Callable[[Pieces, int, Rng, Pieces], None]] = {
    "bit_flip": _flip,
    "drop": _drop,
    "stale": _stale,
    "swap": _swap,
    "duplicate": _duplicate,
    "rotate": _rotate,
    "shift": _shift,
    "permute_rows": _rows,
    "wrong_dim": _transpose,
    "tail": _tail,
}
"""What may happen to the pieces of a movement collective on their way."""


def _left_out(xs: Sequence[Array], skip: int, add: Callable[[Sequence[Array]], Array]) -> Array:
    return add([x for i, x in enumerate(xs) if i != skip])


Add = Callable[[Sequence[Array]], Array]
SUMS: dict[str, Callable[[Sequence[Array], int, Add], Array]] = {
    "missing_rank": lambda xs, r, add: _left_out(xs, r, add),
    "counted_twice": lambda xs, r, add: add([*xs, xs[r]]),
    "not_reduced": lambda xs, r, add: xs[r].copy(),
    "reduced_twice": lambda xs, r, add: add([add(xs)] * len(xs)),
    "average": lambda xs, r, add: (add(xs) / len(xs)).astype(xs[0].dtype),
    "swapped_chunks": lambda xs, r, add: _halves(add(xs)),
    "zero_tail": lambda xs, r, add: _no_tail(add(xs)),
    "dropped": lambda xs, r, add: np.zeros_like(xs[0]),
}
"""What an all-reduce may give instead of the sum."""


def _halves(y: Array) -> Array:
    flat = y.reshape(-1)
    half = flat.size // 2
    return np.concatenate([flat[half : 2 * half], flat[:half], flat[2 * half :]]).reshape(y.shape)


def _no_tail(y: Array) -> Array:
    y = y.copy()
    y.reshape(-1)[-8:] = 0
    return y


class FaultInjector:
    """Draws faults from a seed and injects them; keeps the history.

    Raises:
        FingerprintError: a kind that there is not.
    """

    def __init__(self, seed: int) -> None:
        self.seed = integer(seed, "FaultInjector: seed")
        self.history: list[tuple[Fault, bool]] = []
        """Every fault, and whether it changed a byte."""
        self._rng = np.random.default_rng(self.seed & MASK)

    def draw(self, kind: str, n_ranks: int) -> Fault:
        """A fault of this kind on a rank that is drawn."""
        n_ranks = integer(n_ranks, "draw: n_ranks", 1)
        return Fault(kind, int(self._rng.integers(n_ranks)), int(self._rng.integers(1 << 62)))

    def inject(
        self, fault: Fault, pieces: Sequence[Array], old: Sequence[Array] | None = None
    ) -> Pieces:
        """What arrives of the pieces of a movement collective. `old` is what the buffers held.

        Raises:
            FingerprintError: no such kind or rank, or pieces that are no arrays.
        """
        pieces = self._given(fault, pieces)
        if fault.kind not in MOVEMENT:
            raise FingerprintError(
                f"no fault {fault.kind!r} of a movement; one of {', '.join(MOVEMENT)}"
            )
        given = list(pieces)
        out = list(pieces)
        before = [np.zeros_like(p) for p in pieces] if old is None else list(old)
        MOVEMENT[fault.kind](out, fault.rank, np.random.default_rng(fault.draw), before)
        changed = any(not same_bytes(a, b) for a, b in zip(given, out, strict=True))
        self.history.append((fault, changed))
        return out

    def inject_sum(self, fault: Fault, inputs: Sequence[Array], add: Add) -> Array:
        """What comes of a sum. `add` is the sum as the backend does it. Raises FingerprintError as
        `inject` does."""
        inputs = self._given(fault, inputs)
        if fault.kind not in SUMS:
            raise FingerprintError(f"no fault {fault.kind!r} of a sum; one of {', '.join(SUMS)}")
        out = np.asarray(SUMS[fault.kind](inputs, fault.rank, add))
        self.history.append((fault, not same_bytes(out, add(inputs))))
        return out

    def _given(self, fault: Fault, pieces: Sequence[Array]) -> Pieces:
        if not isinstance(fault, Fault):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FingerprintError(f"expected a Fault(kind, rank, draw), got {fault!r:.60}")
        if pieces and not 0 <= fault.rank < len(pieces):
            raise FingerprintError(
                f"fault {fault.kind} on rank {fault.rank}: there are {len(pieces)} pieces"
            )
        return [checked(p, f"fault {fault.kind}, piece {i}") for i, p in enumerate(pieces)]

    @property
    def changed(self) -> bool:
        """Whether the last fault changed a byte."""
        return bool(self.history) and self.history[-1][1]
