"""Pairs of programs that compute the same in another way: no relation of layouts is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType

HALF = Fraction(1, 2)
LOW = Fraction(-(10**30))


@dataclass(frozen=True)
class Pair:
    name: str
    sequential: Program
    distributed: Program
    contract: Contract

    def __str__(self) -> str:
        return self.name


class Twin:
    """Builds both programs with inputs that are declared once."""

    def __init__(self, name: str, mesh: Mesh) -> None:
        self.name, self.mesh = name, mesh
        self.one, self.many = Builder("one"), Builder("many", mesh)
        self.inputs: dict[str, Layout] = {}
        self.outputs: dict[str, Layout] = {}

    def _layout(self, shape: tuple[int, ...], splits: dict[str, str]) -> Layout:
        return from_placements(shape, [(n, self.mesh[n], p) for n, p in splits.items()])

    def input(self, name: str, *shape: int, dtype: str = "f32", **splits: str) -> str:
        layout = self.inputs[name] = self._layout(shape, splits)
        self.one.input(name, TensorType(shape, dtype))
        self.many.input(name, TensorType(layout.local_shape, dtype))
        return name

    def output(self, name: str, left: str, right: str, **splits: str) -> None:
        self.outputs[f"output:{name}"] = self._layout(self.one.types[left].shape, splits)
        self.one.output(left, "output", name)
        self.many.output(right, "output", name)

    def pair(self) -> Pair:
        contract = Contract(self.inputs, self.outputs)
        return Pair(self.name, self.one.build(), self.many.build(), contract)


def ring_attention(
    ranks: int = 4, causal: bool = False, wrong: bool = False, low: Fraction = LOW
) -> Pair:
    """Keys and values go round; the running maximum, sum and result are rescaled.

    With another `low` the ranks mask with another constant than one device does.
    """
    n, h, s, d = 1, 2, 4, 2
    t = Twin(f"ring attention on {ranks}{', causal' if causal else ''}", Mesh.of(cp=ranks))
    own = s // ranks
    q, k, v = (t.input(x, n, h, s, d, cp="S(2)") for x in "qkv")
    y = t.one.add("sdpa", q, k, v, causal=causal, scale=HALF)
    b = t.many
    flat = [b.add("reshape", x, shape=(h, own, d)) for x in (q, k, v)]
    query, key, value = flat
    top = total = out = None
    for step in range(ranks):
        scores = b.add(
            "mul_scalar", b.add("bmm", query, b.add("permute", key, dims=(0, 2, 1))), value=HALF
        )
        if causal:
            rows = b.add(
                "iota", shape=(own, 1), dim=0, offset=Affine.of(0, {"cp": own}), dtype="i64"
            )
            rank = b.add("iota", shape=(1, 1), dim=0, offset=Affine.of(0, {"cp": 1}), dtype="i64")
            before = b.add("add_scalar", rank, value=Fraction(-step))
            wrapped = b.add("add_scalar", before, value=Fraction(ranks))
            zero = b.add("full", shape=(), value=Fraction(0), dtype="i64")
            block = b.add("where", b.add("lt", before, zero), wrapped, before)
            inside = b.add("iota", shape=(1, own), dim=1, offset=0, dtype="i64")
            columns = b.add("add", b.add("mul_scalar", block, value=Fraction(own)), inside)
            masked = b.add("full", shape=(), value=low)
            scores = b.add("where", b.add("le", columns, rows), scores, masked)
        here = b.add("amax", scores, dims=(2,), keepdim=True)
        new = here if top is None else b.add("maximum", top, here)
        e = b.add("exp", b.add("sub", scores, new))
        part, share = b.add("sum", e, dims=(2,), keepdim=True), b.add("bmm", e, value)
        if top is None:
            total, out = part, share
        else:
            old = b.add("exp", b.add("sub", top, new))
            total = b.add("add", total if wrong else b.add("mul", old, total), part)
            out = b.add("add", b.add("mul", old, out), share)
        top = new
        if step + 1 < ranks:
            key, value = (b.add("ring_shift", x, mesh_dim="cp", shift=1) for x in (key, value))
    z = b.add("reshape", b.add("div", out, total), shape=(n, h, own, d))
    t.output("y", y, z, cp="S(2)")
    return t.pair()


def merged_attention() -> Pair:
    """Each rank attends to its own keys; results are merged by their log-sum-exp."""
    h, s, d = 2, 4, 2
    t = Twin("attention merged by log-sum-exp", Mesh.of(cp=2))
    q = t.input("q", h, s, d)
    k, v = (t.input(x, h, s, d, cp="S(1)") for x in "kv")
    one = t.one
    p = one.add("softmax", one.add("bmm", q, one.add("permute", k, dims=(0, 2, 1))))
    y = one.add("bmm", p, v)
    b = t.many
    scores = b.add("bmm", q, b.add("permute", k, dims=(0, 2, 1)))
    top = b.add("amax", scores, dims=(2,), keepdim=True)
    e = b.add("exp", b.add("sub", scores, top))
    total = b.add("sum", e, dims=(2,), keepdim=True)
    mine, lse = b.add("div", b.add("bmm", e, v), total), b.add("add", b.add("log", total), top)
    whole = b.add("log", b.add("all_reduce", b.add("exp", lse), mesh_dim="cp"))
    z = b.add(
        "all_reduce", b.add("mul", mine, b.add("exp", b.add("sub", lse, whole))), mesh_dim="cp"
    )
    t.output("y", y, z)
    return t.pair()


def variance(wrong: bool = False) -> Pair:
    """Layer norm of a split row from one pass: the mean square less the square of the mean."""
    rows, n = 2, 8
    t = Twin("variance in one pass", Mesh.of(tp=2))
    x = t.input("x", rows, n, tp="S(1)")
    w, c = t.input("w", n, tp="S(0)"), t.input("c", n, tp="S(0)")
    y = t.one.add("layer_norm", x, w, c, eps=Fraction(1, 1000))
    b = t.many

    def mean(value: str) -> str:
        total = b.add("all_reduce", b.add("sum", value, dims=(1,), keepdim=True), mesh_dim="tp")
        return b.add("mul_scalar", total, value=Fraction(1, n - 1 if wrong else n))

    mu = mean(x)
    var = b.add("sub", mean(b.add("mul", x, x)), b.add("mul", mu, mu))
    scale = b.add("rsqrt", b.add("add_scalar", var, value=Fraction(1, 1000)))
    z = b.add("add", b.add("mul", b.add("mul", b.add("sub", x, mu), scale), w), c)
    t.output("y", y, z, tp="S(1)")
    return t.pair()


def cross_entropy(spelling: str) -> Pair:
    """Vocabulary-parallel cross entropy; labels are looked up on the rank that owns them."""
    tokens, vocab = 2, 4
    t = Twin(f"cross entropy, {spelling}", Mesh.of(tp=2))
    logits = t.input("logits", tokens, vocab, tp="S(1)")
    labels = t.input("labels", tokens, dtype="i64")
    one, b = t.one, t.many
    column = one.add("reshape", labels, shape=(tokens, 1))
    y = one.add("neg", one.add("take_along", one.add("log_softmax", logits), column, dim=1))
    own = Affine.of(0, {"tp": vocab // 2})
    column = b.add("reshape", labels, shape=(tokens, 1))
    if spelling == "one-hot":
        ramp = b.add("iota", shape=(1, vocab // 2), dim=1, offset=own, dtype="i64")
        hot = b.add("cast", b.add("eq", ramp, column), dtype="f32")
        mine = b.add("sum", b.add("mul", hot, logits), dims=(1,), keepdim=True)
    else:
        mine = b.add("take_along", logits, column, dim=1, offset=own)
    mine = b.add("all_reduce", mine, mesh_dim="tp")
    if spelling == "no maximum":
        e = b.add("sum", b.add("exp", logits), dims=(1,), keepdim=True)
        z = b.add("sub", b.add("log", b.add("all_reduce", e, mesh_dim="tp")), mine)
    elif spelling == "log-sum-exp of each rank":
        top = b.add("amax", logits, dims=(1,), keepdim=True)
        e = b.add("sum", b.add("exp", b.add("sub", logits, top)), dims=(1,), keepdim=True)
        each = b.add("all_gather", b.add("add", b.add("log", e), top), mesh_dim="tp", dim=1)
        z = b.add(
            "sub", b.add("log", b.add("sum", b.add("exp", each), dims=(1,), keepdim=True)), mine
        )
    else:
        top = b.add(
            "all_reduce",
            b.add("amax", logits, dims=(1,), keepdim=True),
            mesh_dim="tp",
            reduce="max",
        )
        e = b.add("sum", b.add("exp", b.add("sub", logits, top)), dims=(1,), keepdim=True)
        p = b.add(
            "div", b.add("exp", b.add("sub", mine, top)), b.add("all_reduce", e, mesh_dim="tp")
        )
        z = b.add("neg", b.add("log", p))
    t.output("y", y, z)
    return t.pair()


def fused_qkv() -> Pair:
    """One product with a fused weight, cut; the one-device program makes three."""
    n, h = 3, 4
    t = Twin("fused weights, bias on one rank", Mesh.of(tp=2))
    x = t.input("x", n, h)
    a, g = t.input("a", h, 4, tp="S(1)"), t.input("g", h, 4, tp="S(1)")
    down, c = t.input("down", 4, h, tp="S(0)"), t.input("c", h)
    one, b = t.one, t.many
    y = one.add(
        "mm", one.add("mul", one.add("silu", one.add("mm", x, g)), one.add("mm", x, a)), down
    )
    y = one.add("add", y, c)
    wide = b.add("mm", x, b.add("concat", a, g, dim=1))
    up, gate = (
        b.add("slice", wide, dim=1, start=0, stop=2),
        b.add("slice", wide, dim=1, start=2, stop=4),
    )
    decay = b.add("add_scalar", b.add("exp", b.add("neg", gate)), value=Fraction(1))
    part = b.add("mm", b.add("mul", b.add("div", gate, decay), up), down)
    part = b.add(
        "add", part, b.add("on_coord", b.add("expand", c, shape=(n, h)), mesh_dim="tp", index=1)
    )
    gathered = b.add("reshape", b.add("pad", part, dim=0, lo=0, hi=1), shape=(4, h))
    z = b.add("reduce_scatter", gathered, mesh_dim="tp", dim=0, reduce="sum")
    z = b.add("slice", b.add("all_gather", z, mesh_dim="tp", dim=0), dim=0, start=0, stop=n)
    t.output("y", y, z)
    return t.pair()


def products(name: str) -> Pair:
    """Products over sums, and sums in another order."""
    n = 4
    t = Twin(name, Mesh.of(tp=2))
    x, r = t.input("x", n, n), t.input("r", n, n)
    w, u = t.input("w", n, n, tp="S(0)"), t.input("u", n, n, tp="S(1)")
    one, b = t.one, t.many
    y = one.add("mm", one.add("mm", one.add("add", x, r), u), w)
    if name == "product over a sum":
        left, right = b.add("mm", b.add("mm", x, u), w), b.add("mm", b.add("mm", r, u), w)
        z = b.add(
            "add",
            b.add("all_reduce", left, mesh_dim="tp"),
            b.add("all_reduce", right, mesh_dim="tp"),
        )
    elif name == "products in another order":
        z = b.add("all_reduce", b.add("mm", b.add("add", r, x), b.add("mm", u, w)), mesh_dim="tp")
    else:
        left = b.add(
            "mm", b.add("permute", w, dims=(1, 0)), b.add("permute", b.add("mm", x, u), dims=(1, 0))
        )
        right = b.add("mm", b.add("mm", r, u), w)
        both = b.add("add", b.add("permute", left, dims=(1, 0)), right)
        z = b.add("all_reduce", both, mesh_dim="tp")
    t.output("y", y, z)
    return t.pair()


def adamw_step(ranks: int = 4, wrong: bool = False) -> Pair:
    """Forward, backward, clipping by the global norm and AdamW; states split over the ranks.

    The distributed step scales the root of the second moment, the one-device step the moment.
    """
    n, h, f = ranks, 4, 4
    t = Twin(f"AdamW step on {ranks}", Mesh.of(dp=ranks))
    x = t.input("x", n, h, dp="S(0)")
    weights = [t.input("w1", h, f), t.input("w2", f, h)]
    shards = [t.input(f"w{i}_own", h, f, dp="S(0)") for i in (1, 2)]
    first = [t.input(f"m{i}", h, f, dp="S(0)") for i in (1, 2)]
    second = [t.input(f"v{i}", h, f, dp="S(0)") for i in (1, 2)]
    beta1, beta2, eps, decay = (Fraction(v) for v in ("9/10", "999/1000", "1/100000000", "1/100"))
    rate, most, bias1, bias2 = Fraction(1, 1000), Fraction(1), 1 - beta1**3, 1 - beta2**3

    def gradients(b: Builder) -> list[str]:
        before = b.add("mm", x, weights[0])
        inner = b.add("relu", before)
        y = b.add("mm", inner, weights[1])
        dy = b.add("mul_scalar", y, value=Fraction(2, n * h))
        back = b.add("mm", dy, b.add("permute", weights[1], dims=(1, 0)))
        back = b.add("mul", back, b.add("relu_grad", before))
        turned = [b.add("permute", v, dims=(1, 0)) for v in (x, inner)]
        return [b.add("mm", turned[0], back), b.add("mm", turned[1], dy)]

    def squares(b: Builder, grads: list[str]) -> str:
        parts = [b.add("sum", b.add("mul", g, g), dims=(0, 1)) for g in grads]
        return b.add("add", *parts)

    def factor(b: Builder, square: str) -> str:
        norm = b.add("add_scalar", b.add("sqrt", square), value=Fraction(1, 10**6))
        ratio = b.add("mul_scalar", b.add("reciprocal", norm), value=most)
        return b.add("minimum", ratio, b.add("full", shape=(), value=Fraction(1)))

    def moved(b: Builder, old: str, grad: str, beta: Fraction) -> str:
        kept = b.add("mul_scalar", old, value=beta)
        return b.add("add", kept, b.add("mul_scalar", grad, value=1 - beta))

    one, b = t.one, t.many
    grads = gradients(one)
    clip = factor(one, squares(one, grads))
    parts = [b.add("reduce_scatter", g, mesh_dim="dp", dim=0, reduce="sum") for g in gradients(b)]
    own = squares(b, parts)
    shared = factor(b, own if wrong else b.add("all_reduce", own, mesh_dim="dp"))
    for i in range(2):
        g = one.add("mul", grads[i], clip)
        m = moved(one, first[i], g, beta1)
        v = moved(one, second[i], one.add("mul", g, g), beta2)
        root = one.add("sqrt", one.add("mul_scalar", v, value=1 / bias2))
        under = one.add("add_scalar", root, value=eps)
        step = one.add("div", one.add("mul_scalar", m, value=1 / bias1), under)
        step = one.add("add", step, one.add("mul_scalar", shards[i], value=decay))
        left = one.add("sub", shards[i], one.add("mul_scalar", step, value=rate))
        g = b.add("mul", parts[i], shared)
        m = moved(b, first[i], g, beta1)
        v = moved(b, second[i], b.add("mul", g, g), beta2)
        scale = b.add("sqrt", b.add("full", shape=(), value=bias2))
        under = b.add("add_scalar", b.add("div", b.add("sqrt", v), scale), value=eps)
        step = b.add("mul_scalar", b.add("div", m, under), value=rate / bias1)
        kept = b.add("mul_scalar", shards[i], value=1 - rate * decay)
        right = b.add("all_gather", b.add("sub", kept, step), mesh_dim="dp", dim=0)
        t.output(f"w{i + 1}", left, right)
    return t.pair()


SPELLINGS: list[Callable[[], Pair]] = [
    ring_attention,
    lambda: ring_attention(2, causal=True),
    merged_attention,
    variance,
    lambda: cross_entropy("no maximum"),
    lambda: cross_entropy("one-hot"),
    lambda: cross_entropy("log-sum-exp of each rank"),
    lambda: cross_entropy("log of the probability"),
    fused_qkv,
    lambda: products("product over a sum"),
    lambda: products("products in another order"),
    lambda: products("transposed product"),
]
