"""Attention keeps no scores, experts gather no weights, chains read and write once."""

from __future__ import annotations

from fractions import Fraction

import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.synthesis.kernels.found import kernels
from shardproof.synthesis.lower.share import share
from shardproof.synthesis.planner.cost import adam_bytes, estimate, prices
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program, live
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from tests.synthesis import decoder


@pytest.fixture(scope="module")
def program() -> Program:
    return share(live(inline(decoder.decoder(layers=5))))


def test_scores_are_neither_kept_nor_written(program: Program) -> None:
    found = kernels(program)
    square = (decoder.SEQ, decoder.SEQ)
    wide = {
        (node.outputs[0], name)
        for node in program.nodes
        if node.body is not None
        for name, kind in node.body.types.items()
        if kind.shape[-2:] == square and kind.size == 4 * decoder.BATCH * decoder.SEQ**2
    }
    assert len(wide) > 8
    assert wide <= found.unmade
    assert not wide & (set(found.kept) | set(found.writes))
    cores = {v: p for v, p in found.products.items() if p.kind == "attention"}
    scope = next(n.outputs[0] for n in program.nodes if n.body is not None)
    assert [p.share for (s, _), p in cores.items() if s == scope] == [0.5, 0.5]  # causal
    assert found.layers == 5


def test_what_is_kept_is_what_products_and_norms_read() -> None:
    """Korthikanti et al. 2022, section 4: the inputs of norms, products and activations."""
    b = Builder("mlp")
    x = b.input("x", decoder.f64(2, 4, 8))
    norm, up = b.param("norm", decoder.f64(8)), b.param("up", decoder.f64(16, 8))
    down, last = b.param("down", decoder.f64(8, 16)), b.param("last", decoder.f64(8))
    first = decoder.linear(b, x, b.param("in", decoder.f64(8, 8)), "in")
    h = decoder.linear(b, b.add("rms_norm", first, norm, eps=Fraction(1, 1000)), up, "up")
    h = decoder.linear(b, b.add("silu", h), down, "down")
    y = b.add("rms_norm", b.add("add", first, h), last, eps=Fraction(1, 1000))
    b.output(b.add("sum", y, dims=(0, 1, 2), keepdim=False), "loss", "loss")
    whole = share(live(inline(grad(b.build()))))
    found = kernels(whole)
    sizes = sorted(whole.types[v].size // 8 for _, v in found.kept)
    # Two inputs of norms, one of a product; the hidden layer before and after its activation.
    assert [size for size in sizes if size > 1] == [8, 8, 8, 16, 16]


def test_a_chain_is_one_read_and_one_write(program: Program) -> None:
    """A norm reads its input once and writes its result once."""
    found = kernels(program)
    scope, body = next((n.outputs[0], n.body) for n in program.nodes if n.body is not None)
    norm = [n for n in body.nodes if n.source.module == "layers.*.norm1"]
    reads = sum(sum(found.reads.get((scope, n.outputs[0]), ())) for n in norm)
    writes = [n.outputs[0] for n in norm if (scope, n.outputs[0]) in found.writes]
    assert (reads, len(writes)) == (2, 1)  # the input and the weight


def test_parts_of_a_step_add_up(program: Program) -> None:
    found = estimate(program, prices(program, Mesh.of(tp=1), decoder.CLUSTER))
    assert sum(found.parts().values()) == pytest.approx(found.step_s)
    assert found.step_s >= found.device_s


@pytest.mark.parametrize(("dtype", "bytes"), [("f32", 8), ("bf16", 12), ("f16", 12), ("f64", 16)])
def test_adam_keeps_two_moments_and_a_copy_of_what_is_narrow(dtype: str, bytes: int) -> None:
    assert adam_bytes(TensorType((3, 5), dtype)) == 15 * bytes


def test_parts_that_come_together_again_and_again_are_followed_once() -> None:
    """A scan written out in place, as a delta rule is: each step is read by two parts of the next,
    so the paths through n steps are 2^n."""
    b = Builder("steps")
    x = b.input("x", decoder.f64(4, 4))
    y = b.add("exp", x)
    for _ in range(60):
        top = b.add("slice", y, dim=0, start=0, stop=2)
        y = b.add("concat", top, b.add("slice", y, dim=0, start=2, stop=4), dim=0)
    b.output(b.add("sum", b.add("mul", y, x), dims=(0, 1), keepdim=False), "loss", "loss")
    assert kernels(b.build()).writes
