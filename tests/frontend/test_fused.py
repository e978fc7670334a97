"""Fused weights of unequal widths: what a capture says of them is what PyTorch computes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardproof.synthesis.frontends.torch import fused
from shardproof.synthesis.frontends.torch.fused import separate_products
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.fused_weights import weights_apart
from shardproof.synthesis.planner.scoring import Asked
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.refute.evaluate import evaluate
from tests.frontend.test_capture import agrees

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 20, bias={bias})
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        b, t, _ = x.shape
        {cut}
        q = q.view(b, t, 2, 4).transpose(1, 2)
        k, v = (z.reshape(b, t, 1, -1).transpose(1, 2).expand(b, 2, t, -1) for z in (k, v))
        y = F.scaled_dot_product_attention(q, k, v[..., :4])
        return x + self.out(y.transpose(1, 2).reshape(b, t, 8))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.LayerNorm(8)
        self.layers = nn.ModuleList([Attention() for _ in range(4)])

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)
"""
CUTS = {
    "split": "q, k, v = self.qkv(x).split([8, 4, 8], dim=-1)",
    "index": "y = self.qkv(x); q, k, v = y[..., :8], y[..., 8:12], y[..., 12:]",
    "scaled": "q, k, v = (self.qkv(x) * 0.5).split([8, 4, 8], dim=-1)",
}


def _captured(folder, cut: str, bias: bool):
    path = folder / f"fused_{cut}_{bias}.py"
    path.write_text(HEAD.format(bias=bias, cut=CUTS[cut]))
    inputs = (InputSpec("x", (2, 3, 8), "f64"),)
    return agrees(CaptureRequest(f"{path}:Model", inputs=inputs, dtype="f64"))


@pytest.mark.torch
@pytest.mark.parametrize(("cut", "bias"), [("split", True), ("index", False), ("scaled", True)])
def test_pieces_are_products_of_their_own(cut, bias, tmp_path):
    found = _captured(tmp_path, cut, bias)
    widths = {h.types[n.outputs[0]].shape[-1] for h, n in found.program.walk() if n.op == "mm"}
    assert 20 not in widths
    assert any(n.body is not None for n in found.program.nodes)  # repeated layers are rolled


@pytest.mark.torch
def test_pieces_are_parameters_of_modules_of_their_own(tmp_path):
    program = _captured(tmp_path, "split", True).program
    kinds = {"layers.*.qkv": "Linear", "layers.*.out": "Linear"}
    apart = weights_apart(Asked(program, Mesh.of(tp=2), load("h100"), kinds)).program
    pieces = {i.path for i in apart.inputs if "[" in i.path}
    spans = ("[0:8]", "[8:12]", "[12:20]")
    assert pieces == {f"layers.*.qkv{s}.{n}" for s in spans for n in ("weight", "bias")}
    whole = _numbers(program, 1)
    held = {i.name for i in apart.inputs}
    values = {n: v for n, v in whole.items() if n in held}
    for item in apart.inputs:
        if "[" in item.path:
            start, stop = map(int, item.name.partition("[")[2].rstrip("]").split(":"))
            values[item.name] = whole[item.name.partition("[")[0]][:, start:stop]
    one, parts = evaluate(program, whole), evaluate(apart, values)
    grads = {o.path: parts[o.value] for o in apart.outputs}
    for out in program.outputs:
        owner, _, leaf = out.path.rpartition(".")
        names = [p for p in grads if p.partition("[")[0] == owner and p.endswith(f"].{leaf}")]
        joined = np.concatenate([grads[n] for n in sorted(names, key=_start)], 1) if names else None
        assert np.allclose(one[out.value], grads[out.path] if joined is None else joined)


def _start(path: str) -> int:
    return int(path.partition("[")[2].partition(":")[0])


def _numbers(program: Program, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {i.name: rng.normal(size=i.type.shape) for i in program.inputs}


@st.composite
def _steps(draw) -> Program:
    """A linear cut into pieces, and its gradients from those of the pieces."""
    widths = draw(st.lists(st.sampled_from([4, 6, 8]), min_size=2, max_size=4))
    rows, deep, width = 3, draw(st.sampled_from([2, 5])), sum(widths)
    b = Builder("step")
    x = b.input("x", TensorType((rows, deep), "f64"))
    w = b.input("w", TensorType((width, deep), "f64"), "param", "m.weight")
    y = b.add("mm", x, b.add("permute", w, dims=(1, 0)))
    if draw(st.booleans()):
        y = b.add("add", y, b.input("b", TensorType((width,), "f64"), "param", "m.bias"))
    if draw(st.booleans()):
        y = b.add("reshape", y, shape=(1, rows, width))
    last, at, cuts = len(b.types[y].shape) - 1, 0, []
    for n in widths:
        cut = b.add("slice", y, dim=last, start=at, stop=at + n, step=1)
        heads = b.add("reshape", cut, shape=(rows, 2, n // 2))
        cuts.append(b.add("reshape", b.add("exp", heads), shape=(rows, n)))
        at += n
    for i, cut in enumerate(cuts):
        b.output(cut, "output", f"y{i}")
    if draw(st.booleans()):
        g = b.add("concat", *cuts, dim=1)
    else:
        starts = [sum(widths[:i]) for i in range(len(widths))]
        pads = [
            b.add("pad", c, dim=1, lo=s, hi=width - s - n)
            for c, s, n in draw(st.permutations(list(zip(cuts, starts, widths, strict=True))))
        ]
        g = pads[0]
        for pad in pads[1:]:
            g = b.add("add", g, pad)
    b.output(b.add("mm", b.add("permute", g, dims=(1, 0)), x), "grad", "m.weight")
    dx = b.add("mm", g, w)
    b.output(b.add("reshape", dx, shape=(1, rows, deep)), "grad", "input:x")
    total = b.add("sum", g, dims=(0,), keepdim=draw(st.booleans()))
    b.output(b.add("reshape", total, shape=(width,)), "grad", "m.bias")
    return b.build()


def _same(program: Program) -> bool:
    values = _numbers(program, 0)
    one, other = evaluate(program, values), separate_products(program)
    made = evaluate(other, values)
    pairs = zip(program.outputs, other.outputs, strict=True)
    return all(np.allclose(one[a.value], made[b.value]) for a, b in pairs)


@given(_steps())
@settings(max_examples=120, deadline=None)
def test_separate_products_are_equal(program):
    assert _same(program)
    widths = [n for n in program.nodes if n.op == "slice"]
    sizes = {n.number("stop") - n.number("start") for n in widths}
    whole = program.types["w"].shape[0]
    products = (other for other in separate_products(program).nodes if other.op == "mm")
    separate = separate_products(program)
    wide = [n for n in products if whole in separate.types[n.outputs[0]].shape]
    assert bool(wide) == (len(sizes) == 1)


@pytest.mark.parametrize("wrong", ["another piece", "a term left out"])
def test_a_wrong_piece_is_seen(wrong, monkeypatch):
    if wrong == "another piece":
        of_operands = fused._cut_operands
        monkeypatch.setattr(
            fused,
            "_cut_operands",
            lambda r, n, dim, a, b: of_operands(
                r, n, dim, *((0, b - a) if n.op == "permute" else (a, b))
            ),
        )
    else:
        monkeypatch.setattr(fused, "_sum", lambda _, terms: terms[-1])
    seen = []

    @given(_steps())
    @settings(max_examples=40, deadline=None)
    def run(program):
        seen.append(_same(program))

    run()
    assert not all(seen)
