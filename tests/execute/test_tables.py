"""What a rank holds of a table that the model holds, found by comparing entries."""

from __future__ import annotations

import numpy as np
import pytest

from shardproof.synthesis.frontends.torch.ranks.join import RankError
from shardproof.synthesis.frontends.torch.ranks.tables import common, pieces
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType

TP = Mesh.of(tp=2)
WHOLE = np.arange(32.0).reshape(16, 2)


def taken(
    part: np.ndarray, rank: int, mesh: Mesh = TP
) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    b = Builder("rank", mesh)
    mine = b.input("const.mine", TensorType(part.shape, "f64"), "const", "const.mine")
    b.output(b.add("exp", mine), "output", "out")
    found, placed = pieces(b.build(), {"const.mine": part}, {"const.whole": WHOLE}, mesh, rank)
    return ops(found), placed


def ops(program: Program) -> list[str]:
    return [node.op for node in program.nodes]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_a_chunk_of_each_part_is_that_of_the_rank(parts: int, rank: int) -> None:
    part = WHOLE.reshape(parts, 2, -1, 2)[:, rank].reshape(8, 2)
    assert taken(part, rank) == (["reshape", "shard_slice", "reshape", "exp"], {})


def test_the_chunk_of_another_rank_is_no_chunk_of_this_one() -> None:
    part = WHOLE.reshape(2, 2, -1, 2)[:, 1].reshape(8, 2)
    assert taken(part, 0) == (["slice", "slice", "concat", "exp"], {})
    wrong = part.copy()
    wrong[3, 1] += 1
    assert taken(wrong, 1) == (["exp"], {})


def test_one_chunk_is_placed() -> None:
    assert taken(WHOLE[8:], 1) == (["exp"], {"const.whole": ("S(0)@tp",)})


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (0, 1), (0, 3)])
def test_ranks_lay_a_table_out_in_one_way(ranks: tuple[int, ...]) -> None:
    """One on the diagonal of a mesh has the chunk of either dim."""
    mesh = Mesh.of(dp=2, tp=2)
    placed = {rank: taken(WHOLE[8 * (rank % 2) :][:8], rank, mesh)[1] for rank in ranks}
    assert placed[0] == {"const.whole": ("S(0)@dp", "S(0)@tp")}
    if ranks == (0, 3):
        with pytest.raises(RankError):
            common(mesh, [*placed.values()])
        return
    assert common(mesh, [*placed.values()]) == {"const.whole": "S(0)@tp"}


def test_ranks_that_differ_lay_no_table_out() -> None:
    mesh = Mesh.of(dp=2, tp=2)
    with pytest.raises(RankError):
        common(mesh, [{"a": ("S(0)@tp",)}, {"a": ("S(0)@dp",)}])
    with pytest.raises(RankError):
        common(mesh, [{"a": ("S(0)@tp",)}, {}])
