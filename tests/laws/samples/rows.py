"""Samples of ops on whole rows, random masks and rounding."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

from shardproof.verifier.kernel.program.registry import Op
from shardproof.verifier.kernel.program.types import Affine, Mesh
from tests.laws.samples.form import Attrs, Form, Forms, Shape, fixed, offsets


def lines(op: Op, a: int, b: int) -> Iterator[Form]:
    """Either dim, and both ways of whatever is so or not."""
    flags = [k for k, default in op.attrs.items() if isinstance(default, bool)]
    chosen = product((0, 1), *((False, True) for _ in flags))
    attrs = [dict(zip(("dim", *flags), values, strict=True)) for values in chosen]
    for dtype in ("f32", "i64"):
        yield Form(((a, b),), (dtype,), fixed(*attrs))


def _topk_mask(a: int, b: int) -> Iterator[Form]:
    yield Form(
        ((a, b),), ("f32",), fixed({"dim": 0, "k": 1}, {"dim": 1, "k": 1}, {"dim": 0, "k": 2})
    )


def _dropout_mask(a: int, b: int) -> Iterator[Form]:
    """Blocks and cycles of every dim, over one and two mesh dims, and steps that fit no mask."""

    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        p = Fraction(1, 4)
        shapes: list[tuple[Shape, Shape]] = [((2, 3), ()), ((2, 3), (7, 1)), ((1, 2), ()), ((), ())]
        for name, n in mesh.dims:
            shapes += [((2, 3), (3 * n, 1)), ((2, 3), (3, n)), ((2, 3), (3 * n, n))]
            for coeff in (1, 3, 6):
                offset = Affine.of(2, {name: coeff})
                for shape, strides in ((2, 3), (3 * n, 1)), ((2, 3), (3 * n, n)), ((2, 3), ()):
                    yield {"shape": shape, "strides": strides, "offset": offset, "p": p}
        for (shape, strides), stream in product(shapes, (0, 1)):
            for offset in offsets(6 if shape == (2, 3) else 2, mesh):
                at = {"shape": shape, "strides": strides, "offset": offset}
                yield {**at, "p": p, "stream": stream}

    yield Form(((),), ("i64",), attrs)


def _round_to(a: int, b: int) -> Iterator[Form]:
    formats = ("f16", "bf16", "tf32", "f8e4m3", "f8e5m2")
    yield Form(((a, b),), ("f32",), fixed(*({"format": f} for f in formats)))


ROWS: dict[str, Forms] = {
    "topk_mask": _topk_mask,
    "topk_index": _topk_mask,
    "dropout_mask": _dropout_mask,
    "round_to": _round_to,
}
