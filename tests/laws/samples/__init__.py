"""Small applications of every op under many layouts: what the laws of the registry are tried on.

Map and einsum ops are sampled by their signature, reductions and ops on whole lines by their kind.
Any other op, and any op with other attributes, says here how these are drawn; an op that nothing
here covers is an error, never a skip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np

from shardproof.verifier.kernel.layout import Atom, Dim, Layout, normal
from shardproof.verifier.kernel.ops.reduce import parse
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.registry import Op
from shardproof.verifier.kernel.program.types import Attr, Mesh
from shardproof.verifier.provers.placement import Operands
from tests.laws.samples.form import Attrs, Form, Shape, fixed
from tests.laws.samples.groups import GROUPS
from tests.laws.samples.models import MODELS
from tests.laws.samples.rows import ROWS, lines
from tests.laws.samples.tensors import TENSORS, reduced

MESHES = (Mesh.of(tp=2), Mesh.of(tp=3), Mesh.of(dp=2, tp=2))


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
    if op.kind == "reduce":
        yield from reduced(2 * n, n)
        return
    if op.kind == "rows" and all(k == "dim" or isinstance(v, bool) for k, v in op.attrs.items()):
        yield from lines(op, 2 * n, n)
        return
    required = [a for a in op.attrs if a not in ATTRS.get(op.name, [{}])[0]]
    if required or op.kind not in ("map", "einsum"):
        raise IRError(f"tests/laws/samples has no samples of {op.name} (attributes {required})")
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
FORMS = {**TENSORS, **ROWS, **GROUPS, **MODELS}
