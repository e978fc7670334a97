"""Experts on their own ranks, pieces written into zeros, a ring that gathers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
FILE = Path(__file__).with_name("experts.py")
ROWS = ["x=S(0)@tp"]


@pytest.fixture
def made(case: Callable[..., object], tmp_path: Path) -> Callable[..., object]:
    shutil.copy(FILE, tmp_path)

    def make(name: str, against: str, size: int = 2, **what: object) -> object:
        targets = {"target": f"experts.py:{name}", "against": f"experts.py:{against}"}
        return case(Mesh.of(tp=size), **targets, **what)

    return make


@pytest.mark.parametrize(
    ("name", "against"), [("SplitStacked", "Stacked"), ("OwnListed", "Listed")]
)
def test_the_router_is_trained_by_what_all_ranks_found(
    made: Callable[..., object], name: str, against: str
) -> None:
    made(name, against, after_backward="reduce_gate").proved()
    made(name, against).refuted()


def test_columns_of_other_experts_are_refuted(made: Callable[..., object]) -> None:
    made("OthersColumns", "Stacked", after_backward="reduce_gate").refuted()


def test_pieces_at_their_places_in_zeros_sum_to_the_whole(made: Callable[..., object]) -> None:
    made("ByZeros", "Wide", 4, output_layouts=["output=R"]).proved()
    made("AtTheNext", "Wide", 4, output_layouts=["output=R"]).refuted()


def test_a_ring_of_four_gathers_in_rank_order(made: Callable[..., object]) -> None:
    made("RingWide", "Wide", 4, input_layouts=ROWS, output_layouts=["output=S(1)@tp"]).proved()
