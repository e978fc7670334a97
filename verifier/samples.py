"""Small applications of every op under many layouts: what the laws of the registry are tried on.

Map and einsum ops are sampled by their signature. Any other op, and any op with attributes, says
here how its attributes are drawn; an op that nothing here covers is an error, never a skip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from verifier.ir.errors import IRError
from verifier.ir.types import Affine, Attr, Mesh
from verifier.layout import Atom, Dim, Layout, normal
from verifier.ops.linalg import parse
from verifier.ops.registry import Op, Operands

MESHES = (Mesh.of(tp=2), Mesh.of(tp=3), Mesh.of(dp=2, tp=2))
Shape = tuple[int, ...]
Attrs = Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class Case:
    """One application: layouts of the operands, attributes as a rank writes them."""

    op: Op
    mesh: Mesh
    layouts: tuple[Layout, ...]
    dtypes: tuple[str, ...]
    attrs: tuple[tuple[str, Attr], ...]
    zeros: frozenset[int] = frozenset()
    """Operands that are the constant 0."""

    @property
    def operands(self) -> Operands:
        return Operands(self.layouts, self.attrs, self.mesh, self.zeros)

    def __str__(self) -> str:
        operands = ", ".join(f"{t}{lay}" for t, lay in zip(self.dtypes, self.layouts, strict=True))
        attrs = ", ".join(f"{k}={v}" for k, v in self.attrs)
        return f"{self.op.name}({operands}; {attrs}) on {self.mesh}"


@dataclass(frozen=True, slots=True)
class Form:
    """Whole shapes and dtypes of operands, and the attributes to try on given local shapes."""

    shapes: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    attrs: Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]


def layouts(shape: Shape, mesh: Mesh, partial: bool = True) -> list[Layout]:
    """Every way to split dims of `shape` over the mesh, in blocks or strided, or leave a fold."""
    out = [Layout.replicate(shape)]
    for name, size in mesh.dims:
        found: list[Layout] = []
        for layout in out:
            found.append(layout)
            for index, dim in enumerate(layout.dims):
                found += [layout.with_dim(index, d) for d in _splits(dim, size, name)]
            if partial:
                folds = ("sum", "max") if not layout.partial else (layout.partial[0][1],)
                found += [layout.with_partial((*layout.partial, (name, f))) for f in folds]
        out = found
    return list(dict.fromkeys(out))


def _splits(dim: Dim, size: int, name: str) -> Iterator[Dim]:
    """Fix a factor of some free atom to the mesh dim: outermost, in the middle or innermost."""
    for at, atom in enumerate(dim):
        if atom.mesh_dim is None and atom.size % size == 0:
            rest = atom.size // size
            for outer in {1, rest, next((k for k in range(2, rest) if rest % k == 0), 1)}:
                inner = (Atom(outer), Atom(size, name), Atom(rest // outer))
                yield normal((*dim[:at], *inner, *dim[at + 1 :]))


def cases(op: Op, mesh: Mesh, rng: np.random.Generator, limit: int) -> Iterator[Case]:
    """Up to `limit` applications of `op`, in random order.

    Raises:
        IRError: nothing here says how to sample the op.
    """
    pool: list[Case] = []
    for form in forms(op, mesh):
        choices = [
            layouts(shape, mesh, partial=dtype != "bool")
            for shape, dtype in zip(form.shapes, form.dtypes, strict=True)
        ]
        total = math.prod(len(c) for c in choices)
        combos: list[tuple[Layout, ...]]
        if total <= limit:
            combos = list(product(*choices))
        else:
            combos = [_combination(choices, rng) for _ in range(limit)]
        for combo in combos:
            for attrs in form.attrs(tuple(lay.local_shape for lay in combo), mesh):
                items = tuple(sorted(op.with_defaults(attrs).items()))
                pool.append(Case(op, mesh, combo, form.dtypes, items))
                if op.name in ("add", "sub", "where", "concat", "maximum"):
                    zero = frozenset({int(rng.integers(len(combo)))})
                    if op.name != "where" or 0 not in zero:
                        pool.append(Case(op, mesh, combo, form.dtypes, items, zero))
    order = rng.permutation(len(pool))
    yield from (pool[i] for i in order[:limit])


def _combination(choices: Sequence[list[Layout]], rng: np.random.Generator) -> tuple[Layout, ...]:
    """One layout each; half of the time operands of one shape get one layout."""
    picked = [c[int(rng.integers(len(c)))] for c in choices]
    if rng.random() < 0.5:
        first: dict[Shape, Layout] = {}
        for i, layout in enumerate(picked):
            match = first.setdefault(layout.global_shape, layout)
            picked[i] = match if match in choices[i] else layout
    return tuple(picked)


def forms(op: Op, mesh: Mesh) -> Iterator[Form]:
    """Operand shapes and attributes to try. Extents are divisible by the mesh."""
    n = mesh.size
    if op.name in FORMS:
        yield from FORMS[op.name](2 * n, n)
        return
    required = [a for a in op.attrs if a not in ATTRS.get(op.name, [{}])[0]]
    if required or op.kind not in ("map", "einsum"):
        raise IRError(f"verifier/samples.py has no samples of {op.name} (attributes {required})")
    if op.kind == "einsum":
        operands, _ = parse(op.signature)
        extents = {f: (2 * n if f == operands[0][-1] else n) for fs in operands for f in fs}
        shapes = tuple(tuple(extents[f] for f in fs) for fs in operands)
        yield Form(shapes, ("f32",) * len(shapes), fixed({}))
        return
    arity = len(op.signature.split("->")[0].split(","))
    dtypes = DTYPES.get(op.name, [("f32",) * arity])
    for kinds, attrs in product(dtypes, ATTRS.get(op.name, [{}])):
        for shapes in broadcasts(arity, 2 * n, n):
            yield Form(shapes, kinds, fixed(attrs))


def broadcasts(arity: int, a: int, b: int) -> list[tuple[Shape, ...]]:
    if arity == 1:
        return [((a, b),)]
    rest = ((a, b),) * (arity - 2)
    pairs = [((a, b), (a, b)), ((a, b), (b,)), ((a, 1), (a, b)), ((a, b), ())]
    return [(*rest, *pair) for pair in pairs]


def fixed(*attrs: Attrs) -> Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]:
    return lambda local, mesh: iter(attrs)


ATTRS: dict[str, Sequence[Attrs]] = {
    "pow": [{"exponent": Fraction(e)} for e in (3, -2)] + [{"exponent": Fraction(1, 2)}],
    "mul_scalar": [{"value": Fraction(-3, 2)}],
    "add_scalar": [{"value": Fraction(5, 4)}],
    "cast": [{"dtype": "bf16"}],
}
FLOATS2, INTS2 = ("f32", "f32"), ("i64", "i64")
DTYPES: dict[str, list[tuple[str, ...]]] = {
    **{name: [FLOATS2, INTS2] for name in ("add", "sub", "mul", "maximum", "minimum")},
    **{name: [FLOATS2, INTS2] for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: [("bool", "bool")] for name in ("logical_and", "logical_or")},
    "logical_not": [("bool",)],
    "where": [("bool", "f32", "f32")],
    "cast": [("f32",), ("i64",)],
    "neg": [("f32",), ("i64",)],
}


def _reduce(a: int, b: int) -> Iterator[Form]:
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


def _offsets(extent: int, mesh: Mesh) -> Iterator[int | Affine]:
    yield 0
    yield 1
    for name in mesh.names:
        yield Affine.of(0, {name: extent})
        yield Affine.of(1, {name: extent})
        yield Affine.of(0, {name: extent + 1})
    yield Affine.of(0, dict.fromkeys(mesh.names, extent))
    inner = extent
    steps: dict[str, int] = {}
    for name, size in reversed(mesh.dims):
        steps[name] = inner
        inner *= size
    yield Affine.of(0, steps)


def _take(a: int, b: int) -> Iterator[Form]:
    def along(dim: int) -> Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for offset in _offsets(local[0][dim], mesh):
                yield {"dim": dim, "offset": offset}

        return attrs

    yield Form(((a, b), (a,)), ("f32", "i64"), along(0))
    yield Form(((b, a), (b, 2)), ("f32", "i64"), along(1))


def _index_add(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for offset in _offsets(3, mesh):
            yield {"size": 3, "offset": offset}

    yield Form(((a, b), (a,)), ("f32", "i64"), attrs)
    yield Form(((b, a), (b, a)), ("f32", "i64"), attrs)


def _take_along(a: int, b: int) -> Iterator[Form]:
    def along(dim: int) -> Callable[[tuple[Shape, ...], Mesh], Iterator[Attrs]]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for offset in _offsets(local[0][dim], mesh):
                yield {"dim": dim, "offset": offset}

        return attrs

    yield Form(((b, a), (b, b)), ("f32", "i64"), along(1))
    yield Form(((a, b), (1, b)), ("f32", "i64"), along(0))


def _put_along(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for dim, offset in product((0, 1), _offsets(3, mesh)):
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
            for offset in _offsets(shape[dim], mesh):
                yield {"shape": shape, "dim": dim, "offset": offset, "dtype": "i64"}

    yield Form((), (), attrs)


def _groups(mesh: Mesh) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(mesh.names) + 1):
        yield from permutations(mesh.names, count)


def _collective(**choices: Sequence[Attr]) -> Callable[[int, int], Iterator[Form]]:
    def form(a: int, b: int) -> Iterator[Form]:
        def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
            for group, values in product(_groups(mesh), product(*choices.values())):
                chosen = dict(zip(choices, values, strict=True))
                size = math.prod(mesh[name] for name in group)
                split = chosen.get("split_dim", chosen.get("dim") if "cut" in chosen else None)
                if isinstance(split, int) and local[0][split] % size:
                    continue
                if "split_dim" in chosen and chosen["split_dim"] == chosen["concat_dim"]:
                    continue
                chosen.pop("cut", None)
                yield {"mesh_dim": group[0] if len(group) == 1 else group, **chosen}

        yield Form(((a, 2 * b),), ("f32",), attrs)

    return form


def _on_coord(a: int, b: int) -> Iterator[Form]:
    def attrs(local: tuple[Shape, ...], mesh: Mesh) -> Iterator[Attrs]:
        for name, size in mesh.dims:
            for index in range(size):
                yield {"mesh_dim": name, "index": index}

    yield Form(((a, b),), ("f32",), attrs)


def _composite(*shapes: str, attrs: Attrs | None = None) -> Callable[[int, int], Iterator[Form]]:
    """Composites by operand dims, in letters."""

    def form(a: int, b: int) -> Iterator[Form]:
        extents = {"a": a, "b": b, "h": 2, "d": 3, "i": 3, "j": 4, "1": 1}
        yield Form(
            tuple(tuple(extents[c] for c in s) for s in shapes),
            ("f32",) * len(shapes),
            fixed(attrs or {}),
        )

    return form


REDUCES = ("sum", "avg", "max", "min")
FORMS: dict[str, Callable[[int, int], Iterator[Form]]] = {
    "sum": _reduce,
    "amax": _reduce,
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
    "all_reduce": _collective(reduce=REDUCES),
    "all_gather": _collective(dim=(0, 1)),
    "reduce_scatter": _collective(dim=(0, 1), reduce=REDUCES, cut=(True,)),
    "shard_slice": _collective(dim=(0, 1), cut=(True,)),
    "all_to_all": _collective(split_dim=(0, 1), concat_dim=(0, 1)),
    "on_coord": _on_coord,
    "scan": _composite("b", "ib", attrs={"length": 3, "carry": 1, "xs": 1}),
    "mean": _composite("ab", attrs={"dims": (1,), "keepdim": True}),
    "softmax": _composite("ij"),
    "softmax_backward": _composite("ij", "ij"),
    "log_softmax": _composite("ij"),
    "log_softmax_backward": _composite("ij", "ij"),
    "layer_norm": _composite("ij", "j", "j", attrs={"eps": Fraction(1, 1000)}),
    "rms_norm": _composite("ij", "j", attrs={"eps": Fraction(1, 1000)}),
    "sdpa": _composite("ahid", "ahjd", "ahjd", attrs={"causal": True, "scale": Fraction(1, 2)}),
}
