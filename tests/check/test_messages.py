"""Modules whose ranks send each other messages: rings, halos, and what goes wrong with them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.verdict import Counterexample, Trace

pytestmark = pytest.mark.torch
FILE = Path(__file__).with_name("messages.py")
ROWS = ["*=S(0)@cp"]


@pytest.fixture
def made(case: Callable[..., object], tmp_path: Path) -> Callable[..., object]:
    shutil.copy(FILE, tmp_path)

    def make(name: str, against: str = "Halves", rows: int = 4, cp: int = 2) -> object:
        return case(
            Mesh.of(cp=cp),
            target=f"messages.py:{name}",
            against=f"messages.py:{against}",
            inputs=[f"x=f32[{rows},2]"],
            input_layouts=ROWS,
            output_layouts=ROWS,
            gradients=against != "Halves",
            after_backward="summed" if against != "Halves" else "",
        )

    return make


@pytest.mark.parametrize("name", ["ByParity", "Together"])
def test_messages_are_values(made: Callable[..., object], name: str) -> None:
    made(name).proved()


RIGHT = [("SplitStencil", "Stencil", 6, 3), ("SplitStencil", "Stencil", 4, 2)]
RIGHT += [("RingAttention", "Attention", 4, 2)]
WRONG = [("WrongEdges", "Stencil", 4, 2), ("SkippedBlock", "Attention", 2, 2)]


@pytest.mark.parametrize(
    ("name", "against", "rows", "cp"), RIGHT, ids=["halo", "halo of all rows", "ring"]
)
def test_right_modules_are_proved(
    made: Callable[..., object], name: str, against: str, rows: int, cp: int
) -> None:
    made(name, against, rows, cp).proved()


@pytest.mark.parametrize(("name", "against", "rows", "cp"), WRONG, ids=["halo", "ring"])
def test_wrong_modules_are_refuted(
    made: Callable[..., object], name: str, against: str, rows: int, cp: int
) -> None:
    assert not isinstance(made(name, against, rows, cp).refuted().verdict.witness, Trace)


def test_a_message_that_goes_on_once_more_is_refuted(made: Callable[..., object]) -> None:
    made("TwiceOn").refuted()


WAITING = {
    "FaceToFace": "no rank continues if nothing is buffered",
    "NeverReceived": "sends a message that rank 1 never receives",
    "NeverSent": "waits for a message from rank 1 for ever",
    "OneBarrier": "rank 0 waits in the barrier of ranks [0, 1]",
    "BarrierForReduce": "rank 0 waits in the barrier of ranks [0, 1]",
}


@pytest.mark.parametrize("name", WAITING)
def test_ranks_that_wait_for_ever_are_refuted(made: Callable[..., object], name: str) -> None:
    found = made(name).check().verdict
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Trace)
    assert WAITING[name] in found.witness.message
    assert found.location is not None
    assert found.location.source.file == "messages.py"


REFUSED = {
    "NotWaited": "its result is used while the recv of messages.py",
    "ChangedInFlight": "what it sends is changed while the send of messages.py",
    "OtherTag": "receives torch.float32[2, 2] with tag 2",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_order_is_refused(made: Callable[..., object], name: str) -> None:
    with pytest.raises(CaptureError) as error:
        made(name).check()
    assert REFUSED[name] in error.value.message
    assert error.value.file == "messages.py"


def test_messages_arrive_in_the_order_in_which_they_are_sent(made: Callable[..., object]) -> None:
    made("Crossed").refuted()
