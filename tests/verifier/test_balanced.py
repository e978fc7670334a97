"""The assumption of equal counts holds for blocks of the batch, and for nothing else."""

import pytest

from shardproof.verifier.kernel.contract import Balanced, Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.provers.relate.rules import Rules, initial, satisfied
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms


def whole() -> tuple[Program, str]:
    """A mean over the entries that count."""
    b = Builder("whole")
    x, m = b.input("x", TensorType((4,))), b.input("m", TensorType((4,), "bool"))
    count = b.add("sum", b.add("cast", m, dtype="f32"), dims=(0,))
    b.output(b.add("div", b.add("sum", x, dims=(0,)), count), "loss", "loss")
    return b.build(), count


def ranks(reduce: str, concentrated: bool) -> Program:
    """Each rank divides by its own count; `concentrated` moves all of the count to one rank."""
    b = Builder("ranks", Mesh.of(dp=2))
    x, m = b.input("x", TensorType((2,))), b.input("m", TensorType((2,), "bool"))
    count = b.add("sum", b.add("cast", m, dtype="f32"), dims=(0,))
    if concentrated:
        count = b.add("all_reduce", count, mesh_dim="dp")
        count = b.add("on_coord", count, mesh_dim="dp", index=0)
    mean = b.add("div", b.add("sum", x, dims=(0,)), count)
    b.output(b.add("all_reduce", mean, mesh_dim="dp", reduce=reduce), "loss", "loss")
    return b.build()


@pytest.mark.parametrize(
    ("reduce", "concentrated", "accepted"),
    [("avg", False, True), ("sum", False, False), ("avg", True, False)],
    ids=["local means averaged", "local means summed", "count on one rank"],
)
def test_local_count_is_a_share_only_as_a_block_sum(
    reduce: str, concentrated: bool, accepted: bool
) -> None:
    program, count = whole()
    split = from_placements((4,), [("dp", 2, "S(0)")])
    contract = Contract(
        {"x": split, "m": split},
        {"loss:loss": Layout.replicate(())},
        (Balanced(count, "dp", "the count"),),
    )
    one, many = as_terms(program), ranks(reduce, concentrated)
    related = relate(one, many, initial(contract, one), contract, Rules(many.mesh))
    assert (not satisfied(one, many, related, contract)) == accepted
