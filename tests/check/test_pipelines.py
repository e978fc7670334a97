"""Pipelines of torch.distributed.pipelining: the step of their schedule against the whole model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.agent.check.pieces import Pieces
from shardproof.synthesis.execute.run.running import Order, of_file, run
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.request import EVAL, TRAIN
from shardproof.verifier.kernel.program.types import Mesh

pytestmark = pytest.mark.torch
FILE = Path(__file__).with_name("pipelines.py")


@pytest.fixture
def made(case: Callable[..., object], tmp_path: Path) -> Callable[..., object]:
    shutil.copy(FILE, tmp_path)

    def make(name: str, against: str = "Net", pp: int = 2, **more: object) -> object:
        inputs = ["x=f32[4,2]", "target=f32[4,2]"][: 1 if against == "Plain" else 2]
        return case(
            Mesh.of(pp=pp),
            target=f"pipelines.py:{name}",
            against=f"pipelines.py:{against}",
            inputs=inputs,
            **more,
        )

    return make


RIGHT = ["gpipe", "one_forward_one_backward", "known_shapes", "interleaved", "scaled_by_hand"]
RIGHT += ["zero_bubble", "in_a_v"]


@pytest.mark.parametrize("name", RIGHT)
def test_right_pipelines_are_proved(made: Callable[..., object], name: str) -> None:
    made(name).proved()


def test_all_modes_are_judged(made: Callable[..., object]) -> None:
    found = made("gpipe", modes=(TRAIN, EVAL)).each()
    assert len({mode for checked in found for mode in checked.captured.modes}) == 4


def test_four_stages_are_proved(made: Callable[..., object]) -> None:
    found = made("gpipe", pp=4).proved()
    assert {"0", "1", "2", "3"} == {p.name.split(".")[1] for p in found.placed if "." in p.name}


def test_outputs_are_compared_beside_the_loss(made: Callable[..., object]) -> None:
    made("gpipe", "Both").proved()


def test_a_weight_at_both_ends(made: Callable[..., object]) -> None:
    made("gpipe", "Tied", after_backward="summed").proved()
    made("gpipe", "Tied", after_backward="not_summed").refuted()


def test_without_gradients(made: Callable[..., object]) -> None:
    made("forward_alone", "Plain", gradients=False).proved()


WRONG = ["not_divided", "divided_twice", "skipped", "backwards", "detached", "doubled", "flipped"]
WRONG += ["swapped", "mixed", "halved", "in_a_v_not_divided"]


@pytest.mark.parametrize("name", WRONG)
def test_wrong_pipelines_are_refuted(made: Callable[..., object], name: str) -> None:
    verdict = made(name).refuted().verdict
    assert verdict.location is not None
    assert verdict.location.source.file == "pipelines.py"


REFUSED = {
    "not_a_schedule": "gives a PipelineStage",
    "forward_alone": "the schedule has no loss function",
    "counting": "stage1.calls changed",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_judged_is_refused(made: Callable[..., object], name: str) -> None:
    with pytest.raises(CaptureError) as error:
        made(name).check()
    assert REFUSED[name] in error.value.message


def test_a_model_without_a_loss_is_refused(made: Callable[..., object]) -> None:
    with pytest.raises(CaptureError, match="the model returns no loss"):
        made("gpipe", "Plain").check()


def test_a_layer_that_no_stage_has_refutes_where_the_loss_shows_it(
    made: Callable[..., object],
) -> None:
    found = made("lost").refuted()
    assert found.verdict.wrong_outputs[0].startswith("loss:")
    assert "no rank has it" in {p.how for p in found.placed}


def test_stages_that_count_otherwise_do_not_go_through(made: Callable[..., object]) -> None:
    with pytest.raises((CaptureError, AssertionError)):
        made("other_counts").proved()


@pytest.mark.parametrize("after", ["forgotten", "late"])
def test_what_follows_the_step_is_seen(made: Callable[..., object], after: str) -> None:
    made("gpipe", after_backward=after).refuted()


def test_micro_batches_do_not_leak(made: Callable[..., object]) -> None:
    with pytest.raises((CaptureError, AssertionError)):
        made("leaking").proved()


def test_replicas_of_a_pipeline(made: Callable[..., object]) -> None:
    """The mean over both is compared, and gradients are averaged by hand."""
    found = made("in_replicas", after_backward="averaged")
    found.mesh = Mesh.of(dp=2, pp=2)
    found.inputs = ["x=f32[8,2]", "target=f32[8,2]"]
    found.input_layouts = ["*=S(0)@dp"]
    found.proved()
    found.after_backward = ""
    found.refuted()


def test_micro_batches_are_parts_of_the_batch(made: Callable[..., object]) -> None:
    """Too many inputs to be compared one by one: relations name the slices."""
    found = made("words", "Words")
    found.inputs = ["x=i64[4,3]<5", "target=i64[4,3]<5"]
    proof = found.proved().verdict
    assert "input shapes" in "; ".join(proof.scope)
    found.target = "pipelines.py:mixed_words"
    found.refuted()


def test_integers_that_a_stage_is_given_are_refused_where_it_is_run_for_its_shapes(case) -> None:
    """On gloo PyTorch fails: it runs the stage on memory that nothing was written to."""
    inputs = ["x=i64[4,3]<5", "target=i64[4,3]<5"]
    asked = case(
        Mesh.of(pp=2),
        target="pipelines.py:words_passed_on",
        against="pipelines.py:Words",
        inputs=inputs,
    )
    shutil.copy(FILE, asked.folder)
    with pytest.raises(CaptureError, match="stage 1 is given integers"):
        asked.check()


@pytest.mark.gloo
@pytest.mark.parametrize(("name", "right"), [("in_a_v", True), ("not_divided", False)])
def test_a_run_steps_the_schedule_on_processes(name: str, right: bool) -> None:
    mesh = Mesh.of(pp=2)
    given = tuple({"name": n, "shape": (4, 2), "dtype": "f32", "below": 0} for n in ("x", "target"))
    one, many = (of_file(n, FILE, {}) for n in ("Net", name))
    pieces = Pieces(mesh)
    ran = run(Order(one, many, mesh, given), pieces.given, pieces.outputs)
    assert ran.agrees is right, ran
    assert {"gradient", "loss"} <= {r.kind for r in ran.rows}
    alone = [mode for mode in ran.modes if "no_grad" in mode]
    assert right is not bool(alone), "PyTorch evaluates no schedule in a V"
