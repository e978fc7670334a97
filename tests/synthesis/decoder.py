"""A small decoder written in the IR, with repeated blocks, and ways to run its lowered forms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.hardware import Cluster, load
from shardproof.synthesis.lower import Lowered
from shardproof.verifier.domains.floats import Floats
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh, Source, TensorType
from shardproof.verifier.refute.evaluate import evaluate, simulate
from shardproof.verifier.refute.scatter import gather, scatter

BATCH, SEQ, HIDDEN, FFN, VOCAB, LAYERS = 2, 4, 8, 16, 12, 3
CLUSTER: Cluster = load()


def place(module: str, line: int = 1) -> Source:
    return Source("toy.py", line, module, "")


def linear(b: Builder, x: str, weight: str, module: str, bias: str | None = None) -> str:
    """x: [B, S, K], weight: [N, K] -> [B, S, N], as torch's Linear is captured."""
    shape = b.types[x].shape
    wide = b.types[weight].shape[0]
    with b.at(place(module)):
        flat = b.add("reshape", x, shape=(shape[0] * shape[1], shape[2]))
        y = b.add("mm", flat, b.add("permute", weight, dims=(1, 0)))
        y = b.add("reshape", y, shape=(*shape[:2], wide))
        return b.add("add", y, bias) if bias else y


def block(kv: int, heads: int) -> Program:
    """carry [B, S, H], then one layer's weights -> carry."""
    b = Builder("block")
    size = HIDDEN // heads
    x = b.input("x", f64(BATCH, SEQ, HIDDEN), "carry")
    shapes = weight_shapes(kv, heads)
    w = {name: b.input(name, f64(*shape), "xs") for name, shape in shapes.items()}

    def norm(value: str, name: str) -> str:
        with b.at(place(f"layers.*.{name}")):
            return b.add("rms_norm", value, w[f"{name}.weight"], eps=Fraction(1, 1000))

    def split(value: str, count: int) -> str:
        y = b.add("reshape", value, shape=(BATCH, SEQ, count, size))
        return b.add("permute", y, dims=(0, 2, 1, 3))

    h = norm(x, "norm1")
    q, k, v = (linear(b, h, w[f"attn.{n}.weight"], f"layers.*.attn.{n}") for n in "qkv")
    with b.at(place("layers.*.attn", 2)):
        q, k, v = split(q, heads), split(k, kv), split(v, kv)
        if kv != heads:
            k, v = (_repeat(b, t, kv, heads // kv, size) for t in (k, v))
        out = b.add("sdpa", q, k, v, causal=True, scale=Fraction(1, 2))
        out = b.add("permute", out, dims=(0, 2, 1, 3))
        out = b.add("reshape", out, shape=(BATCH, SEQ, HIDDEN))
    x = b.add("add", x, linear(b, out, w["attn.o.weight"], "layers.*.attn.o"))
    up = linear(b, norm(x, "norm2"), w["mlp.up.weight"], "layers.*.mlp.up", w["mlp.up.bias"])
    with b.at(place("layers.*.mlp")):
        act = b.add("silu", up)
    down = linear(b, act, w["mlp.down.weight"], "layers.*.mlp.down", w["mlp.down.bias"])
    b.output(b.add("add", x, down), "carry")
    return b.build()


def _repeat(b: Builder, x: str, kv: int, times: int, size: int) -> str:
    y = b.add("reshape", x, shape=(BATCH, kv, 1, SEQ, size))
    y = b.add("expand", y, shape=(BATCH, kv, times, SEQ, size))
    return b.add("reshape", y, shape=(BATCH, kv * times, SEQ, size))


def weight_shapes(kv: int, heads: int) -> dict[str, tuple[int, ...]]:
    narrow = HIDDEN // heads * kv
    return {
        "norm1.weight": (HIDDEN,),
        "attn.q.weight": (HIDDEN, HIDDEN),
        "attn.k.weight": (narrow, HIDDEN),
        "attn.v.weight": (narrow, HIDDEN),
        "attn.o.weight": (HIDDEN, HIDDEN),
        "norm2.weight": (HIDDEN,),
        "mlp.up.weight": (FFN, HIDDEN),
        "mlp.up.bias": (FFN,),
        "mlp.down.weight": (HIDDEN, FFN),
        "mlp.down.bias": (HIDDEN,),
    }


def f64(*shape: int) -> TensorType:
    return TensorType(shape, "f64")


def decoder(layers: int = LAYERS, kv: int = 4, heads: int = 4, tied: bool = False) -> Program:
    """Forward and backward of a decoder with a mean cross entropy."""
    b = Builder("decoder")
    table = b.param("embed.weight", f64(VOCAB, HIDDEN))
    stacks = [
        b.param(f"layers.*.{name}", f64(layers, *shape))
        for name, shape in weight_shapes(kv, heads).items()
    ]
    last = b.param("norm.weight", f64(HIDDEN))
    head = table if tied else b.param("head.weight", f64(VOCAB, HIDDEN))
    ids = b.input("ids", TensorType((BATCH, SEQ), "i64"))
    labels = b.input("labels", TensorType((BATCH, SEQ), "i64"))
    with b.at(place("embed")):
        x = b.add("take", table, ids)
    body = block(kv, heads)
    attrs = {"length": layers, "carry": 1, "xs": len(stacks), "reverse": False}
    (x,) = b.add_node("scan", [x, *stacks], dict(attrs), body=body, source=place("layers.*"))
    with b.at(place("norm")):
        x = b.add("rms_norm", x, last, eps=Fraction(1, 1000))
    logits = linear(b, x, head, "head")
    with b.at(place("", 9)):
        flat = b.add("reshape", logits, shape=(BATCH * SEQ, VOCAB))
        index = b.add("reshape", labels, shape=(BATCH * SEQ, 1))
        picked = b.add("take_along", b.add("log_softmax", flat), index, dim=1)
        total = b.add("sum", picked, dims=(0, 1), keepdim=False)
        loss = b.add("mul_scalar", total, value=Fraction(-1, BATCH * SEQ))
    b.output(logits, "output", "logits")
    b.output(loss, "loss", "loss")
    return live(inline(grad(b.build())))


def values(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    out: dict[str, np.ndarray] = {}
    for item in program.inputs:
        shape = item.type.shape
        whole = item.type.dtype == "i64"
        out[item.name] = rng.integers(0, VOCAB, shape) if whole else rng.standard_normal(shape)
    return out


def largest_difference(sequential: Program, lowered: Lowered, mesh: Mesh) -> float:
    """Runs both programs on every rank: the largest difference over all outputs."""
    domain, rng = Floats(), np.random.default_rng(1)
    given = values(sequential)
    one = evaluate(sequential, given)
    ranks: list[dict[str, np.ndarray]] = [{} for _ in mesh.coords()]
    for name, layout in lowered.contract.inputs.items():
        for local, part in zip(ranks, scatter(given[name], layout, mesh, domain, rng), strict=True):
            local[name] = part
    state = simulate(lowered.program, ranks)
    expected = {output_key(o): one[o.value] for o in sequential.outputs}
    worst = 0.0
    for out in lowered.program.outputs:
        layout = lowered.contract.outputs[output_key(out)]
        whole = gather([s[out.value] for s in state], layout, mesh, domain)
        worst = max(worst, float(np.abs(whole - expected[output_key(out)]).max()))
    return worst
