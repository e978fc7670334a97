"""Ranks that a smaller mesh leaves out are not missed where a number tells which rank is meant."""

import pytest

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.placements import from_placements
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.scale_down.resized import Resized, resize, smaller_mesh
from shardproof.verifier.refute.search import refute
from shardproof.verifier.text.parser import parse_text


@pytest.mark.parametrize("rank", [3, 7])
@pytest.mark.parametrize("wrong", [0, 1])
def test_a_number_on_one_rank_stands_for_its_piece(rank: int, wrong: int) -> None:
    """One rank counts its rows from a number, the others take theirs by `shard_slice`."""
    others = [c for c in range(8) if c != rank]
    one = parse_text('program one input %x: f32[32, 8] %y = relu %x return %y "y"')
    many = parse_text(f"""program many mesh(tp=8)
        input %x: f32[32, 8]
        %all = iota {{shape=[32], dim=0}}
        %cut = shard_slice %all {{mesh_dim=tp, dim=0}}
        %theirs = only %cut on(tp={others})
        %mine = iota {{shape=[4], dim=0, offset={4 * rank - wrong}}} on(tp={rank})
        %rows = merge %theirs, %mine
        %part = take %x, %rows {{dim=0}}
        %y = relu %part
        return %y "y"
    """)
    split = from_placements((32, 8), [("tp", 8, "S(0)")])
    contract = Contract({"x": Layout.replicate((32, 8))}, {"output:y": split})
    small = resize(Problem(one, many, contract), smaller_mesh(many, contract, keep=1))
    assert isinstance(small, Resized)
    found = refute(small.problem)
    assert (found is None) == (not wrong)
