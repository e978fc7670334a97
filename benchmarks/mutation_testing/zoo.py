"""Small models in every parallel form we know, forward and backward: the bases of the campaign."""

from __future__ import annotations

from fractions import Fraction

from benchmarks.mutation_testing.author import Author, Base, base
from shardproof.verifier.kernel.program.types import Mesh, TensorType

H, F, T = 4, 8, 4
"""Hidden size, inner size, tokens."""
EPS = Fraction(1, 1000)


def mlp(a: Author) -> None:
    """Column then row parallel, biases, batch over dp, mean squared loss."""
    x = a.input("x", T, H, dp="S(0)")
    w1, b1 = a.param("w1", H, F, tp="S(1)"), a.param("b1", F, tp="S(0)")
    w2, b2 = a.param("w2", F, H, tp="S(0)"), a.param("b2", H)
    inner = a.add("gelu", a.linear(a.enter(x), w1, b1))
    y = a.add("add", a.all_reduce(a.add("mm", inner, w2)), b2)
    a.output(y, "y", dp="S(0)")
    _mean_loss(a, a.add("mul", y, y))
    for param in (w1, b1, w2, b2):
        a.sync(param, "dp", "avg")


def _mean_loss(a: Author, terms: str) -> None:
    shape = a.b.types[terms].shape
    count = 1
    for n in shape:
        count *= n
    total = a.add("sum", terms, dims=tuple(range(len(shape))), keepdim=False)
    a.loss = a.scale(total, Fraction(1, count))
    a.output(a.all_reduce(a.loss, "dp", "avg"), "loss", "loss")


def gated(a: Author) -> None:
    """RMS norm, gated inner product, residual; cotangent input, no loss."""
    x = a.input("x", T, H)
    g = a.param("g", H)
    up, gate = a.param("up", H, F, tp="S(1)"), a.param("gate", H, F, tp="S(1)")
    down = a.param("down", F, H, tp="S(0)")
    n = a.enter(a.add("rms_norm", x, g, eps=EPS))
    inner = a.add("mul", a.add("silu", a.add("mm", n, gate)), a.add("mm", n, up))
    y = a.add("add", x, a.all_reduce(a.add("mm", inner, down)))
    a.output(y, "y")


def attention(a: Author) -> None:
    """Head-parallel attention with grouped keys and values, causal."""
    heads, kv, d = 4, 2, 2
    x = a.input("x", T, H)
    wq = a.param("wq", H, heads * d, tp="S(1)")
    wk, wv = (a.param(n, H, kv * d, tp="S(1)") for n in ("wk", "wv"))
    wo = a.param("wo", heads * d, H, tp="S(0)")
    own, own_kv = a.split(heads), a.split(kv)
    seen = a.enter(x)

    def rows(w: str, count: int) -> str:
        cut = a.add("reshape", a.add("mm", seen, w), shape=(1, T, count, d))
        return a.add("permute", cut, dims=(0, 2, 1, 3))

    def repeat(v: str) -> str:
        wide = a.add("reshape", v, shape=(1, own_kv, 1, T, d))
        wide = a.add("expand", wide, shape=(1, own_kv, heads // kv, T, d))
        return a.add("reshape", wide, shape=(1, own, T, d))

    q, k, v = rows(wq, own), repeat(rows(wk, own_kv)), repeat(rows(wv, own_kv))
    o = a.add("sdpa", q, k, v, causal=True, scale=Fraction(1, 2))
    o = a.add("reshape", a.add("permute", o, dims=(0, 2, 1, 3)), shape=(T, own * d))
    y = a.add("add", x, a.all_reduce(a.add("mm", o, wo)))
    a.output(y, "y")


def vocabulary(a: Author) -> None:
    """Vocabulary-parallel embedding, projection and cross entropy; batch over dp."""
    V = 8
    ids, labels = (a.input(n, T, dtype="i64", dp="S(0)") for n in ("ids", "labels"))
    table, head = a.param("table", V, H, tp="S(0)"), a.param("head", H, V, tp="S(1)")
    own = a.split(V)
    x = a.all_reduce(a.add("take", table, ids, dim=0, offset=a.offset(own)))
    a.output(x, "x", dp="S(0)")
    logits = a.add("mm", a.enter(x), head)
    a.output(logits, "logits", dp="S(0)", tp="S(1)")
    top = a.all_reduce(a.add("amax", logits, dims=(1,), keepdim=True), reduce="max")
    a.stopped.append(top)
    shifted = a.add("sub", logits, top)
    total = a.all_reduce(a.add("sum", a.add("exp", shifted), dims=(1,), keepdim=True))
    column = a.add("reshape", labels, shape=(a.split(T, "dp"), 1))
    mine = a.add("take_along", shifted, column, dim=1, offset=a.offset(own))
    _mean_loss(a, a.add("sub", a.add("log", total), a.all_reduce(mine)))
    for param in (table, head):
        a.sync(param, "dp", "avg")


def sequence(a: Author) -> None:
    """Sequence-parallel layer norm, gathered before the columns, scattered after the rows."""
    x = a.input("x", T, H, tp="S(0)")
    g, c = a.param("g", H), a.param("c", H)
    w1, w2 = a.param("w1", H, F, tp="S(1)"), a.param("w2", F, H, tp="S(0)")
    n = a.all_gather(a.add("layer_norm", x, g, c, eps=EPS), 0)
    y = a.reduce_scatter(a.add("mm", a.add("relu", a.add("mm", n, w1)), w2), 0)
    a.output(a.add("add", x, y), "y", tp="S(0)")
    for param in (g, c):
        a.sync(param, "tp")


def sharded(a: Author) -> None:
    """Parameters split over dp, gathered for use, gradients scattered back."""
    x, target = a.input("x", T, H, dp="S(0)"), a.input("target", T, H, dp="S(0)")
    w1, w2 = a.param("w1", H, F, dp="S(0)"), a.param("w2", F, H, dp="S(0)")
    y = a.add("tanh", a.add("mm", x, a.all_gather(w1, 0, "dp")))
    y = a.add("mm", y, a.all_gather(w2, 0, "dp"))
    gap = a.add("sub", y, target)
    total = a.add("sum", a.add("mul", gap, gap), dims=(0, 1), keepdim=False)
    a.loss = a.scale(total, Fraction(1, T * H))
    a.output(a.all_reduce(a.loss, "dp"), "loss", "loss")


def ulysses(a: Author) -> None:
    """Attention with the sequence split outside and heads split inside, by all-to-all."""
    heads, d = 4, 2
    x = a.input("x", T, H, tp="S(0)")
    wq, wk, wv = (a.param(n, H, heads * d) for n in ("wq", "wk", "wv"))
    wo = a.param("wo", heads * d, H)
    rows, own = a.split(T), a.split(heads)

    def project(w: str) -> str:
        cut = a.add("reshape", a.add("mm", x, w), shape=(rows, heads, d))
        whole = a.all_to_all(cut, 1, 0)
        wide = a.add("reshape", whole, shape=(1, T, own, d))
        return a.add("permute", wide, dims=(0, 2, 1, 3))

    o = a.add("sdpa", *(project(w) for w in (wq, wk, wv)), causal=True, scale=Fraction(1, 2))
    o = a.add("reshape", a.add("permute", o, dims=(0, 2, 1, 3)), shape=(T, own, d))
    o = a.add("reshape", a.all_to_all(o, 0, 1), shape=(rows, heads * d))
    a.output(a.add("mm", o, wo), "y", tp="S(0)")
    for param in (wq, wk, wv, wo):
        a.sync(param, "tp")


def fused(a: Author) -> None:
    """A fused gate and up weight, cut by slices; rotary halves; two reductions, then their sum."""
    d = 4
    x, turn = a.input("x", T, H), a.input("turn", T, 1, d)
    both = a.fused("both", H, 2, F)
    down, wq = a.param("down", F, H, tp="S(0)"), a.param("wq", H, 4 * d, tp="S(1)")
    wo = a.param("wo", 4 * d, H, tp="S(0)")
    seen, own, heads = a.enter(x), a.split(F), a.split(4)
    wide = a.add("mm", seen, both)
    gate = a.add("slice", wide, dim=1, start=0, stop=own)
    up = a.add("slice", wide, dim=1, start=own, stop=2 * own)
    inner = a.add("mul", a.add("gelu_tanh", gate), up)
    q = a.add("reshape", a.add("mm", seen, wq), shape=(T, heads, d))
    low = a.add("slice", q, dim=2, start=0, stop=d // 2)
    high = a.add("slice", q, dim=2, start=d // 2, stop=d)
    turned = a.add("mul", a.add("concat", a.add("neg", high), low, dim=2), turn)
    flat = a.add("reshape", a.add("add", q, turned), shape=(T, heads * d))
    sides = (a.all_reduce(a.add("mm", inner, down)), a.all_reduce(a.add("mm", flat, wo)))
    a.output(a.add("add", *sides), "y")


def layers(a: Author) -> None:
    """Two gated blocks as one scan over stacked parameters."""
    L = 2
    x = a.input("x", T, H)
    up, down = a.param("up", L, H, F, tp="S(2)"), a.param("down", L, F, H, tp="S(1)")
    g = a.param("g", L, H)
    block = Author("block", a.mesh)
    h = block.b.input("h", TensorType((T, H)), "carry")
    u = block.b.input("u", TensorType((H, a.split(F))), "xs")
    v = block.b.input("v", TensorType((a.split(F), H)), "xs")
    w = block.b.input("w", TensorType((H,)), "xs")
    n = block.enter(block.add("rms_norm", h, w, eps=EPS))
    inner = block.add("silu", block.add("mm", n, u))
    block.b.output(block.add("add", h, block.all_reduce(block.add("mm", inner, v))), "carry", "h")
    (y,) = a.b.add_node(
        "scan",
        [x, up, down, g],
        {"length": L, "carry": 1, "xs": 3, "reverse": False},
        body=block.b.build(),
    )
    a.reduced.update(block.reduced)
    a.output(y, "y")


def averaged(a: Author) -> None:
    """Nothing but a batch over dp: gradients are averaged."""
    x, target = a.input("x", T, H, dp="S(0)"), a.input("target", T, H, dp="S(0)")
    w, c = a.param("w", H, H), a.param("c", H)
    gap = a.add("sub", a.add("sigmoid", a.linear(x, w, c)), target)
    _mean_loss(a, a.add("mul", gap, gap))
    for param in (w, c):
        a.sync(param, "dp", "avg")


TP2, TP4, DP2 = Mesh.of(tp=2), Mesh.of(tp=4), Mesh.of(dp=2)
BOTH = Mesh.of(dp=2, tp=2)


def bases() -> list[Base]:
    """Every model on the meshes it has a form for."""
    return [
        base("mlp", mlp, TP2),
        base("mlp", mlp, BOTH),
        base("mlp", mlp, TP4),
        base("gated", gated, TP2),
        base("attention", attention, TP2),
        base("vocabulary", vocabulary, TP2),
        base("vocabulary", vocabulary, BOTH),
        base("fused", fused, TP2),
        base("sequence", sequence, TP2),
        base("sharded", sharded, DP2),
        base("ulysses", ulysses, TP2),
        base("layers", layers, TP2),
        base("averaged", averaged, DP2),
    ]
