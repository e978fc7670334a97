"""Ops that compute: products, elementwise ops, norms, embedding, loss, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from shardproof.compat.errors import ProgramError
from shardproof.compat.program import IROp, Ranks, merged, real_dim
from shardproof.compat.tensor import TensorState
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine
from shardproof.verifier.provers.placement.views import regroup

EPS = Fraction(1, 100_000)


def exact(number: float | Fraction) -> Fraction:
    """The rational that a number is written as: 0.1 is one tenth."""
    return number if isinstance(number, Fraction) else Fraction(str(number))


def matmul(b: Builder, x: str, w: str) -> str:
    """`x @ w` over the last two dims; a matrix on the right serves all leading dims of `x`.

    Raises:
        ProgramError: ranks or batch dims that do not go together.
    """
    left, right = b.types[x].shape, b.types[w].shape
    if len(left) == len(right) == 2:
        return b.add("mm", x, w)
    if len(left) == len(right) == 3:
        return b.add("bmm", x, w)
    if len(left) > 2 and len(right) == 2:
        flat = b.add("reshape", x, shape=(merged(left[:-1]), left[-1]))
        return b.add("reshape", b.add("mm", flat, w), shape=(*left[:-1], right[-1]))
    if len(left) == len(right) > 3 and left[:-2] == right[:-2]:
        n = merged(left[:-2])
        flat = b.add("reshape", x, shape=(n, *left[-2:]))
        out = b.add("bmm", flat, b.add("reshape", w, shape=(n, *right[-2:])))
        return b.add("reshape", out, shape=(*left[:-1], right[-1]))
    raise ProgramError(f"MatMul of {list(left)} and {list(right)}: expected matrices, or batches")


def softmax(b: Builder, x: str, dim: int) -> str:
    """Softmax along any dim."""
    e = b.add("exp", b.add("sub", x, b.add("amax", x, dims=(dim,), keepdim=True)))
    return b.add("div", e, b.add("sum", e, dims=(dim,), keepdim=True))


@dataclass
class MatMul(IROp):
    """Matrix product."""

    a: str
    b: str
    output: str
    reads: ClassVar[tuple[str, ...]] = ("a", "b")

    def one_device(self, b: Builder, *operands: str) -> str:
        return matmul(b, *operands)

    def check(self, states: Sequence[TensorState]) -> None:
        first, second = (s.dtype for s in states)
        if first and second and first != second:
            raise ProgramError(f"{self}: {self.a} is {first}, {self.b} is {second}; cast one")


class OneOp(IROp):
    """Base of the ops that are one op of the core."""

    core: ClassVar[str] = ""

    def one_device(self, b: Builder, *operands: str) -> str:
        return b.add(self.core, *operands)


@dataclass
class ElementWiseBinaryOp(OneOp):
    """Two operands, element by element, broadcast as in numpy."""

    a: str
    b: str
    output: str
    reads: ClassVar[tuple[str, ...]] = ("a", "b")


@dataclass
class Add(ElementWiseBinaryOp):
    """Sum."""

    core: ClassVar[str] = "add"


@dataclass
class Multiply(ElementWiseBinaryOp):
    """Product, element by element."""

    core: ClassVar[str] = "mul"


@dataclass
class Activation(OneOp):
    """One operand, element by element."""

    x: str
    output: str


@dataclass
class SiLU(Activation):
    """`x * sigmoid(x)`."""

    core: ClassVar[str] = "silu"


@dataclass
class GELU(Activation):
    """Gaussian error linear unit."""

    core: ClassVar[str] = "gelu"


@dataclass
class ReLU(Activation):
    """`max(x, 0)`."""

    core: ClassVar[str] = "relu"


@dataclass
class LayerNorm(IROp):
    """Layer norm along one dim, without weight and bias."""

    x: str
    output: str
    norm_dim: int = -1

    def one_device(self, b: Builder, *operands: str) -> str:
        (x,) = operands
        dims = (real_dim(self.norm_dim, len(b.types[x].shape), str(self)),)
        centred = b.add("sub", x, b.add("mean", x, dims=dims, keepdim=True))
        var = b.add("mean", b.add("mul", centred, centred), dims=dims, keepdim=True)
        return b.add("mul", centred, b.add("rsqrt", b.add("add_scalar", var, value=EPS)))


@dataclass
class RMSNorm(IROp):
    """RMS norm along one dim, without weight."""

    x: str
    output: str
    norm_dim: int = -1

    def one_device(self, b: Builder, *operands: str) -> str:
        (x,) = operands
        dims = (real_dim(self.norm_dim, len(b.types[x].shape), str(self)),)
        square = b.add("mean", b.add("mul", x, x), dims=dims, keepdim=True)
        return b.add("mul", x, b.add("rsqrt", b.add("add_scalar", square, value=EPS)))


@dataclass
class Softmax(IROp):
    """Softmax along one dim."""

    x: str
    output: str
    dim: int = -1

    def one_device(self, b: Builder, *operands: str) -> str:
        (x,) = operands
        return softmax(b, x, real_dim(self.dim, len(b.types[x].shape), str(self)))


@dataclass
class Embedding(IROp):
    """Rows of a table. On ranks that hold blocks of rows, rows held elsewhere give zero."""

    indices: str
    weight: str
    output: str
    vocab_dim: int = 0
    reads: ClassVar[tuple[str, ...]] = ("indices", "weight")

    def one_device(self, b: Builder, *operands: str) -> str:
        ids, weight = operands
        return b.add("take", weight, ids, dim=self.vocab_dim)

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        ids, weight = operands
        offset = at.window(weight, self.vocab_dim)
        return at.b.add("take", weight, ids, dim=self.vocab_dim, offset=offset)

    def mark(self, result: TensorState, states: Sequence[TensorState]) -> None:
        result.dtype = states[1].dtype


@dataclass
class CrossEntropyLoss(IROp):
    """Cross entropy of rows of logits, their `mean` or `sum` (or `none`).

    Logits that are split along the vocabulary need `mesh_dim`: then the maximum, the sum of
    exponentials and the target logit are reduced over it, as in vocabulary-parallel training
    (Shoeybi et al. 2019). Without it each rank takes the loss of what it holds.
    """

    logits: str
    targets: str
    output: str
    vocab_dim: int = -1
    reduction: str = "mean"
    mesh_dim: str | None = None
    reads: ClassVar[tuple[str, ...]] = ("logits", "targets")

    def one_device(self, b: Builder, *operands: str) -> str:
        return self._loss(b, None, *operands)

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        return self._loss(at.b, at if self.mesh_dim else None, *operands)

    def _loss(self, b: Builder, at: Ranks | None, x: str, target: str) -> str:
        shape = b.types[x].shape
        if real_dim(self.vocab_dim, len(shape), str(self)) != len(shape) - 1:
            raise ProgramError(f"{self}: the vocabulary must be the last dim")
        if self.reduction not in ("mean", "sum", "none"):
            raise ProgramError(f"{self}: reduction is mean, sum or none")
        rows = merged(shape[:-1])
        x = b.add("reshape", x, shape=(rows, shape[-1]))
        pick = b.add("reshape", target, shape=(rows, 1))
        offset: int | Affine = 0
        if at is not None:
            offset = Affine.of(0, {at.one_dim(self.mesh_dim, str(self)): shape[-1]})
        top = self._whole(b, at, b.add("amax", x, dims=(1,), keepdim=True), "max")
        shifted = b.add("sub", x, top)
        total = b.add("sum", b.add("exp", shifted), dims=(1,), keepdim=True)
        total = self._whole(b, at, total, "sum")
        chosen = b.add("take_along", shifted, pick, dim=1, offset=offset)
        chosen = self._whole(b, at, chosen, "sum")
        loss = b.add("sub", b.add("log", total), chosen)
        if self.reduction == "none":
            return b.add("reshape", loss, shape=shape[:-1])
        loss = b.add("sum", loss, dims=(0, 1))
        scale = Fraction(1, rows) if self.reduction == "mean" else Fraction(1)
        return b.add("mul_scalar", loss, value=scale)

    def _whole(self, b: Builder, at: Ranks | None, x: str, reduce: str) -> str:
        if at is None:
            return x
        return b.add("all_reduce", x, mesh_dim=at.dims(self.mesh_dim), reduce=reduce)


@dataclass
class Reshape(IROp):
    """The same elements in row-major order; `new_shape` is that of the whole tensor."""

    x: str
    output: str
    new_shape: tuple[int, ...]

    def one_device(self, b: Builder, *operands: str) -> str:
        return b.add("reshape", operands[0], shape=tuple(self.new_shape))

    def on_ranks(self, at: Ranks, *operands: str) -> str:
        (x,) = operands
        local = self._local(at, x)
        return at.b.add("reshape", x, shape=local)

    def _local(self, at: Ranks, x: str) -> tuple[int, ...]:
        """The shape on a rank that the core's rule reads as `new_shape` of the whole."""
        layout, want = at.layouts.get(x), tuple(self.new_shape)
        if layout is None or not layout.sharded:
            return want
        tried: set[tuple[int, ...]] = {want}
        for name in sorted(layout.sharded):
            size = at.mesh.core[name]
            tried |= {
                (*s[:d], s[d] // size, *s[d + 1 :])
                for s in tried
                for d in range(len(s))
                if s[d] % size == 0
            }
        held = merged(layout.local_shape)
        for shape in sorted(s for s in tried if merged(s) == held):
            try:
                options = list(regroup(layout, shape))
            except Refused:
                continue
            for dims in options:
                extents = tuple(merged([a.size for a in dim]) for dim in dims)
                if extents == want:
                    return shape
        raise ProgramError(
            f"{self}: {self.x} is {layout} on the ranks, and {list(want)} cuts through its split"
        )


@dataclass
class Transpose(IROp):
    """Two dims change places."""

    x: str
    output: str
    dim0: int = 0
    dim1: int = 1

    def one_device(self, b: Builder, *operands: str) -> str:
        (x,) = operands
        rank = len(b.types[x].shape)
        i, j = (real_dim(d, rank, str(self)) for d in (self.dim0, self.dim1))
        dims = list(range(rank))
        dims[i], dims[j] = j, i
        return b.add("permute", x, dims=tuple(dims))
