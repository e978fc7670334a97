"""Attention, whole and around a ring.

Queries, keys and values are `[S, D]`, `[B, S, D]` or `[B, S, H, D]`. Where there are fewer heads of
keys than of queries, each serves a group of consecutive query heads (Ainslie et al. 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from shardproof.compat.compute import exact, softmax
from shardproof.compat.errors import ProgramError
from shardproof.compat.program import IROp, Ranks, Unchanged
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine

LOW = Fraction(-(10**30))
QKV: tuple[str, ...] = ("q", "k", "v")


def _heads(b: Builder, x: str, groups: int = 1) -> str:
    """`[N, S, D]`, a row of N per batch entry and head, each head `groups` times."""
    shape = b.types[x].shape
    if len(shape) == 2:
        return b.add("reshape", x, shape=(1, *shape))
    if len(shape) == 3:
        return x
    n, s, h, d = shape
    x = b.add("permute", x, dims=(0, 2, 1, 3))
    if groups > 1:
        x = b.add("reshape", x, shape=(n, h, 1, s, d))
        x = b.add("expand", x, shape=(n, h, groups, s, d))
    return b.add("reshape", x, shape=(n * h * groups, s, d))


def attention(
    b: Builder,
    operands: Sequence[str],
    scale: Fraction,
    causal: bool,
    what: str,
    row: int | Affine = 0,
) -> str:
    """`softmax(scale q k^T) v`; the first query of this rank is row `row` of all queries.

    Raises:
        ProgramError: operands of other ranks, or heads that do not go together.
    """
    q, k, v = operands
    shapes = [b.types[x].shape for x in operands]
    if len({len(s) for s in shapes}) != 1 or not 2 <= len(shapes[0]) <= 4:
        raise ProgramError(
            f"{what}: q, k, v are {', '.join(str(list(s)) for s in shapes)}; expected [S, D], "
            "[B, S, D] or [B, S, H, D]"
        )
    groups = 1
    if len(shapes[0]) == 4:
        groups, left = divmod(shapes[0][2], max(shapes[1][2], 1))
        if left or shapes[1][2] != shapes[2][2]:
            raise ProgramError(
                f"{what}: {shapes[0][2]} heads of queries, {shapes[1][2]} of keys, "
                f"{shapes[2][2]} of values on a rank"
            )
    rows, keys, values = _heads(b, q), _heads(b, k, groups), _heads(b, v, groups)
    turned = b.add("permute", keys, dims=(0, 2, 1))
    scores = b.add("mul_scalar", b.add("bmm", rows, turned), value=scale)
    if causal:
        i, j = b.types[scores].shape[1:]
        line = b.add("iota", shape=(i, 1), dim=0, offset=row, dtype="i64")
        column = b.add("iota", shape=(1, j), dim=1, offset=0, dtype="i64")
        low = b.add("full", shape=(), value=LOW, dtype=b.types[scores].dtype)
        scores = b.add("where", b.add("le", column, line), scores, low)
    out = b.add("bmm", softmax(b, scores, 2), values)
    if len(shapes[0]) == 4:
        n, s, h, _ = shapes[0]
        out = b.add("reshape", out, shape=(n, h, s, shapes[2][3]))
        return b.add("permute", out, dims=(0, 2, 1, 3))
    return b.add("reshape", out, shape=(*shapes[0][:-1], shapes[2][-1]))


class AttentionOp(IROp):
    """Base of the ops that are attention of their three operands on one device."""

    softmax_scale: float
    causal: bool

    def one_device(self, b: Builder, *operands: str) -> str:
        return attention(b, operands, exact(self.softmax_scale), self.causal, str(self))


@dataclass
class FlashAttention(AttentionOp):
    """Attention of the queries at hand over the keys and values at hand."""

    q: str
    k: str
    v: str
    output: str
    softmax_scale: float = 1.0
    causal: bool = False
    reads: ClassVar[tuple[str, ...]] = QKV


@dataclass
class RingAttentionStep(AttentionOp):
    """Attention over the block of keys and values that a rank holds at one step of a ring.

    The result is normalised over that block alone: it is not a share of a sum.
    """

    q: str
    k: str
    v: str
    output: str
    ring_step: int = 0
    ring_size: int = 1
    causal: bool = False
    softmax_scale: float = 1.0
    reads: ClassVar[tuple[str, ...]] = QKV


@dataclass
class RingRotate(Unchanged):
    """Every rank gets the block of the rank before it, around the ring."""

    x: str
    output: str
    ring_size: int
    ring_dim: int = 0
    handle: str | None = None
    mesh_dim: str | None = None
    communicates: ClassVar[bool] = True

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        name = ring(at, self.mesh_dim, self.ring_size, str(self))
        return at.b.add("ring_shift", operands[0], mesh_dim=name, shift=1)


@dataclass
class RingAttention(AttentionOp):
    """Attention over the keys and values of the whole ring, queries staying where they are.

    Every query sees every block once; causal masks go by the place in the whole sequence. How
    the kernel passes blocks on is not part of this program.
    """

    q: str
    k: str
    v: str
    output: str
    ring_size: int
    causal: bool = False
    softmax_scale: float = 1.0
    mesh_dim: str | None = None
    reads: ClassVar[tuple[str, ...]] = QKV
    communicates: ClassVar[bool] = True

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        q, k, v = operands
        name = ring(at, self.mesh_dim, self.ring_size, str(self))
        dim = 0 if len(at.b.types[q].shape) == 2 else 1
        k, v = (at.b.add("all_gather", x, mesh_dim=name, dim=dim) for x in (k, v))
        row = at.window(q, dim)
        scale = exact(self.softmax_scale)
        return attention(at.b, (q, k, v), scale, self.causal, str(self), row)


def ring(at: Ranks, mesh_dim: str | None, size: int, what: str) -> str:
    """The mesh dim of a ring. Raises ProgramError where its size is another."""
    name = at.one_dim(mesh_dim, what)
    if at.mesh.core[name] != size:
        raise ProgramError(f"{what}: a ring of {size} on {name}={at.mesh.core[name]}")
    return name
