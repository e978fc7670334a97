"""Random well-formed programs, for property tests."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, Source, TensorType

EXTENTS = st.sampled_from((1, 2, 4, 6))
SHAPES = st.lists(EXTENTS, min_size=1, max_size=3).map(tuple)
DTYPES = st.sampled_from(("f64", "f32", "bf16", "f16"))
RATIONALS = st.one_of(
    st.fractions(), st.floats(allow_nan=False, allow_infinity=False).map(Fraction)
)
TEXTS = st.text(max_size=12)
NAMES = st.one_of(st.from_regex(r"[a-z0-9_][a-z0-9_.*/-]{0,30}", fullmatch=True), TEXTS)
CALLS = st.lists(
    st.tuples(st.from_regex(r"[a-z_/]{1,9}\.py", fullmatch=True), st.integers(1, 99)), max_size=2
).map(tuple)
SOURCES = st.one_of(
    st.just(Source()),
    st.builds(Source, st.just(""), st.just(0), TEXTS, TEXTS),
    st.builds(Source, TEXTS.filter(bool), st.integers(0, 99999), TEXTS, TEXTS, CALLS),
)
MESHES = st.one_of(
    st.just(Mesh()),
    st.lists(
        st.tuples(NAMES, st.sampled_from((1, 2))), min_size=1, max_size=2, unique_by=lambda d: d[0]
    ).map(lambda dims: Mesh(tuple(dims))),
)


@st.composite
def programs(draw: DrawFn, depth: int = 1, mesh: Mesh | None = None) -> Program:
    """A program with inputs of every role, a few ops of many kinds, and nested scans."""
    mesh = draw(MESHES) if mesh is None else mesh
    b = Builder(draw(NAMES), mesh)
    for _ in range(draw(st.integers(1, 3))):
        type = TensorType(draw(SHAPES), draw(DTYPES))
        role = draw(st.sampled_from(("param", "input", "const", "cotangent")))
        b.input(_name(draw, b), type, role, draw(TEXTS))
    for _ in range(draw(st.integers(0, 6))):
        _step(draw, b, depth)
    for value in draw(st.lists(st.sampled_from(sorted(b.types)), max_size=5)):
        b.output(value, draw(st.sampled_from(("output", "loss", "grad"))), draw(TEXTS))
    return b.build()


def _name(draw: DrawFn, b: Builder) -> str:
    name = draw(NAMES)
    return name if name not in b.types else b.fresh()


def _step(draw: DrawFn, b: Builder, depth: int) -> None:
    x = draw(st.sampled_from(sorted(n for n, t in b.types.items() if t.is_float)))
    shape = b.types[x].shape
    dim = draw(st.integers(0, max(0, len(shape) - 1)))
    choices: list[tuple[str, dict[str, Attr]]] = [
        ("exp", {}),
        ("mul_scalar", {"value": draw(RATIONALS)}),
        ("add_scalar", {"value": draw(st.integers(-(2**61), 2**61))}),
        ("cast", {"dtype": draw(DTYPES)}),
        ("permute", {"dims": tuple(draw(st.permutations(range(len(shape)))))}),
        ("expand", {"shape": (2, *shape)}),
        ("sum", {"dims": (dim,) if shape else (), "keepdim": draw(st.booleans())}),
        ("full", {"shape": shape, "value": draw(RATIONALS), "dtype": "f32"}),
        ("full", {"shape": (), "value": draw(RATIONALS)}),
        ("iota", {"shape": (3,), "dim": 0, "offset": draw(_offsets(b.mesh))}),
    ]
    if shape:
        choices.append(("slice", {"dim": dim, "start": 0, "stop": shape[dim]}))
        choices.append(("softmax", {}))
    if b.mesh.dims:
        one = draw(st.sampled_from(b.mesh.names))
        choices.append(("all_reduce", {"mesh_dim": one, "reduce": "max"}))
        choices.append(("all_reduce", {"mesh_dim": b.mesh.names}))
    op, attrs = draw(st.sampled_from(choices))
    source = draw(SOURCES)
    if depth and shape and shape[0] and draw(st.integers(0, 3)) == 0:
        _scan(draw, b, x, depth, source)
    else:
        operands = () if op in ("full", "iota") else (x,)
        b.add_node(op, operands, attrs, outputs=(_name(draw, b),), source=source)


@st.composite
def _offsets(draw: DrawFn, mesh: Mesh) -> int | Affine:
    const = draw(st.integers(-5, 5))
    coeffs = {n: draw(st.integers(-3, 3)) for n in mesh.names}
    return draw(st.sampled_from((const, Affine.of(const, coeffs))))


def _scan(draw: DrawFn, b: Builder, x: str, depth: int, source: Source) -> None:
    """A scan over the leading dim of `x` whose body holds a random program's steps."""
    type = b.types[x]
    inner = Builder(draw(NAMES), b.mesh)
    inner.input("carry", type, "carry")
    inner.input("piece", TensorType(type.shape[1:], type.dtype), "xs")
    inner.input("shared", type, "const")
    _step(draw, inner, depth - 1)
    inner.output("carry", "carry")
    inner.output(draw(st.sampled_from(sorted(inner.types))), "ys")
    attrs: dict[str, Attr] = {"length": type.shape[0], "carry": 1, "xs": 1}
    attrs["reverse"] = draw(st.booleans())
    b.add_node("scan", (x, x, x), attrs, source=source, body=inner.build())
