"""Tensors without entries: a program is written without them, and computes the same."""

from __future__ import annotations

import numpy as np

from shardproof.synthesis.frontends.torch.prune import without_empties
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.refute.evaluate import evaluate


def test_a_parameter_without_entries_is_left_out_with_its_gradient() -> None:
    b = Builder("memory")
    memory = b.param("memory", TensorType((0, 3), "f32"), "memory")
    x = b.input("x", TensorType((2, 3), "f32"))
    joined = b.add("concat", memory, x, dim=0)
    b.output(b.add("mul", joined, joined), "output", "y")
    b.output(b.add("slice", joined, dim=0, start=0, stop=0, step=1), "grad", "memory")
    found = without_empties(b.build())
    assert [i.name for i in found.inputs] == ["x"]
    assert [n.op for n in found.nodes] == ["mul"]
    assert [o.path for o in found.outputs] == ["y"]
    given = np.arange(6.0).reshape(2, 3)
    got = evaluate(found, {"x": given})
    np.testing.assert_array_equal(np.asarray(got[found.outputs[0].value], float), given**2)


def test_a_program_in_which_all_tensors_have_entries_is_left_alone() -> None:
    b = Builder("plain")
    x = b.input("x", TensorType((2, 3), "f32"))
    b.output(b.add("concat", x, x, dim=0), "output", "y")
    program = b.build()
    assert without_empties(program) is program
