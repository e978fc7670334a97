"""The check of published plans: how one ended, and that only what a run confirms is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.tp_plans import RAISES, Row, differing, ended, found
from benchmarks.tp_plans_page import page
from shardproof.agent.run.events import Problem, VerdictReached

PROVED = Row("AForCausalLM", "tp=2", "proved", "right", "", "", "train", 1.0, 60.0, {}, version="5")
WRONG = replace(PROVED, name="BForCausalLM", load="wrong", what="load: 2 pieces hold others")


@pytest.mark.parametrize(
    ("message", "doing", "end"),
    [
        ("RuntimeError: shape is invalid", "trace 2 ranks, train mode", RAISES),
        ("RuntimeError: shape is invalid", "trace one device, train mode", "does not build"),
        ("XConfig refuses its fields: no", "", "does not build"),
        ("a shape is data-dependent", "trace 2 ranks, train mode", "refused"),
    ],
)
def test_an_error_is_the_librarys_where_one_device_has_none(message, doing, end) -> None:
    assert ended(Problem(kind="input", message=message), doing)[0] == end


def test_a_wrong_load_of_a_proved_plan_is_told_apart() -> None:
    said = VerdictReached(verdict="refuted", message="load: 2 pieces hold other elements")
    assert ended(said, "") == ("proved", "wrong")
    assert ended(VerdictReached(verdict="refuted", message="grad:x"), "")[0] == "refuted"
    assert found(WRONG)
    assert not found(PROVED)


def test_a_class_is_named_where_a_run_differs_too() -> None:
    assert "| B |" not in page([PROVED, WRONG])
    assert "| B |" not in page([PROVED, replace(WRONG, run=[])])
    text = page([PROVED, replace(WRONG, run=["loss: 0.1 of the largest entry off"])])
    assert "| tp=2 | loaded wrong | `from_pretrained` gives ranks other" in text
    assert "| B |" in text
    assert "100.0% (100.0%)" in text


def test_what_a_run_must_show_to_confirm() -> None:
    assert differing(WRONG) == "weight "
    assert differing(replace(PROVED, end=RAISES)) == "rank "
    refuted = replace(PROVED, end="refuted", what="grad:model.norm.weight[0] on rank tp=0: got 1")
    assert differing(refuted) == "gradient model.norm.weight"
    assert differing(replace(refuted, what="output:logits[0, 1] on rank")) == "logits"


def test_the_share_counts_what_has_no_verdict() -> None:
    unknown = replace(PROVED, name="CForCausalLM", end="unknown", load="not looked at")
    raises = replace(PROVED, name="DForCausalLM", end=RAISES, load="not looked at")
    assert "50.0% (66.7%)" in page([PROVED, unknown, raises])
