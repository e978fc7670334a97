"""Experts found by `topk_index` and looked up: over ranks the right way is proved, no other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import Affine, Mesh, TensorType
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.verdict import Proof
from tests.ops.running import run
from tests.ops.test_verdicts import Pair, laid

TP = Mesh.of(tp=2)
TOKENS, WIDTH, EXPERTS, HIDDEN, K = 6, 4, 4, 8, 2


def routed(how: str) -> Pair:
    """A layer of experts by lookups, over tp: `inside` splits hidden units, `apart` the experts."""
    pair = Pair(TP)
    pair.elements = False
    up, down = {"inside": ("S(2)", "S(1)"), "apart": ("S(0)", "S(0)")}[how]
    pair.inputs = {
        "x": laid(TP, (TOKENS, WIDTH)),
        "gate": laid(TP, (WIDTH, EXPERTS)),
        "up": laid(TP, (EXPERTS, WIDTH, HIDDEN), tp=up),
        "down": laid(TP, (EXPERTS, HIDDEN, WIDTH), tp=down),
    }
    pair.outputs = {"output:y": laid(TP, (TOKENS, WIDTH))}
    return pair


def build(how: str, fault: str = "") -> Callable[[Builder, bool], None]:
    def layer(b: Builder, whole: bool) -> None:
        scores = b.add("softmax", b.add("mm", "x", "gate"))
        k = 1 if fault == "fewer" and not whole else K
        ids = b.add("topk_index", scores, k=k, dim=1)
        if k < K:
            ids = b.add("concat", ids, ids, dim=1)
        share = b.add("reshape", b.add("take_along", scores, ids, dim=1), shape=(TOKENS * K, 1, 1))
        flat = b.add("reshape", ids, shape=(TOKENS * K,))
        apart = how == "apart" and not whole
        offset = Affine.of(0, {"tp": EXPERTS // 2}) if apart and fault != "window" else 0
        x = b.add("reshape", "x", shape=(TOKENS, 1, WIDTH))
        x = b.add("expand", x, shape=(TOKENS, K, WIDTH))
        rows = b.add("reshape", x, shape=(TOKENS * K, 1, WIDTH))
        hidden = b.add("bmm", rows, b.add("take", "up", flat, dim=0, offset=offset))
        down = b.add("take", "down", flat, dim=0, offset=offset)
        made = b.add("bmm", b.add("silu", hidden), down)
        each = b.add("reshape", b.add("mul", made, share), shape=(TOKENS, K, WIDTH))
        y = b.add("sum", each, dims=(1,))
        if not whole and fault != "share":
            y = b.add("all_reduce", y, mesh_dim="tp")
        b.output(y, "output", "y")

    return layer


@pytest.mark.parametrize("fault", ["", "share", "fewer"])
def test_hidden_units_of_experts_over_ranks(fault: str) -> None:
    pair = routed("inside")
    verdict = pair.verdict(build("inside", fault), **pair.inputs)
    assert isinstance(verdict, Proof) == (not fault)


@pytest.mark.parametrize("fault", ["window", "share"])
def test_experts_on_other_ranks_are_not_those_of_this_one(fault: str) -> None:
    pair = routed("apart")
    assert not isinstance(pair.verdict(build("apart", fault), **pair.inputs), Proof)


def test_lookups_by_the_largest_have_the_gradients_of_their_values() -> None:
    """Against central differences: the index passes nothing on, what it picks does."""
    b = Builder("one")
    for name, layout in routed("inside").inputs.items():
        b.param(name, TensorType(layout.global_shape, "f64"))
    build("inside")(b, True)
    b.output(b.add("sum", b.outputs[0].value, dims=(0, 1)), "loss", "loss")
    program, joint = b.build(), grad(b.build())
    loss = program.outputs[-1].value
    rng = np.random.default_rng(0)
    at = {i.name: rng.standard_normal(i.type.shape) for i in program.inputs}
    grads = {o.path: o.value for o in joint.outputs if o.role == "grad"}
    assert set(grads) == set(at)
    state = evaluate(joint, at)
    for name, value in at.items():
        step = 1e-6 * rng.standard_normal(value.shape)
        ends = [evaluate(program, {**at, name: value + s})[loss] for s in (step, -step)]
        slope = float((state[grads[name]] * step).sum())
        assert float(ends[0] - ends[1]) / 2 == pytest.approx(slope, rel=1e-5, abs=1e-11)


def test_indices_of_equal_scores_count_up() -> None:
    x = [[1.0, 2.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0]]
    (got,) = run("topk_index", {"x": x}, k=3, dim=1)
    assert got.tolist() == [[3, 1, 2], [0, 1, 2]]
