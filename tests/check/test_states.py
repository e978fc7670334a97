"""Buffers that a call changes: given before it, compared after it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.errors import CaptureError

pytestmark = pytest.mark.torch
FILE = Path(__file__).with_name("states.py")


@pytest.fixture
def made(case: Callable[..., object], tmp_path: Path) -> Callable[..., object]:
    shutil.copy(FILE, tmp_path)

    def make(name: str, against: str = "Normed") -> object:
        cached = against == "Cached"
        return case(
            target=f"states.py:{name}",
            against=f"states.py:{against}",
            inputs=["x=f32[4,4]"],
            output_layouts=["output=S(0)@tp" if cached else "output=S(1)@tp"],
            gradients=not cached,
            no_grad=["x"],
            modes=("train", "eval") if name == "SplitNormed" else ("train",),
        )

    return make


def test_running_statistics_are_compared_in_each_mode(made: Callable[..., object]) -> None:
    found = made("SplitNormed").proved()
    kept = {p.name: str(p.layout) for p in found.placed if p.kind == "buffer"}
    assert set(kept) == {"norm.running_mean", "norm.running_var"}


@pytest.mark.parametrize("name", ["Slower", "OneSlower"])
def test_running_statistics_that_move_otherwise_are_refuted(
    made: Callable[..., object], name: str
) -> None:
    witness = made(name).refuted().verdict.witness
    assert witness.output.startswith("output:state:norm.running_")


def test_what_the_model_changes_and_no_rank_does_is_told(made: Callable[..., object]) -> None:
    with pytest.raises(InputError, match=r"changes norm\.\w+, which no rank"):
        made("NeverMoved").check()


def test_a_buffer_that_is_replaced_by_another_is_refuted(made: Callable[..., object]) -> None:
    witness = made("Replaced").refuted().verdict.witness
    assert witness.output == "output:state:norm.running_mean"


def test_a_tensor_that_is_kept_is_a_buffer(made: Callable[..., object]) -> None:
    made("SplitCached", "Cached").proved()
    witness = made("OtherPlace", "Cached").refuted().verdict.witness
    assert witness.output == "output:state:kept"


def test_memory_with_two_names_is_refused(made: Callable[..., object]) -> None:
    with pytest.raises(
        CaptureError, match=r"the buffer (kept|first) is changed, and shares memory"
    ):
        made("Viewed", "Cached").check()
    with pytest.raises(CaptureError, match="the buffer same is changed, and shares memory with by"):
        made("TwoNames").check()


LOADED = """
class Wrong(ParallelMLP):
    def forward(self, x):
        self.load_state_dict({{k: {value} for k, v in self.state_dict().items()}})
        return super().forward(x)
"""


def test_a_parameter_that_is_given_its_own_value_is_not_changed(
    case: Callable[..., Any],
) -> None:
    case().write(LOADED.format(value="v")).proved()
    with pytest.raises(CaptureError, match="the module changes the parameter"):
        case().write(LOADED.format(value="v * 1")).check()


def test_room_to_work_in_is_written_before_it_is_read(made: Callable[..., object]) -> None:
    made("Room").proved()
    made("ReadBefore").refuted()


@pytest.mark.parametrize("wrong", [False, True])
def test_a_buffer_that_a_closure_holds_is_the_buffer(
    made: Callable[..., object], wrong: bool
) -> None:
    asked = made("HeldSlower" if wrong else "Held")
    if not wrong:
        asked.proved()
        return
    witness = asked.refuted().verdict.witness
    assert witness.output.startswith("output:state:norm.running_")
