"""Every example: why it is refused, what is asked; a right reply is bound and proved, wrong ones
are found.

A wrong reply comes first and the right one after it: what is fed back in between is looked at.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.agent.llm.translating import prompted
from shardproof.agent.translation.rounds import Report
from shardproof.agent.translation.trial import Trial
from shardproof.agent.translation.trust import BackwardDiffers, Bound, DisplayOnly
from shardproof.synthesis import hardware
from shardproof.synthesis.planner.planner import Asked as Wanted, PlanError, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof
from tests.llm.scripted import Scripted

pytestmark = pytest.mark.torch

Asked = Callable[..., tuple[Report, Scripted]]

REPLIES = Path(__file__).parent / "replies"
WHY = {
    "activation_clip": ("data-dependent branch", 14),
    "apex_norm": ("imports apex, which is not installed", 5),
    "binary_weights": ("goes through numpy", 12),
    "cached_mask": ("data-dependent", 17),
    "custom_op_rotary": ("custom operator speedups_rotate", 42),
    "dynamic_scale": ("data-dependent", 13),
    "early_exit": ("data-dependent branch", 15),
    "flash_import": ("imports flash_attn, which is not installed", 7),
    "halving": ("data-dependent branch", 10),
    "low_memory_gelu": ("goes through numpy", 16),
    "numpy_scale": ("goes through numpy", 10),
    "ragged_mean": ("data-dependent", 10),
    "skip_tokens": ("data-dependent", 25),
    "squared_relu": ("goes through numpy", 10),
    "switch_experts": ("data-dependent branch", 29),
    "triton_rms_norm": ("imports triton, which is not installed", 5),
    "xformers_import": ("imports xformers, which is not installed", 6),
}
ENDS = {"apex_norm": DisplayOnly, "low_memory_gelu": BackwardDiffers}
"""What a right reply ends in where it is not bound: code that does not run, code that is wrong."""
WHOLE = {
    "apex_norm", "early_exit", "flash_import", "skip_tokens", "switch_experts", "xformers_import"
}  # fmt: skip
"""Files of which nothing less than everything is to be translated."""
WRONG = sorted(p.stem for p in REPLIES.glob("*.txt") if not p.stem.endswith(".right"))


def reply(name: str) -> str:
    text = (REPLIES / f"{name}.txt").read_text()
    return json.dumps({"program": text, "unsupported": []})


@pytest.fixture(scope="module")
def asked(trials: dict[str, Trial]) -> Asked:
    """What becomes of replies to an example, each list of them tried once."""

    @functools.cache
    def ask(*names: str) -> tuple[Report, Scripted]:
        model = Scripted([reply(name) for name in names])
        return trials[names[0].partition(".")[0]].run(model, lambda *_: None), model

    return ask


def test_the_examples_are_those_of_the_table() -> None:
    assert {path.stem.partition(".")[0] for path in REPLIES.glob("*.right.txt")} == set(WHY)


@pytest.mark.parametrize("name", WHY)
def test_the_reason_and_its_line_are_told(name: str, trials: dict[str, Trial]) -> None:
    problem = trials[name].observed.problem
    assert problem is not None
    said, line = WHY[name]
    assert said in problem.message
    assert (problem.file, problem.line) == (f"{name}.py", line)
    assert problem.text


@pytest.mark.parametrize("name", WHY)
def test_the_prompt_is_of_the_part_alone(name: str, trials: dict[str, Trial]) -> None:
    trial = trials[name]
    (task,) = trial.tasks()
    prompt = prompted(task)
    assert WHY[name][0] in prompt.user
    assert "forward(self" in prompt.user
    assert '"""' not in prompt.user
    assert any(subject.path for subject in trial.subjects()) == (name not in WHOLE)


@pytest.mark.parametrize("name", WHY)
def test_a_right_reply_is_bound_and_its_plan_proved(name: str, asked: Asked) -> None:
    report, model = asked(f"{name}.right")
    assert len(model.heard) == (2 if name == "low_memory_gelu" else 1)
    expected = ENDS.get(name, Bound)
    assert isinstance(report.end, expected), report
    if not isinstance(report.end, Bound):
        return
    bound = report.end
    assert "agrees with" in bound.assumptions[0]
    assert all(e.samples >= 9 and e.with_gradients >= 7 for e in bound.evidence)
    assert all(e.largest_error < 1e-7 for e in bound.evidence)
    proved: list[str] = []
    for mesh in (Mesh.of(dp=2), Mesh.of(tp=2)):
        try:
            made = synthesize(Wanted(bound.program, mesh, hardware.load("h100")))
        except PlanError:
            continue  # the branch on the whole value stands between the layers of a pair
        lowered = made.lowered
        verdict = verify(
            Problem(made.sequential, lowered.program, lowered.contract, consts=bound.consts)
        )
        assert isinstance(verdict, Proof), verdict
        found = check(
            verdict.certificate, Problem(made.sequential, lowered.program, lowered.contract)
        )
        assert isinstance(found, Accepted)
        proved.append(str(mesh))
    assert "dp=2" in proved


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_reply_is_found_and_fed_back(wrong: str, asked: Asked) -> None:
    name = wrong.partition(".")[0]
    report, model = asked(wrong, f"{name}.right")
    assert isinstance(report.end, ENDS.get(name, Bound))
    assert report.asked >= 2
    last = model.heard[1]
    assert [m["role"] for m in last] == ["system", "user", "assistant", "user"]
    told = last[-1]["content"]
    if wrong == "binary_weights.missing_detach":
        assert "the backward of Binarize is not the gradient of its forward" in told
        return
    (differs,) = report.differences
    for line in differs.lines():
        assert " ".join(line.split())[:300] in told
    kind = "gradient" if "detach" in wrong else "output"
    assert differs.what.startswith(kind)
    assert differs.expected != differs.got


LINES = {
    "squared_relu.wrong_scale": ("mul_scalar", 12),
    "squared_relu.abs_for_relu": ("abs", 10),
    "triton_rms_norm.wrong_eps": ("rms_norm", 32),
    "activation_clip.wrong_threshold": ("div", 15),
    "ragged_mean.wrong_mask": ("le", 11),
    "flash_import.swapped_operands": ("sdpa", 27),
    "cached_mask.wrong_scale": ("mul_scalar", 14),
}


@pytest.mark.parametrize("wrong", LINES)
def test_the_first_wrong_op_is_named_with_its_line(wrong: str, asked: Asked) -> None:
    report, _ = asked(wrong, f"{wrong.partition('.')[0]}.right")
    suspect = report.differences[0].suspect
    assert suspect is not None
    assert (suspect.op, suspect.line) == LINES[wrong]


def test_a_dropped_residual_is_named(asked: Asked) -> None:
    report, _ = asked("flash_import.dropped_residual", "flash_import.right")
    assert "returns what line 28 makes" in " ".join(report.differences[0].hints)


def test_a_wrong_backward_is_told_of_the_code(asked: Asked) -> None:
    report, _ = asked("low_memory_gelu.right")
    assert isinstance(report.end, BackwardDiffers)
    assert any(
        "low_memory_gelu.py:19: the backward of LowMemoryGELU" in s for s in report.end.lines()
    )
    assert report.differences == ()


def test_ways_that_were_not_gone_are_assumptions(asked: Asked) -> None:
    report, _ = asked("triton_rms_norm.right")
    assert isinstance(report.end, Bound)
    assert any("triton_rms_norm.py:25 (if x.is_cuda:) true" in a for a in report.end.assumptions)
    both, _ = asked("activation_clip.right")
    assert isinstance(both.end, Bound)
    assert both.end.evidence[0].ways == 2  # the condition, and the limit of clamp
    assert not both.end.evidence[0].one_way


def test_a_meant_backward_is_noted(asked: Asked) -> None:
    report, _ = asked("binary_weights.right")
    assert isinstance(report.end, Bound)
    assert any("the translation has the gradient that the code has" in a
               for a in report.end.assumptions)  # fmt: skip
