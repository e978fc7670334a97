"""The loop without code or model: rounds, fresh starts, bans, budgets, and who may say `Bound`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shardproof.agent.llm.answers import NoModel, OutOfBudget
from shardproof.agent.llm.budget import Limits
from shardproof.agent.translation.binding import TOLERANCE, bind, measure
from shardproof.agent.translation.rounds import GivenUp, Replies, Report, run_rounds
from shardproof.agent.translation.splicing import splice
from shardproof.agent.translation.trial import task_of
from shardproof.agent.translation.trust import (
    Bound,
    Differs,
    DisplayOnly,
    Evidence,
    Judged,
    Suspect,
)
from shardproof.synthesis.frontends.torch.observed import (
    Hole,
    Observed,
    OutFact,
    Sample,
    Subject,
    Trouble,
)
from shardproof.synthesis.frontends.torch.request import InputSpec
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.text.parser import parse_text
from tests.llm.scripted import Scripted

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """program Twice
  input %x: f32[2, 3]
  %y = mul_scalar %x {value=2}  @ -:3
  return output %y "y"
"""


def subject(samples: int = 4) -> Subject:
    """What running `y = 2 * x` gives."""
    rng = np.random.default_rng(0)
    made: list[Sample] = []
    for seed in range(samples):
        x, ct = rng.normal(size=(2, 2, 3))
        grads = {"input:x": 2 * ct}
        made.append(Sample("random", seed, {"x": x}, {}, {"y": 2 * x}, grads, {"y": ct}))
    kind = TensorType((2, 3), "f32")
    given = (InputSpec("x", (2, 3)),)
    outs = (OutFact("output", "y", kind),)
    return Subject("Twice", "", ("",), given, (), {}, outs, tuple(made), slopes={"input:x": True})


def observed(of: Subject) -> Observed:
    source = "def forward(self, x):\n\n    return 2 * x\n"
    return Observed(Trouble("why not", "m.py", 3), (), of, source=source, file="m.py")


def times(value: str) -> str:
    return RIGHT.replace("value=2", f"value={value}")


def reply(program: str) -> str:
    return json.dumps({"program": program, "unsupported": []})


def ran(model: Scripted | Replies) -> tuple[Report, list[list[str]]]:
    of = subject()
    told: list[list[str]] = []
    task = task_of(observed(of), of)
    report = run_rounds(model, task, lambda p: bind(p, of), lambda t: told.append(list(t)))
    return report, told


def test_three_rounds_then_a_fresh_start_with_what_was_refuted() -> None:
    model = Scripted([reply(times(v)) for v in ("3", "4", "5", "2")])
    report, told = ran(model)
    assert isinstance(report.end, Bound)
    assert (report.asked, len(report.differences), len(told)) == (4, 3, 3)
    assert [len(messages) for messages in model.heard] == [2, 4, 6, 2]
    fresh = model.heard[3][1]["content"]
    assert "Tried before in vain" in fresh
    for factor in ("1.5", "2", "2.5"):
        assert f"everywhere {factor} times" in fresh


def test_the_same_difference_twice_is_banned() -> None:
    model = Scripted([reply(times(v)) for v in ("3", "3", "2")])
    report, _ = ran(model)
    assert isinstance(report.end, Bound)
    assert [len(messages) for messages in model.heard] == [2, 4, 2]
    assert "twice, so not in this way again" in model.heard[2][1]["content"]


def test_contexts_come_to_an_end() -> None:
    model = Scripted([reply(times(v)) for v in ("3", "4", "5", "6", "7", "8", "2")])
    report, _ = ran(model)
    assert isinstance(report.end, GivenUp)
    assert report.asked == 6
    assert "none of which agrees with the code" in report.end.reason


def test_no_more_replies_is_said_with_the_last_difference() -> None:
    report, _ = ran(Scripted([reply(times("3"))]))
    assert isinstance(report.end, GivenUp)
    assert isinstance(report.end.unanswered, NoModel)
    assert "everywhere 1.5 times" in report.end.reason


def test_a_budget_ends_it() -> None:
    model = Scripted([reply(times(v)) for v in ("3", "4", "2")], Limits(calls=2))
    report, _ = ran(model)
    assert isinstance(report.end, GivenUp)
    assert isinstance(report.end.unanswered, OutOfBudget)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (RIGHT.replace("mul_scalar", "twice"), "twice"),
        (RIGHT.replace("%x: f32[2, 3]", "%x: f32[3, 2]"), "is not as given"),
        (RIGHT.replace('"y"', '"z"'), "outputs are not those given"),
        (RIGHT.replace("Twice", "Thrice"), "its name is Twice"),
        (RIGHT.replace("program Twice", "program Twice mesh(tp=2)"), "no mesh"),
        (RIGHT.replace("mul_scalar %x {value=2}", "mm %x, %x"), "mm"),
    ],
)
def test_what_is_no_translation_is_answered(bad: str, said: str) -> None:
    model = Scripted([reply(bad), reply(RIGHT)])
    report, told = ran(model)
    assert isinstance(report.end, Bound)
    assert told == []
    assert said in model.heard[1][-1]["content"]


def test_a_reply_in_a_file_is_a_program_or_json() -> None:
    for text in (RIGHT, reply(RIGHT), f"# by hand\n{RIGHT}"):
        report, _ = ran(Replies([text]))
        assert isinstance(report.end, Bound), report


def test_what_cannot_be_expressed_ends_it() -> None:
    text = json.dumps({"program": "", "unsupported": [{"line": 3, "why": "an FFT"}]})
    report, _ = ran(Scripted([text]))
    assert isinstance(report.end, GivenUp)
    assert report.end.reason == "it cannot be expressed: line 3: an FFT"


def test_a_program_without_a_gradient_is_told_so() -> None:
    text = RIGHT.replace("mul_scalar %x {value=2}", "sign %x")
    model = Scripted([reply(text), reply(RIGHT)])
    report, _ = ran(model)
    assert isinstance(report.end, Bound)
    assert "put `detach` where the code passes no gradient on" in model.heard[1][-1]["content"]


def test_the_feedback_stands_between_boundaries() -> None:
    model = Scripted([reply(times("3")), reply(RIGHT)])
    ran(model)
    told = model.heard[1][-1]["content"].split("\n")
    (start,) = [i for i, line in enumerate(told) if line.startswith("<<< B")]
    word = told[start].removeprefix("<<< ")
    end = told.index(f"{word} >>>")
    assert any("everywhere 1.5 times" in line for line in told[start:end])


# Who may say Bound


def test_a_bound_translation_cannot_be_made_by_hand() -> None:
    program = parse_text(RIGHT)
    with pytest.raises(TypeError, match="by comparing it with the code"):
        Bound(program, program, (), {})
    good = bind(program, subject())
    assert isinstance(good, Bound)
    with pytest.raises(TypeError):
        replace(good, program=parse_text(times("3")))
    with pytest.raises(TypeError):
        replace(good, forward=parse_text(times("3")))


def test_only_binding_seals_and_only_bound_reaches_the_road() -> None:
    for path in (ROOT / "agent").rglob("*.py"):
        if path.name not in ("binding.py", "trust.py"):
            assert "Seal(" not in path.read_text(), path
    road = (ROOT / "agent" / "pipeline" / "pipeline.py").read_text()
    assert "facts: CapturedFacts, bound: Bound) -> Outcome" in road
    assert "DisplayOnly" not in road


def test_too_few_samples_bind_nothing() -> None:
    judged = bind(parse_text(RIGHT), subject(samples=2))
    assert "only 2 samples" in str(judged)
    left = replace(subject(), samples=tuple(replace(s, left_out="why") for s in subject().samples))
    assert "only 0 samples can be compared: why" in str(bind(parse_text(RIGHT), left))


def test_the_kind_of_a_difference() -> None:
    one = Differs("output y", "random, seed 0", (0, 1), 2.0, 3.0, Suspect("h", "mm", 7))
    two = Differs("output y", "random, seed 1", (1, 1), 4.0, 6.0, Suspect("k", "mm", 7))
    other = replace(two, suspect=Suspect("k", "mm", 8))
    assert one.kind == two.kind != other.kind


def test_evidence_says_what_was_left_out() -> None:
    evidence = Evidence(
        "M", 9, 5, "x=f32[2]", "float64", 1e-12, (0,), ("sample 'ties', because x",)
    )
    assert "9 samples" in evidence.sentences()[0]
    assert "Not compared: sample 'ties', because x." in evidence.sentences()


# What counts as equal


def test_filled_entries_do_not_hide_the_others() -> None:
    expected = np.array([[1.0, -1e9], [0.5, 2.0]])
    assert measure(expected, expected * 1.0).error == 0
    wrong = expected.copy()
    wrong[0, 0] = 1.001
    found = measure(expected, wrong)
    assert found.index == (0, 0)
    assert found.error > 1e-4 > TOLERANCE["f64"]
    assert measure(expected, np.array([[1.0, -1e9], [np.nan, 2.0]])).error == np.inf
    assert measure(expected, np.array([[1.0, -2e9], [0.5, 2.0]])).error == 1
    assert measure(np.zeros((2, 2)), np.zeros((2, 2))).error == 0
    assert measure(np.zeros(2), np.full(2, 1e-12)).error > 1
    assert measure(np.array([1, 2]), np.array([1, 3])).error == 1
    assert measure(np.zeros((2,)), np.zeros((1, 2))).error == np.inf


# Putting parts in


AROUND = """program M
  param %w: f32[3, 3]
  input %x: f32[2, 3]
  input %hole0.result0: f32[2, 3]
  input %hole1.result0: f32[2, 3]
  %1 = mm %x, %w
  %2 = add %hole0.result0, %x
  %3 = add %hole1.result0, %1
  return output %1 "hole0.argument0", output %2 "hole1.argument0", output %3 "output"
"""
HOLES = (
    Hole("a", ("hole0.argument0",), ("hole0.result0",)),
    Hole("b", ("hole1.argument0",), ("hole1.result0",)),
)
SCALED = """program P
  param %s: f32[3] "scale"
  input %x: f32[2, 3]
  %1 = mul %x, %s
  return output %1 "y"
"""


def test_parts_are_put_in_where_their_results_are_needed() -> None:
    part = parse_text(SCALED)
    made = splice(parse_text(AROUND), HOLES, {"a": part, "b": part})
    assert [o.path for o in made.outputs] == ["output"]
    assert [i.path for i in made.inputs if i.role == "param"] == ["w", "a.scale", "b.scale"]
    assert [n.op for n in made.nodes] == ["mm", "mul", "add", "mul", "add"]
    assert {n.source.module for n in made.nodes if n.op == "mul"} == {"a", "b"}
    tied = splice(parse_text(AROUND), HOLES, {"a": part, "b": part}, [["a.scale", "b.scale"]])
    assert [i.path for i in tied.inputs if i.role == "param"] == ["w", "a.scale"]


def test_a_part_of_another_type_is_refused() -> None:
    part = parse_text(SCALED.replace("2, 3", "3, 3"))
    with pytest.raises(IRError):
        splice(parse_text(AROUND), HOLES, {"a": part, "b": part})


def never(_: Program) -> Judged:
    raise AssertionError


def test_code_that_does_not_run_is_display_only() -> None:
    of = replace(subject(), problem=Trouble("it fails", "m.py", 3, "return 2 * x"))
    task = task_of(observed(of), of)
    report = run_rounds(Scripted([reply(RIGHT)]), task, lambda p: bind(p, of), lambda _: None)
    assert isinstance(report.end, DisplayOnly)
    assert "m.py:3" in report.end.reason
