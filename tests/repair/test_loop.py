"""The loop: search first, three questions a context, fresh starts, bans; only proofs end it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import pytest

from shardproof.agent.llm.answers import Cancelled, Failed, NoModel, OutOfBudget, Trouble
from shardproof.agent.llm.budget import Limits, Price
from shardproof.agent.repair import Fixed, Level, NotFixed, Question, Settings, fix
from shardproof.agent.repair.feedback import told
from shardproof.agent.repair.loop import ROUNDS_IN_CONTEXT
from shardproof.agent.run import events
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.question import Candidate
from shardproof.synthesis.repair.search import NotRepaired, repair as enumerated
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text
from shardproof.verifier.verdict import Proof
from tests.llm.scripted import Scripted

ONE = """
program two
  input %x: f32[4, 8]
  param %w: f32[8, 6]
  param %v: f32[6, 4]
  %y = mm %x, %w
  %z = relu %y
  %p = mm %z, %v
  return %p, %z
"""
MANY = """
program two mesh(tp=2)
  input %x: f32[4, 4]
  param %w: f32[4, 6]
  param %v: f32[3, 4]
  %y = mm %x, %w
  %z = relu %y
  %s = shard_slice %z {mesh_dim=tp, dim=1}
  %p = mm %s, %v
  return %p, %z
"""
CONTRACT = "input x tp=S(1)\ninput w tp=S(0)\ninput v tp=S(0)"
FIRST = {"value": "y"}
SECOND = {"value": "p"}
MODEL = Settings(rounds=9, seconds=60, search=0)


def question(many: str = MANY, contract: str = CONTRACT, max_edits: int = 3) -> Question:
    one, own = parse_text(ONE), parse_text(many)
    stated = read_contract(contract, one, own)
    program, asked = compose(own, stated)
    return Question(one, program, asked, contract, max_edits=max_edits)


def edit(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {"edit": "after", "value": "y", "op": "all_reduce", "index": 0}
    lists: dict[str, object] = {"operands": [], "uses": [], "where": ""}
    return {**base, **lists, "attrs": "mesh_dim=tp, reduce=sum", **changes}


def reply(*edits: Mapping[str, object], **more: object) -> str:
    made = [edit(**e) for e in edits]
    return json.dumps({"diagnosis": "a sum is missing", "edits": made, **more})


def heard(
    model: Scripted | None, settings: Settings = MODEL, asked: Question | None = None
) -> tuple[Fixed | NotFixed, list[events.Event]]:
    seen: list[events.Event] = []
    return fix(asked or question(), settings, model, seen.append), seen


def rounds(seen: Sequence[events.Event]) -> list[events.RepairRound]:
    return [e for e in seen if isinstance(e, events.RepairRound)]


def candidates(seen: Sequence[events.Event]) -> list[events.RepairCandidate]:
    return [e for e in seen if isinstance(e, events.RepairCandidate)]


def proved(asked: Question, found: Candidate) -> bool:
    return isinstance(verify(Problem(asked.sequential, found.program, asked.contract)), Proof)


def test_the_search_comes_first_and_needs_no_model() -> None:
    model = Scripted([reply(FIRST, SECOND)])
    ended, seen = heard(None, Settings(rounds=3, seconds=30))
    assert isinstance(ended, Fixed)
    assert (ended.by, ended.rounds) == ("search", 1)
    assert [r.by for r in rounds(seen)] == ["search"]
    assert proved(question(), ended.found)
    assert model.heard == []


def test_a_right_program_is_left_alone() -> None:
    right = MANY.replace("%z = relu %y", "%t = all_reduce %y {mesh_dim=tp}\n  %z = relu %t")
    right = right.replace("%p = mm %s, %v", "%q = mm %s, %v\n  %p = all_reduce %q {mesh_dim=tp}")
    ended, seen = heard(Scripted([]), MODEL, question(right))
    assert isinstance(ended, Fixed)
    assert (ended.by, ended.found.edits, seen) == ("nobody", (), [])


def test_a_reply_is_judged_and_the_fewest_of_its_edits_are_kept() -> None:
    more = {"value": "x", "op": "mul_scalar", "attrs": "value=1"}
    ended, _ = heard(Scripted([reply(FIRST, SECOND, more)]))
    assert isinstance(ended, Fixed)
    assert ended.by == "model"
    assert len(ended.found.edits) == 2
    assert proved(question(), ended.found)


def test_what_was_found_is_fed_back_within_a_context() -> None:
    wrong = reply({"value": "z"})
    model = Scripted([wrong, reply(FIRST, SECOND)])
    ended, seen = heard(model)
    assert isinstance(ended, Fixed)
    assert (ended.rounds, [r.context for r in rounds(seen)]) == (2, [1, 1])
    assert [c.verdict for c in candidates(seen)] == ["refuted", "proved"]
    second = model.heard[1]
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user"]
    assert second[2]["content"] == wrong
    assert "it is still wrong" in second[3]["content"]
    assert "refuted: wrong outputs" in second[3]["content"]


def test_three_rounds_then_a_fresh_start_from_the_best_prefix() -> None:
    """The first edit alone makes one output right: the next context begins with it."""
    silly = [reply({"value": "v"}), reply({"value": "w"})]
    model = Scripted([reply(FIRST), *silly, reply(SECOND)])
    ended, seen = heard(model)
    assert isinstance(ended, Fixed)
    assert [r.context for r in rounds(seen)] == [1, 1, 1, 2]
    assert len(model.heard[2]) == 2 + 2 * (ROUNDS_IN_CONTEXT - 1)
    assert rounds(seen)[3].start == ["all_reduce {mesh_dim=tp, reduce=sum} after %y"]
    assert len(model.heard[3]) == 2
    assert "%y_all_reduce = all_reduce %y" in model.heard[3][1]["content"]
    assert len(ended.found.edits) == 2
    assert proved(question(), ended.found)


def test_the_search_starts_afresh_from_its_best_prefix() -> None:
    """One edit a search: the second one begins with what the first left right."""
    ended, seen = heard(None, Settings(rounds=3, seconds=60), question(max_edits=1))
    assert isinstance(ended, Fixed)
    assert (ended.by, ended.rounds, len(ended.found.edits)) == ("search", 2, 2)
    assert rounds(seen)[1].start == ["all_reduce {mesh_dim=tp, reduce=sum} after %y"]


def test_the_search_goes_on_from_what_a_model_got_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search of the time it takes to look once finds nothing; after the model's edit it does."""
    model = Scripted([reply(FIRST)])
    searched: list[int] = []

    def late(*given: object, **more: object) -> object:
        searched.append(1)
        if len(searched) == 1:
            return NotRepaired("nothing found", (), 0, 0.0)
        return enumerated(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("shardproof.agent.repair.loop.enumerated.repair", late)
    ended, seen = heard(model, Settings(rounds=6, seconds=60))
    assert isinstance(ended, Fixed)
    assert ended.by == "search"
    assert rounds(seen)[-1].start == ["all_reduce {mesh_dim=tp, reduce=sum} after %y"]


def test_refuted_edits_are_told_to_the_next_context_and_not_taken_again() -> None:
    wrong = [reply({"value": name}) for name in ("z", "v", "w")]
    model = Scripted([*wrong, wrong[0], reply(FIRST, SECOND)])
    ended, _ = heard(model)
    assert isinstance(ended, Fixed)
    first = model.heard[3][1]["content"]
    assert "Tried before, each alone" in first
    assert "all_reduce {mesh_dim=tp, reduce=sum} after %v" in first
    correction = model.heard[4][-1]["content"]
    assert "after all_reduce was tried too often" in correction or "tried before" in correction


def test_a_tactic_that_ends_in_the_same_finding_twice_is_banned() -> None:
    same = [reply({"value": "y", "op": "mul_scalar", "attrs": f"value={k}"}) for k in (2, 3, 4)]
    model = Scripted([*same, reply(FIRST, SECOND)])
    ended, seen = heard(model)
    assert rounds(seen)[2].banned == ["after mul_scalar"]
    assert isinstance(ended, Fixed)
    assert "tried too often" in model.heard[3][-1]["content"]


@pytest.mark.parametrize(
    "bad",
    [
        "I would add a sum.",
        reply({"value": "nope"}),
        reply({"op": "all_reduc"}),
        reply(FIRST, contract="input x"),
        '{"diagnosis": "", "edits": []}',
        reply(*[FIRST] * 9),
    ],
    ids=["prose", "no value", "no op", "a field too many", "no edit", "too many edits"],
)
def test_a_reply_that_cannot_be_used_is_answered_and_the_loop_goes_on(bad: str) -> None:
    model = Scripted([bad, bad, reply(FIRST, SECOND)])
    ended, seen = heard(model)
    assert isinstance(ended, Fixed)
    assert ended.rounds == 2
    assert candidates(seen)[0].verdict == "unusable"
    assert "cannot be used" in model.heard[1][-1]["content"]


def test_rounds_end_the_loop_with_the_best_prefix() -> None:
    silly = [reply({"value": name}) for name in ("z", "v", "w")]
    model = Scripted([reply(FIRST), *silly])
    ended, _ = heard(model, dataclasses.replace(MODEL, rounds=2))
    assert isinstance(ended, NotFixed)
    assert ended.rounds == 2
    assert "output:z" in ended.best.held.outputs
    assert len(ended.best.edits) == 1


@pytest.mark.parametrize(
    "limits",
    [Limits(calls=1), Limits(tokens=3000), Limits(usd=0.002), Limits(seconds=0.0)],
    ids=["calls", "tokens", "usd", "seconds"],
)
def test_a_budget_ends_the_questions(limits: Limits) -> None:
    wrong = [reply({"value": name}) for name in ("z", "v", "w")]
    ended, _ = heard(Scripted(wrong, limits, Price(1.0, 1.0)))
    assert isinstance(ended, NotFixed)
    assert isinstance(ended.answer, OutOfBudget)
    assert "budget" in ended.reason


@pytest.mark.parametrize(
    "answer",
    [Cancelled(), Failed(Trouble.SERVER, "500"), NoModel("no network")],
    ids=["cancelled", "failed", "none"],
)
def test_a_model_that_goes_silent_ends_in_a_value(answer: Cancelled | Failed | NoModel) -> None:
    ended, seen = heard(Scripted([answer, reply(FIRST, SECOND)]))
    assert isinstance(ended, NotFixed)
    assert ended.answer == answer
    (warned,) = [e.message for e in seen if isinstance(e, events.Warned)]
    assert str(answer) in warned


def test_a_cancelled_question_ends_the_loop_at_once() -> None:
    settings = Settings(rounds=9, seconds=60, search=5)
    ended, seen = heard(Scripted([Cancelled()]), settings, question(max_edits=1))
    assert isinstance(ended, NotFixed)
    assert len(rounds(seen)) == 2


def test_the_seconds_of_the_loop_are_kept() -> None:
    ticks = iter(range(1000))
    settings = Settings(rounds=99, seconds=20, search=0, clock=lambda: float(next(ticks)))
    ended, _ = heard(Scripted([reply({"value": "z"})] * 99), settings)
    assert isinstance(ended, NotFixed)
    assert ended.rounds < 20


def test_each_level_of_feedback_says_more() -> None:
    asked = question()
    first = asked.judge(())
    listed = asked.prefixes.suggested(first.program)
    said = [told(level, first.verdict, listed) for level in Level]
    assert said == sorted(said, key=len)
    none, message, relation, witness, fixes = said
    assert "output" not in none
    assert "output:z" in message
    assert "first broken relation" not in message
    assert "relu" in relation
    assert "one device gives" in witness
    assert "one device gives" not in relation
    assert '"op": "all_reduce"' in fixes


GIVEN = """input x tp=S(1)
input w tp=S(0)
input v tp=S(0)
given
program given mesh(tp=2)
  input %x: f32[4, 4]
  %r = permute %x {dims=[1, 0]}
  %l = permute %r {dims=[1, 0]}
  return %l "x"
"""
TOUCHING: dict[str, dict[str, object]] = {
    "an op of the contract dropped": {"edit": "drop", "value": "given.r", "op": "", "attrs": ""},
    "an op of the contract changed": {
        "edit": "set", "value": "given.l", "op": "", "attrs": "dims=[0, 1]",
    },
    "all ops like it changed": {
        "edit": "set_alike", "value": "given.l", "op": "", "attrs": "dims=[0, 1]",
    },
    "what the contract reads": {
        "edit": "rewire", "value": "y", "op": "", "attrs": "", "operands": ["x"],
    },
    "what it makes on the way": {
        "edit": "rewire", "value": "y", "op": "", "attrs": "", "operands": ["given.r"],
    },
    "something between its ops": {"value": "given.r"},
}  # fmt: skip


@pytest.mark.parametrize("case", TOUCHING)
def test_no_reply_touches_the_programs_of_the_contract(case: str) -> None:
    asked = question(contract=GIVEN)
    before = (asked.sequential, asked.contract, asked.distributed)
    bad = reply(TOUCHING[case])
    ended, seen = heard(Scripted([bad, bad]), MODEL, asked)
    assert isinstance(ended, NotFixed)
    assert candidates(seen)[0].verdict == "unusable"
    assert "contract fixes" in candidates(seen)[0].finding
    assert (asked.sequential, asked.contract, asked.distributed) == before


@pytest.mark.parametrize(
    "edits",
    [
        (Edit("drop", "given.r", "all_gather"),),
        (Edit("set", "given.l", attrs=(("dims", (0, 1)),)),),
        (Edit("rewire", "y", operands=("x",)),),
        (Edit("rewire", "y", operands=("given.r",)),),
    ],
    ids=["drop", "set", "read before", "read between"],
)
def test_the_frame_is_held_to_whoever_proposes(edits: tuple[Edit, ...]) -> None:
    with pytest.raises(IRError, match="contract fixes"):
        question(contract=GIVEN).judge(edits)


def test_a_program_of_the_contract_does_not_hinder_a_repair() -> None:
    ended, _ = heard(None, Settings(rounds=2, seconds=30), question(contract=GIVEN))
    assert isinstance(ended, Fixed)
    assert ended.found.program.producers()["given.r"].op == "permute"


def test_question_is_frozen() -> None:
    asked = question()
    for field in ("sequential", "distributed", "contract"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(asked, field, None)
