"""Spellings of published parallel code are proved, and their wrong twins refuted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
FILE = Path(__file__).with_name("published.py")
CP, EP, TP = Mesh.of(cp=2), Mesh.of(ep=2), Mesh.of(tp=2)
HEADS = {"against": "published.py:Attention", "mesh": CP, "inputs": ["x=f32[1,4,8]"]}
HEADS |= {"input_layouts": ["*=S(1)@cp"], "output_layouts": ["*=S(1)@cp"]}
TOKENS = {"against": "published.py:Experts", "mesh": EP, "inputs": ["x=f32[4,8]"]}
TOKENS |= {"input_layouts": ["*=S(0)@ep"], "output_layouts": ["*=S(0)@ep"]}
TURNS = {"against": "published.py:Rotary", "mesh": TP, "inputs": ["x=f32[3,4]"]}
LARGE = {"inputs": ["x=f32[2,16,32]"], "config": {"h": 32}}


@pytest.fixture
def made(case: Callable[..., object], tmp_path: Path) -> Callable[..., object]:
    shutil.copy(FILE, tmp_path)
    return lambda name, **what: case(target=f"published.py:{name}", **what)


def test_rotary_by_complex_numbers_behind_a_custom_collective(made: Callable[..., object]) -> None:
    made("SplitRotary", **TURNS).proved()


def test_tokens_go_to_experts_and_back(made: Callable[..., object]) -> None:
    made("SplitExperts", **TOKENS, gradients=False).proved()


def test_heads_for_rows_at_any_size(made: Callable[..., object]) -> None:
    found = made("Ulysses", **{**HEADS, **LARGE}, gradients=False).proved()
    assert "at these input shapes" in " ".join(found.verdict.scope)


@pytest.mark.campaign
@pytest.mark.parametrize("size", [2, 4])
def test_heads_for_rows_and_gradients_at_any_size(made: Callable[..., object], size: int) -> None:
    what = {**HEADS, **LARGE, "mesh": Mesh.of(cp=size)}
    made("Ulysses", **what, after_backward="summed").proved()


@pytest.mark.campaign
@pytest.mark.parametrize("rows", [4, 16])
def test_experts_and_gradients_at_any_size(made: Callable[..., object], rows: int) -> None:
    config = {"h": 2 * rows, "f": 4 * rows, "experts": 8}
    what = {**TOKENS, "inputs": [f"x=f32[{rows},{2 * rows}]"], "config": config}
    made("SplitExperts", **what, after_backward="summed").proved()


WRONG = {
    **dict.fromkeys(("HeadsTurned", "RowsTurned", "NotBack"), HEADS),
    "OtherExperts": TOKENS,
    **dict.fromkeys(("TurnedBack", "NotTurned", "PartsSwapped", "Averaged"), TURNS),
}


LATE = ("NotBack", "PartsSwapped")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.campaign if n in LATE else []) for n in WRONG]
)
def test_wrong_twins_are_refuted(made: Callable[..., object], name: str) -> None:
    made(name, **WRONG[name], gradients=False).refuted()
