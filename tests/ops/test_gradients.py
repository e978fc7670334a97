"""Gradients of composites, by their expansions, are the slopes of what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.ops import REGISTRY
from shardproof.verifier.refute.evaluate import evaluate
from tests.laws.samples import forms
from tests.ops.running import program

STEP = 1e-6
ROUNDS = {"quantize", "detach"}
"""Their gradient is no slope: it passes straight through a rounding, and not at all a detach."""
COMPOSITES = sorted(
    n
    for n, op in REGISTRY.items()
    if op.expand is not None and n not in ROUNDS and "f32" in next(forms(op, Mesh())).dtypes
)


def pulled(joint: Program, values: dict[str, Array]) -> float:
    """The outputs against their cotangents."""
    state = evaluate(joint, values)
    ends = [o for o in joint.outputs if o.role == "output"]
    return float(sum(np.sum(state[o.value] * values.get(f"ct.{o.path}", 0)) for o in ends))


@pytest.mark.parametrize("name", COMPOSITES)
def test_gradients_agree_with_central_differences(name: str) -> None:
    rng = np.random.default_rng(0)
    for form in forms(REGISTRY[name], Mesh()):
        keys = [f"i{k}" if t == "f32" else f"i{k}:{t}" for k, t in enumerate(form.dtypes)]
        for attrs in form.attrs(form.shapes, Mesh()):
            shapes = dict(zip(keys, form.shapes, strict=True))
            joint = inline(grad(program(name, shapes, **attrs)))
            values: dict[str, Array] = {}
            for item in joint.inputs:
                shape = item.type.shape
                drawn = rng.uniform(0.25, 1.5, shape), rng.integers(0, 4, shape)
                values[item.name] = drawn[not item.type.is_float]
            found = evaluate(joint, values)
            for out in joint.outputs:
                if out.role == "grad":
                    along = rng.standard_normal(values[out.path].shape)
                    there, back = (
                        pulled(joint, {**values, out.path: values[out.path] + s * along})
                        for s in (STEP, -STEP)
                    )
                    want = (there - back) / (2 * STEP)
                    got = float(np.sum(found[out.value] * along))
                    assert got == pytest.approx(want, rel=1e-5, abs=1e-5), (out.path, attrs)


def test_a_rounded_value_passes_a_gradient_only_where_it_is_told_to() -> None:
    straight = grad(program("round_to", {"x": (3,)}, format="bf16", ste=True))
    assert next(o.value for o in straight.outputs if o.role == "grad") == "ct.0"
    with pytest.raises(IRError, match="ste=true"):
        grad(program("round_to", {"x": (3,)}, format="bf16"))
