"""Small one-device programs, each with a distributed twin and a contract that it meets."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from shardproof.verifier.kernel.contract import Balanced, Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Attr, Mesh, TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify

Pair = tuple[Program, Program, Contract]
NONE = Mesh()
TP = Mesh.of(tp=2)
GRID = Mesh.of(dp=2, tp=2)


def laid(mesh: Mesh, shape: tuple[int, ...], **placements: str) -> Layout:
    """A layout by mesh dim: `laid(mesh, (4, 8), tp="S(1)")`."""
    return from_placements(shape, [(n, mesh[n], placements.get(n, "R")) for n in mesh.names])


class Side:
    """One of the two programs under construction: collectives vanish on one device."""

    def __init__(self, name: str, mesh: Mesh, whole: bool) -> None:
        self.whole, self.mesh = whole, mesh
        self.b = Builder(name, NONE if whole else mesh)

    def n(self, extent: int, mesh_dim: str) -> int:
        """An extent that is split over a mesh dim."""
        return extent if self.whole else extent // self.mesh[mesh_dim]

    def comm(self, op: str, x: str, **attrs: Attr) -> str:
        return x if self.whole else self.b.add(op, x, **attrs)

    def input(self, name: str, shape: tuple[int, ...], layout: Layout, **more: str) -> str:
        dtype = more.pop("dtype", "f32")
        local = shape if self.whole else layout.local_shape
        return self.b.input(name, TensorType(local, dtype), **more)


def both(
    name: str, mesh: Mesh, build: Callable[[Side], tuple[dict[str, Layout], dict[str, Layout]]]
) -> Pair:
    one, many = Side(name, mesh, True), Side(name, mesh, False)
    build(one)
    inputs, outputs = build(many)
    return one.b.build(), many.b.build(), Contract(inputs, outputs)


def mlp(s: Side) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Column-row pair with its backward; the batch over dp."""
    b, m = s.b, s.mesh
    inputs = {
        "x": laid(m, (4, 6), dp="S(0)"),
        "w1": laid(m, (6, 8), tp="S(1)"),
        "w2": laid(m, (8, 6), tp="S(0)"),
        "ct": laid(m, (4, 6), dp="S(0)"),
    }
    roles = {"x": "input", "w1": "param", "w2": "param", "ct": "cotangent"}
    x, w1, w2, ct = (s.input(k, v.global_shape, v, role=roles[k]) for k, v in inputs.items())
    h = b.add("mm", x, w1)
    a = b.add("silu", h)
    y = s.comm("all_reduce", b.add("mm", a, w2), mesh_dim="tp", reduce="sum")
    b.output(y, path="y")
    ga = b.add("mm", ct, b.add("permute", w2, dims=(1, 0)))
    gh = b.add("mul", ga, b.add("silu_grad", h))
    g2 = b.add("mm", b.add("permute", a, dims=(1, 0)), ct)
    g1 = b.add("mm", b.add("permute", x, dims=(1, 0)), gh)
    for path, g in (("w1", g1), ("w2", g2)):
        b.output(s.comm("all_reduce", g, mesh_dim="dp", reduce="sum"), "grad", path)
    outputs = {"output:y": inputs["x"], "grad:w1": inputs["w1"], "grad:w2": inputs["w2"]}
    return inputs, outputs


def layers(s: Side) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Two blocks as a scan, and the scan of their backward, with row-parallel weights."""
    b, m = s.b, s.mesh
    inputs = {"x": laid(m, (4, 6), tp="S(1)"), "w": laid(m, (2, 6, 6), tp="S(1)")}
    x = s.input("x", (4, 6), inputs["x"])
    w = s.input("w", (2, 6, 6), inputs["w"], role="param", path="layers.*.w")
    step = Side("layer", m, s.whole)
    h = step.input("h", (4, 6), inputs["x"], role="carry")
    piece = step.input("piece", (6, 6), laid(m, (6, 6), tp="S(0)"), role="xs")
    y = step.comm("reduce_scatter", step.b.add("mm", h, piece), mesh_dim="tp", dim=1)
    step.b.output(step.b.add("tanh", y), "carry")
    step.b.output(h, "ys")
    attrs: dict[str, Attr] = {"length": 2, "carry": 1, "xs": 1, "reverse": False}
    out, saved = b.add_node("scan", (x, w), attrs, body=step.b.build())
    zero = b.add("full", shape=(4, s.n(6, "tp")), value=Fraction(0), dtype="f32")
    back = Side("backward", m, s.whole)
    g = back.input("g", (4, 6), inputs["x"], role="carry")
    total = back.input("total", (4, 6), inputs["x"], role="carry")
    kept = back.input("kept", (4, 6), inputs["x"], role="xs")
    product = back.b.add("mul", g, kept)
    back.b.output(product, "carry")
    back.b.output(back.b.add("add", total, product), "carry")
    attrs = {"length": 2, "carry": 2, "xs": 1, "reverse": True}
    grad, total = b.add_node("scan", (out, zero, saved), attrs, body=back.b.build())
    for path, value in (("y", out), ("g", grad), ("t", total)):
        b.output(value, path=path)
    return inputs, {f"output:{k}": inputs["x"] for k in "ygt"}


def vocabulary(s: Side) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Vocabulary-parallel embedding, label pick, and the gradient of the embedding."""
    b, m = s.b, s.mesh
    inputs = {"e": laid(m, (8, 6), tp="S(0)"), "ids": laid(m, (2, 3), dp="S(0)")}
    e = s.input("e", (8, 6), inputs["e"], role="param")
    ids = s.input("ids", (2, 3), inputs["ids"], dtype="i64")
    at: Attr = 0 if s.whole else Affine.of(0, {"tp": 4})
    h = s.comm("all_reduce", b.add("take", e, ids, dim=0, offset=at), mesh_dim="tp")
    flat = b.add("reshape", h, shape=(s.n(2, "dp") * 3, 6))
    logits = b.add("mm", flat, b.add("permute", e, dims=(1, 0)))
    pick = b.add("reshape", ids, shape=(s.n(2, "dp") * 3, 1))
    label = b.add("take_along", logits, pick, dim=1, offset=at)
    label = s.comm("all_reduce", label, mesh_dim="tp")
    line = b.add("iota", shape=(1, s.n(8, "tp")), dim=1, offset=at, dtype="i64")
    hot = b.add("cast", b.add("eq", line, pick), dtype="f32")
    spread = b.add("put_along", label, pick, dim=1, size=s.n(8, "tp"), offset=at)
    top = s.comm(
        "all_reduce", b.add("amax", logits, dims=(1,), keepdim=True), mesh_dim="tp", reduce="max"
    )
    g = b.add(
        "mm", b.add("mul", b.add("sub", hot, spread), b.add("exp", b.add("sub", logits, top))), e
    )
    g = s.comm("all_reduce", g, mesh_dim="tp")
    grad = b.add(
        "index_add",
        b.add("reshape", g, shape=(s.n(2, "dp"), 3, 6)),
        ids,
        size=s.n(8, "tp"),
        offset=at,
    )
    b.output(s.comm("all_reduce", grad, mesh_dim="dp"), "grad", "e")
    b.output(label, path="label")
    return inputs, {"grad:e": inputs["e"], "output:label": laid(m, (6, 1), dp="S(0)")}


def attention(s: Side) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Heads split over tp, grouped keys repeated, joined by a row-parallel product."""
    b, m = s.b, s.mesh
    q_layout = laid(m, (2, 4, 3, 2), tp="S(1)")
    k_layout = laid(m, (2, 2, 3, 2), tp="S(1)")
    inputs = {"q": q_layout, "k": k_layout, "w": laid(m, (8, 6), tp="S(0)")}
    q = s.input("q", (2, 4, 3, 2), q_layout)
    k = s.input("k", (2, 2, 3, 2), k_layout)
    w = s.input("w", (8, 6), inputs["w"], role="param")
    groups, heads = s.n(2, "tp"), s.n(4, "tp")
    kk = b.add("reshape", k, shape=(2, groups, 1, 3, 2))
    kk = b.add("expand", kk, shape=(2, groups, 2, 3, 2))
    kk = b.add("reshape", kk, shape=(2, heads, 3, 2))
    o = b.add("sdpa", q, kk, kk, causal=True, scale=Fraction(1, 2))
    o = b.add("reshape", b.add("permute", o, dims=(0, 2, 1, 3)), shape=(6, 2 * heads))
    b.output(s.comm("all_reduce", b.add("mm", o, w), mesh_dim="tp"), path="y")
    return inputs, {"output:y": laid(m, (6, 6))}


def moves(s: Side) -> tuple[dict[str, Layout], dict[str, Layout]]:
    """Every collective, and cuts of a split dim."""
    b, m = s.b, s.mesh
    inputs = {"x": laid(m, (8, 8), tp="S(0)"), "c": laid(m, (8,))}
    x = s.input("x", (8, 8), inputs["x"])
    c = s.input("c", (8,), inputs["c"])
    n = s.n(8, "tp")
    y = s.comm("all_to_all", x, mesh_dim="tp", split_dim=1, concat_dim=0)
    y = s.comm("all_gather", b.add("exp", y), mesh_dim="tp", dim=1)
    y = s.comm("shard_slice", y, mesh_dim="tp", dim=0)
    total = b.add("sum", y, dims=(0,))
    total = b.add("add", total, s.comm("on_coord", c, mesh_dim="tp", index=1))
    total = s.comm("all_reduce", total, mesh_dim="tp")
    twice = s.comm("all_reduce", total, mesh_dim="tp", reduce="avg")
    y = b.add("concat", y, x, dim=1)
    y = b.add("pad", b.add("slice", y, dim=1, start=3, stop=12), dim=1, lo=1, hi=2)
    y = b.add("flip", y, dim=1)
    y = b.add("reshape", y, shape=(n, 3, 4))
    y = b.add("maximum", y, b.add("full", shape=(), value=Fraction(1, 3), dtype="f32"))
    y = b.add(
        "where", b.add("lt", y, b.add("neg", y)), y, b.add("mul_scalar", y, value=Fraction(2))
    )
    b.output(y, path="y")
    b.output(twice, path="total")
    return inputs, {"output:y": laid(m, (8, 3, 4), tp="S(0)"), "output:total": laid(m, (8,))}


def _loss(s: Side) -> tuple[dict[str, Layout], dict[str, Layout]]:
    b, m = s.b, s.mesh
    inputs = {"l": laid(m, (4,), dp="S(0)"), "ids": laid(m, (4,), dp="S(0)")}
    losses = s.input("l", (4,), inputs["l"])
    ids = s.input("ids", (4,), inputs["ids"], dtype="i64")
    zero = b.add("full", shape=(), value=0, dtype="i64")
    keep = b.add("cast", b.add("ge", ids, zero), dtype="f32")
    count = b.add_node("sum", (keep,), {"dims": (0,)}, outputs=("count",))[0]
    mean = b.add("div", b.add("sum", losses, dims=(0,)), count)
    b.output(s.comm("all_reduce", mean, mesh_dim="dp", reduce="avg"), "loss", "loss")
    return inputs, {"loss:loss": laid(m, ())}


def balanced() -> Pair:
    """A mean of local means, right where every rank counts as many entries."""
    one, many, contract = both("loss", Mesh.of(dp=2), _loss)
    assumed = (Balanced("count", "dp", "the number of labels that count"),)
    return one, many, Contract(contract.inputs, contract.outputs, assumed)


PAIRS: dict[str, Callable[[], Pair]] = {
    "mlp": lambda: both("mlp", GRID, mlp),
    "layers": lambda: both("layers", TP, layers),
    "vocabulary": lambda: both("vocabulary", GRID, vocabulary),
    "attention": lambda: both("attention", TP, attention),
    "moves": lambda: both("moves", TP, moves),
    "balanced": balanced,
}


def proof() -> Proof:
    """A proof of the checker, of the smallest pair."""
    found = verify(Problem(*PAIRS["mlp"]()))
    assert isinstance(found, Proof)
    return found
