"""What the headline and the small print of a report say is what was done."""

from __future__ import annotations

import pytest

from shardproof.agent.report.html import render_html
from shardproof.agent.report.markdown import render_markdown
from shardproof.agent.report.model import Report
from shardproof.agent.report.summary import model_use, patch_standing, refuter, spent_in
from shardproof.agent.run import events
from shardproof.synthesis.execute.run.running import Ran, Row
from shardproof.verifier.refute.search import MAX_ELEMENTS
from shardproof.verifier.verdict import Counterexample, Trace, Unknown, Verdict
from tests.checker.pairs import proof

PROOF, UNKNOWN = proof(), Unknown("")
REFUTED = Counterexample("tp=2", Trace("check", "it waits"))


@pytest.mark.parametrize(
    ("read", "difference", "said"),
    [
        (PROOF, None, "read again and proved"),
        (PROOF, 1e-16, "read again and proved | run on 4 processes, agrees"),
        (None, None, "not read"),
        (None, 1e-16, "run on 4 processes, agrees | not read"),
        (None, 0.5, "run on 4 processes, differs | not read"),
        (None, float("nan"), "run on 4 processes, differs | not read"),
        (UNKNOWN, 1e-16, "read again, not proved | run on 4 processes, agrees"),
        (REFUTED, None, "read again and refuted"),
    ],
)
def test_the_standing_of_a_patch(read: Verdict | None, difference: float | None, said: str) -> None:
    rows = (Row("loss", "loss", 0, difference or 0.0, "train mode", 0, 0),)
    ran = None if difference is None else Ran(rows, ranks=4)
    standing = patch_standing(read, ran)
    assert standing == said
    page = Report(title="m", verdict="proved", headline="h", patch_standing=standing)
    assert said in render_markdown(page).replace("\\|", "|")
    assert said in render_html(page)


def answered(answer: str = "Completion", **more: object) -> events.ModelAnswered:
    return events.ModelAnswered.model_validate({"question": "q", "answer": answer, **more})


def test_a_model_that_was_asked_is_named_with_what_it_took() -> None:
    seen = [
        answered(model="m-1", calls=1, prompt_tokens=900, completion_tokens=100, usd=0.25),
        answered("Failed", kind="key", message="401", calls=1, usd=0.0),
    ]
    use = model_use(spent_in(seen))
    assert use is not None
    assert (use.calls, use.tokens, use.models, use.cost) == (2, 1000, ("m-1",), "0.2500 USD")
    page = Report(title="m", verdict="proved", headline="h", model_use=use)
    for text in (render_markdown(page), render_html(page)):
        assert "o language model was asked" not in text
        assert all(word in text for word in ("m-1", "1,000", "0.2500 USD"))


@pytest.mark.parametrize("seen", [[], [answered("NoModel", message="no key")]])
def test_a_model_that_was_not_asked_is_not_there(seen: list[events.Event]) -> None:
    assert model_use(spent_in(seen)) is None
    page = Report(title="m", verdict="proved", headline="h")
    assert "o language model was asked" in render_markdown(page)
    assert "o language model was asked" in render_html(page)


def test_a_model_that_only_failed_was_asked_all_the_same() -> None:
    use = model_use(spent_in([answered("Failed", kind="key", message="401", calls=1)]))
    assert use is not None
    page = Report(title="m", verdict="proved", headline="h", model_use=use)
    assert "1 calls, 0 tokens, cost not known (none answered)" in render_markdown(page)


def test_why_the_refuter_did_not_run_is_what_it_was() -> None:
    ran = {"refuter_ran": 1.0, "refuter_elements": 100.0, "refute_s": 0.5}
    assert refuter(PROOF, ran).result == "no difference"
    large = refuter(PROOF, {"refuter_ran": 0.0, "refuter_elements": 5e6})
    assert "5,000,000 numbers over all ranks" in large.result
    assert f"at most {MAX_ELEMENTS:,}" in large.result
    none = refuter(PROOF, {"refuter_ran": 0.0, "refuter_elements": 100.0})
    assert none.result == "not run: no input was found on which what the contract assumes holds"
    assert "before any value was looked at" in refuter(REFUTED, {}).result
    page = Report(title="m", verdict="proved", headline="h", refuter=large)
    assert "Agreement is evidence" not in render_markdown(page)
