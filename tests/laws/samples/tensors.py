"""Samples of views, reductions, lookups and created tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import permutations, product

from shardproof.verifier.kernel.program.types import Mesh
from tests.laws.samples.form import Attrs, Form, Forms, Shape, fixed, offsets

FLOATS2 = ("f32", "f32")


def reduced(a: int, b: int) -> Iterator[Form]:
    for dims in ((0,), (1,), (0, 2), (0, 1, 2), ()):
        attrs = [{"dims": dims, "keepdim": keep} for keep in (False, True)]
        yield Form(((b, a, 2),), ("f32",), fixed(*attrs))


def _reshape(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        (shape,) = local
        targets: set[Shape] = {(math.prod(shape),), (1, *shape), (*shape, 1)}
        for i in range(len(shape) - 1):
            targets.add((*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]))
        for i, n in enumerate(shape):
            for k in range(2, n):
                if n % k == 0:
                    targets.add((*shape[:i], k, n // k, *shape[i + 1 :]))
        targets.add(tuple(reversed(shape)))
        for target in sorted(targets):
            yield {"shape": target}

    yield Form(((a, b),), ("f32",), attrs)
    yield Form(((b, 2, a),), ("f32",), attrs)


def _permute(a: int, b: int) -> Iterator[Form]:
    yield Form(((a, b, 2),), ("f32",), fixed(*({"dims": p} for p in permutations(range(3)))))


def _expand(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        (shape,) = local
        yield {"shape": tuple(3 if n == 1 else n for n in shape)}
        yield {"shape": (2, *shape)}
        yield {"shape": shape}

    yield Form(((a, 1, b),), ("f32",), attrs)
    yield Form(((1, a),), ("f32",), attrs)


def _slice(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for dim, n in enumerate(local[0]):
            for start in range(n):
                for stop in range(start + 1, n + 1):
                    yield {"dim": dim, "start": start, "stop": stop, "step": 1}
            yield {"dim": dim, "start": 0, "stop": n, "step": 2}

    yield Form(((a, b),), ("f32",), attrs)


def _concat(a: int, b: int) -> Iterator[Form]:
    for arity in (2, 3):
        yield Form(((a, b),) * arity, ("f32",) * arity, fixed({"dim": 0}, {"dim": 1}))
    yield Form(((a, b), (a, 2 * b)), FLOATS2, fixed({"dim": 1}))


def _pad(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for dim, n in enumerate(local[0]):
            for lo, hi in ((0, 1), (1, 0), (n, 2 * n), (2, 1)):
                yield {"dim": dim, "lo": lo, "hi": hi}

    yield Form(((a, b),), ("f32",), attrs)


def _flip(a: int, b: int) -> Iterator[Form]:
    yield Form(((a, b),), ("f32",), fixed({"dim": 0}, {"dim": 1}))


def _take(a: int, b: int) -> Iterator[Form]:
    def along(dim: int) -> Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for offset in offsets(local[0][dim], mesh):
                yield {"dim": dim, "offset": offset}

        return attrs

    yield Form(((a, b), (a,)), ("f32", "i64"), along(0))
    yield Form(((b, a), (b, 2)), ("f32", "i64"), along(1))


def _index_add(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for offset in offsets(3, mesh):
            yield {"size": 3, "offset": offset}

    yield Form(((a, b), (a,)), ("f32", "i64"), attrs)
    yield Form(((b, a), (b, a)), ("f32", "i64"), attrs)


def _take_along(a: int, b: int) -> Iterator[Form]:
    def along(dim: int) -> Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for offset in offsets(local[0][dim], mesh):
                yield {"dim": dim, "offset": offset}

        return attrs

    yield Form(((b, a), (b, b)), ("f32", "i64"), along(1))
    yield Form(((a, b), (1, b)), ("f32", "i64"), along(0))


def _put_along(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for dim, offset in product((0, 1), offsets(3, mesh)):
            yield {"dim": dim, "size": 3, "offset": offset}

    yield Form(((a, b), (a, b)), ("f32", "i64"), attrs)


def _full(a: int, b: int) -> Iterator[Form]:
    shapes: list[Shape] = [(), (2,), (1, 3)]
    yield Form(
        (), (), fixed(*({"shape": s, "value": Fraction(3, 2), "dtype": "f32"} for s in shapes))
    )
    yield Form((), (), fixed({"shape": (2,), "value": Fraction(4), "dtype": "i64"}))


def _iota(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for shape, dim in (((3,), 0), ((1, 3), 1), ((2, 3), 0)):
            for offset in offsets(shape[dim], mesh):
                yield {"shape": shape, "dim": dim, "offset": offset, "dtype": "i64"}

    yield Form((), (), attrs)


TENSORS: dict[str, Forms] = {
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "concat": _concat,
    "pad": _pad,
    "flip": _flip,
    "take": _take,
    "index_add": _index_add,
    "take_along": _take_along,
    "put_along": _put_along,
    "full": _full,
    "iota": _iota,
}
