"""Gather to one rank and scatter from it."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.synthesis.autodiff.autodiff import grad
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.refute.evaluate import simulate
from shardproof.verifier.verdict import Proof
from tests.ops.running import judged

TP = Mesh.of(tp=3)
ROWS = from_placements((6, 4), [("tp", 3, "S(0)")])


def doubled_on_the_root(dim: int = 0, root: int = 1, back: int = 1) -> Program:
    """Rows go to one rank, which works on all of them, and go back."""
    b = Builder("many", TP)
    x = b.input("x", TensorType((2, 4)))
    whole = b.add("gather", x, mesh_dim="tp", dim=0, index=root)
    with b.on(tp=root):
        y = b.add("softmax", b.add("flip", whole, dim=0))
    b.output(b.add("scatter", y, mesh_dim="tp", dim=dim, index=back), path="y")
    return b.build()


def one_device() -> Program:
    b = Builder("one")
    x = b.input("x", TensorType((6, 4)))
    b.output(b.add("softmax", b.add("flip", x, dim=0)), path="y")
    return b.build()


def test_work_on_one_rank_is_proved() -> None:
    contract = Contract({"x": ROWS}, {"output:y": ROWS})
    assert isinstance(judged(one_device(), doubled_on_the_root(), contract), Proof)


def test_the_result_of_a_gather_is_on_the_root_alone() -> None:
    b = Builder("many", TP)
    x = b.input("x", TensorType((2, 4)))
    whole = b.add("gather", x, mesh_dim="tp", dim=0, index=2)
    b.output(b.add("only", whole), path="y")
    pieces = np.arange(24.0).reshape(3, 2, 4)
    states = simulate(b.build(), [{"x": p} for p in pieces])
    assert [whole in s for s in states] == [False, False, True]
    np.testing.assert_array_equal(states[2][whole], pieces.reshape(6, 4))


def test_a_scatter_from_a_rank_that_holds_nothing_is_misplaced() -> None:
    (fault,) = regions(doubled_on_the_root(back=0)).faults()
    assert "the root tp=0 does not hold the value" in fault.reason
    contract = Contract({"x": ROWS}, {"output:y": ROWS})
    assert not isinstance(judged(one_device(), doubled_on_the_root(back=0), contract), Proof)


def test_a_gathered_value_read_elsewhere_is_misplaced() -> None:
    b = Builder("many", TP)
    x = b.input("x", TensorType((2, 4)))
    whole = b.add("gather", x, mesh_dim="tp", dim=0)
    with b.on(tp=1):
        b.output(b.add("exp", whole), path="y")
    (fault,) = regions(b.build()).faults()
    assert "runs on tp=1" in fault.reason


def test_they_are_adjoint() -> None:
    """`<ct, gather(x)> = <scatter(ct), x>`, summed over the ranks."""
    b = Builder("many", TP)
    x = b.param("x", TensorType((2, 4), "f64"))
    whole = b.add("gather", x, mesh_dim="tp", dim=0, index=1)
    with b.on(tp=1):
        b.output(b.add("mul", whole, whole), path="y")
    made = grad(b.build())
    rng = np.random.default_rng(0)
    pieces, ct = rng.standard_normal((3, 2, 4)), rng.standard_normal((6, 4))
    states = simulate(made, [{"x": p, "ct.y": ct} for p in pieces])
    (out,) = [o for o in made.outputs if o.role == "grad"]
    for state, piece, part in zip(states, pieces, ct.reshape(3, 2, 4), strict=True):
        np.testing.assert_allclose(state[out.value], 2 * piece * part)


def test_a_pending_sum_does_not_split_over_its_own_ranks() -> None:
    from shardproof.verifier.ops import REGISTRY
    from shardproof.verifier.provers.placement import Operands, place

    op = REGISTRY["scatter"]
    waiting = from_placements((6, 4), [("tp", 3, "P")])
    given = Operands((waiting,), (("dim", 0), ("index", 0), ("mesh_dim", "tp")), TP)
    with pytest.raises(Refused):
        place(op, given)
