"""Each role: a good reply is read, a malformed one is answered once with why, then given up."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.llm_transcript import Recorded, Replayed
from shardproof.agent.llm.answers import (
    Cancelled,
    Completion,
    Failed,
    NoModel,
    OutOfBudget,
    Trouble,
    exit_of,
)
from shardproof.agent.llm.budget import Limits
from shardproof.agent.llm.client import Client, Model
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.explaining import explain
from shardproof.agent.llm.proposing import propose
from shardproof.agent.llm.repairing import repair
from shardproof.agent.llm.replies import FORMS, Explanation, schema
from shardproof.agent.llm.translating import translate
from shardproof.prompts import load
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.question import Question
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Input
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import evaluate
from shardproof.verifier.text.contract import read_contract
from shardproof.verifier.text.parser import parse_text, to_text
from shardproof.verifier.verdict import Proof
from tests.llm import tasks
from tests.llm.scripted import Scripted
from tests.llm.server import Server, says

ROLES: dict[str, tuple[Callable[[Model], object], Callable[[], str]]] = {
    "translate": (lambda m: translate(m, tasks.translation()), tasks.translated),
    "propose": (lambda m: propose(m, tasks.planning()), tasks.proposed),
    "repair": (lambda m: repair(m, tasks.mending()), tasks.repaired),
    "explain": (lambda m: explain(m, tasks.judged(), tasks.BROKEN), tasks.explained),
}


@pytest.mark.parametrize("role", ROLES)
def test_a_good_reply_is_read_over_http(role: str, server: Server, client: Client) -> None:
    ask, reply = ROLES[role]
    server.answers(says(reply()))
    found = ask(client)
    assert isinstance(found, Read), found
    assert found.template == load(role).digest
    assert (server.calls, found.corrected) == (1, False)
    assert found.usage.total == 18
    form = server.bodies[0]["response_format"]["json_schema"]
    assert form["strict"] is True
    assert form["schema"]["additionalProperties"] is False


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("bad", ["prose", "another form", "cut", "an extra field", "a list"])
def test_a_malformed_reply_is_answered_once(role: str, bad: str) -> None:
    ask, reply = ROLES[role]
    good = reply()
    replies = {
        "prose": "I would suggest to add an all_reduce.",
        "another form": '{"answer": 42}',
        "cut": good[: len(good) // 2],
        "an extra field": json.dumps({**json.loads(good), "verdict": "proved"}),
        "a list": f"[{good}]",
    }
    model = Scripted([replies[bad], good])
    found = ask(model)
    assert isinstance(found, Read), found
    assert found.corrected
    told = model.heard[1]
    assert [m["role"] for m in told] == ["system", "user", "assistant", "user"]
    assert told[2]["content"] == replies[bad]
    assert told[3]["content"].startswith("That reply cannot be used:\n- ")
    if bad == "an extra field":
        assert "- verdict: no such field" in told[3]["content"]
    model = Scripted([replies[bad], replies[bad], good])
    given_up = ask(model)
    assert isinstance(given_up, Malformed)
    assert len(model.heard) == 2
    assert "\n" not in str(given_up)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "end",
    [
        NoModel("no key"),
        Failed(Trouble.KEY, "status 401"),
        OutOfBudget("calls", 1, 1),
        Cancelled(),
    ],
    ids=lambda end: type(end).__name__,
)
def test_what_is_no_answer_is_passed_on(role: str, end: NoModel) -> None:
    ask, _ = ROLES[role]
    assert ask(Scripted([end])) is end
    assert ask(Scripted(["nonsense", end])) is end


@pytest.mark.parametrize("role", ROLES)
def test_a_reply_that_was_cut_off_is_asked_for_once_more(role: str) -> None:
    ask, reply = ROLES[role]
    cut = Failed(Trouble.LENGTH, "the reply reached the limit of tokens")
    model = Scripted([cut, reply()])
    found = ask(model)
    assert isinstance(found, Read)
    assert found.corrected
    assert "be brief" in model.heard[1][3]["content"]
    assert ask(Scripted([cut, cut, reply()])) == cut


def test_every_end_has_an_exit_code() -> None:
    ends = [NoModel("x"), Failed(Trouble.KEY, "x"), OutOfBudget("calls", 1, 1), Cancelled()]
    assert [int(exit_of(end)) for end in ends] == [3, 3, 4, 130]


def test_a_second_try_is_within_the_budget() -> None:
    model = Scripted(["nonsense", tasks.repaired()], Limits(calls=1))
    assert isinstance(repair(model, tasks.mending()), OutOfBudget)


def test_the_translation_is_the_program() -> None:
    found = translate(Scripted([tasks.translated()]), tasks.translation())
    assert isinstance(found, Read)
    program = found.value.program
    assert program is not None
    assert [n.op for n in program.nodes] == ["mm", "relu"]
    source = program.nodes[0].source
    assert (source.file, source.line, source.text) == ("model.py", 8, "h = x @ self.w")


def test_what_cannot_be_expressed_is_said() -> None:
    reply = {"program": "", "unsupported": [{"line": 3, "why": "sorts"}]}
    found = translate(Scripted([json.dumps(reply)]), tasks.translation())
    assert isinstance(found, Read)
    assert found.value.program is None
    assert found.value.unsupported[0].why == "sorts"


MISTRANSLATED = {
    "an unknown op": (("relu", "relux"), "program:5:8: unknown op relux; did you mean relu"),
    "a value that is not defined": (("relu %h", "relu %g"), "program:5"),
    "a mesh": (("program mlp", "program mlp mesh(tp=2)"), "has no mesh"),
    "another name": (("program mlp", "program other"), "its name is mlp"),
    "a collective": (("relu %h", "merge %h"), "merge is not an op of one-device programs"),
    "another input": (("f32[2, 4]", "f32[3, 4]"), "the input %x is not as given"),
    "another role": (("input %x", "const %x"), "the input %x is not as given"),
    "another path": (('"w"', '"v"'), "the input %w is not as given"),
    "an input more": (("  %h", "  input %z: f32[1]\n  %h"), "no input %z is given"),
    "an output less": (('return output %y "y"', "return"), "its outputs are not those given"),
    "an output of another role": (("return output", "return loss"), "its outputs are not"),
    "an output of another path": (('%y "y"', '%y "z"'), "its outputs are not"),
    "text afterwards": (('"y"', '"y"\nprogram two'), "program:"),
    "time": (("relu %h", "relu %h async"), "%y: on(...), async"),
    "shapes that do not fit": (("mm %x, %w", "mm %w, %x"), "mm"),
}


@pytest.mark.parametrize("case", MISTRANSLATED)
def test_a_wrong_translation_is_a_located_error(case: str) -> None:
    (old, new), message = MISTRANSLATED[case]
    bad = tasks.translated(tasks.PROGRAM.replace(old, new, 1))
    model = Scripted([bad, bad])
    found = translate(model, tasks.translation())
    assert isinstance(found, Malformed)
    assert message in str(found.problems), found.problems
    assert message in model.heard[1][3]["content"]


def test_source_that_is_not_python_is_not_sent() -> None:
    model = Scripted([tasks.translated()])
    found = translate(model, tasks.translation(source="def f(:\n"))
    assert isinstance(found, Malformed)
    assert "model.py:1" in found.problems[0]
    assert model.heard == []


def test_the_proposal_is_a_point_of_the_search() -> None:
    found = propose(Scripted([tasks.proposed()]), tasks.planning())
    assert isinstance(found, Read)
    (proposal,) = found.value.points
    assert dict(proposal.point.styles) == {"layers.*.up": "replicate", "layers.*.down": "row"}
    assert (proposal.point.stream, proposal.tactic) == ("R", "column_row")


MISPROPOSED: dict[str, tuple[dict[str, object], str]] = {
    "an unknown tactic": (
        {"tactic": "column-row"},
        "proposals[0].tactic: 'column-row' does not fit; expected one of column_row",
    ),
    "an unknown stream": ({"stream": "S(9)"}, "proposals[0].stream"),
    "an unknown module": (
        {"placements": [{"module": "layers.0.up", "style": "row"}]},
        "[0].placements[0].module: 'layers.0.up' does not fit; expected one of layers.*.up",
    ),
    "an unknown style": (
        {"placements": [{"module": "layers.*.up", "style": "diagonal"}]},
        "placements[0].style",
    ),
    "a style that does not fit": (
        {"placements": [{"module": "layers.*.up", "style": "vocab"}]},
        "expected one of replicate, column, row",
    ),
}


@pytest.mark.parametrize("case", MISPROPOSED)
def test_a_wrong_proposal_is_a_located_error(case: str) -> None:
    changes, message = MISPROPOSED[case]
    bad = tasks.proposed(**changes)
    found = propose(Scripted([bad, bad]), tasks.planning())
    assert isinstance(found, Malformed)
    assert message in str(found)


def test_more_or_fewer_proposals_than_asked_for() -> None:
    one = json.loads(tasks.proposed())["proposals"]
    bad = json.dumps({"proposals": []})
    assert "empty" in str(propose(Scripted([bad, bad]), tasks.planning()))
    found = propose(Scripted([json.dumps({"proposals": one * 9})]), tasks.planning())
    assert isinstance(found, Read)
    assert (len(found.value.points), found.value.left_out) == (3, ("proposals: 9; at most 3",))


def test_a_wrong_proposal_takes_no_right_one_with_it() -> None:
    right = json.loads(tasks.proposed())["proposals"][0]
    wrong = right | {"placements": [{"module": "lm_head", "style": "column"}]}
    for order in ([right, wrong], [wrong, right]):
        found = propose(Scripted([json.dumps({"proposals": order})]), tasks.planning())
        assert isinstance(found, Read)
        assert len(found.value.points) == 1
        (why,) = found.value.left_out
        assert f"proposals[{order.index(wrong)}]" in why
        assert "'lm_head' does not fit" in why


def test_the_repair_is_judged_by_the_verifier() -> None:
    found = repair(Scripted([tasks.repaired()]), tasks.mending())
    assert isinstance(found, Read)
    contract = read_contract(tasks.CONTRACT, tasks.ONE, found.value.program).contract
    assert isinstance(verify(Problem(tasks.ONE, found.value.program, contract)), Proof)
    assert str(found.value) == "all_reduce {mesh_dim=tp, reduce=sum} after %y"


MISREPAIRED: dict[str, tuple[dict[str, object], str]] = {
    "an unknown edit": ({"edit": "rewrite"}, "edits[0]: unknown edit 'rewrite'; expected one of"),
    "an unknown op": ({"op": "all_reduc"}, "unknown op 'all_reduc'; did you mean all_reduce"),
    "an unknown value": ({"value": "nope"}, "the program has no value %nope"),
    "a value of the one-device program": ({"value": "S/y"}, "no value"),
    "an attribute that does not parse": ({"attrs": "mesh_dim=(1"}, "edits[0]: attrs:1:"),
    "an attribute of nothing": ({"attrs": "path=x"}, "no op has an attribute 'path'"),
    "a mesh dim that is none": ({"attrs": "mesh_dim=ep"}, "ep"),
    "an edit of an input": (
        {"edit": "drop", "value": "x", "op": "", "attrs": ""},
        "no node defines %x",
    ),
    "a field too many": ({"index": 1}, "after takes no index"),
    "a field too few": ({"op": "", "attrs": ""}, "after needs op"),
    "an operand that is none": ({"operands": ["nope"]}, "no value %nope"),
    "ranks that are none": ({"where": "tp=7"}, "no such coordinate"),
    "an output that is none": (
        {"edit": "output", "op": "", "attrs": "", "operands": ["y"]},
        "an output is named role:path",
    ),
    "a body": ({"op": "scan", "attrs": ""}, "scan"),
    "a word for a number": ({"index": "first"}, "edits[0].index: Input should be a valid"),
}


@pytest.mark.parametrize("case", MISREPAIRED)
def test_a_wrong_edit_is_a_located_error(case: str) -> None:
    changes, message = MISREPAIRED[case]
    bad = tasks.repaired(tasks.edit(**changes))
    found = repair(Scripted([bad, bad]), tasks.mending())
    assert isinstance(found, Malformed)
    assert message in str(found)


def test_the_prompt_of_a_repair_says_what_was_found() -> None:
    model = Scripted([tasks.repaired()])
    repair(model, tasks.mending(refuted=(("drop %z", "shapes differ"),)))
    system, user = (m["content"] for m in model.heard[0])
    for part in ("%y = mm %x, %w", "@ model.py:8", "input x tp=S(1)", "one device gives"):
        assert part in user
    assert "drop %z: shapes differ" in user
    assert "set(value, attrs)" in system


def test_edits_that_were_tried_are_not_taken_again() -> None:
    first = repair(Scripted([tasks.repaired()]), tasks.mending())
    assert isinstance(first, Read)
    task = tasks.mending(refuted=((str(first.value), "refuted"),))
    other = tasks.repaired(tasks.edit(value="x"))
    again = repair(Scripted([tasks.repaired(), other]), task)
    assert isinstance(again, Read)
    assert again.corrected


def test_an_explanation_is_plain_text() -> None:
    reply = tasks.explained(summary="\x1b[31mred\x1b[0m \u202eabc\u202c [bold]x[/bold] <script>")
    found = explain(Scripted([reply]), tasks.judged())
    assert isinstance(found, Read)
    assert found.value == Explanation(
        summary="red abc [bold]x[/bold] <script>",
        cause="Each rank has a share.",
        advice="Sum.",
    )


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_schemas_stay_in_the_subset_that_servers_agree_on(form: type) -> None:
    def look(node: dict[str, object], depth: int) -> None:
        assert depth <= 6
        assert set(node) <= {
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "enum",
        }
        if node["type"] == "object":
            fields = node["properties"]
            assert isinstance(fields, dict)
            assert node["required"] == list(fields)
            assert node["additionalProperties"] is False
            for field in fields.values():
                look(field, depth + 1)
        if node["type"] == "array":
            look(node["items"], depth + 1)  # type: ignore[arg-type]

    look(dict(schema(form)), 0)


def test_the_language_in_the_prompt_is_the_language() -> None:
    model = Scripted([tasks.translated()])
    translate(model, tasks.translation())
    system = model.heard[0][0]["content"]
    example = system[system.index("program mlp") : system.index("\nRules:")]
    with pytest.raises(IRError):
        parse_text(example.replace("relu", "relux"))
    assert len(parse_text(example).nodes) == 2


def test_a_transcript_is_replayed_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    asked = [ask(Recorded(Scripted([reply()]), path)) for ask, reply in ROLES.values()]
    recorded = Recorded(Scripted(["nonsense", tasks.repaired()]), path)
    asked.append(repair(recorded, tasks.mending(most=2)))
    assert path.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic"):
        Recorded(Scripted([]), link)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["template"] for line in lines[:4]] == [load(name).digest for name in ROLES]
    assert all(line["rendering"] for line in lines)
    with path.open("a") as file:
        file.write('{"torn')
    replayed = Replayed(path)
    again = [ask(replayed) for ask, _ in ROLES.values()]
    again.append(repair(replayed, tasks.mending(most=2)))
    for one, two in zip(asked, again, strict=True):
        assert isinstance(one, Read)
        assert isinstance(two, Read)
        assert (one.value, one.rendering, one.usage) == (two.value, two.rendering, two.usage)
    never = explain(replayed, tasks.judged(), question="something else")
    assert isinstance(never, NoModel)


def test_a_transcript_holds_no_key(tmp_path: Path, server: Server, client: Client) -> None:
    key = client.endpoint.key.reveal()
    server.answers(says(tasks.explained(advice=f"use {key} and sk-live-abcdefghijklmnop")))
    path = tmp_path / "transcript.jsonl"
    recorded = Recorded(client, path, client.endpoint.key)
    found = explain(recorded, tasks.judged(), question=f"is {key} right?")
    assert isinstance(found, Read)
    assert key not in path.read_text() + repr(found)
    assert "abcdefghijklmnop" not in path.read_text()


def test_completion_says_what_it_cost() -> None:
    answer = Scripted(["fine"]).ask([{"role": "user", "content": "x"}])
    assert isinstance(answer, Completion)
    assert "tokens" in str(answer)


def _examples() -> list[dict[str, str]]:
    """The worked examples of the prompt of a repair, part by part, as it is sent."""
    model = Scripted([tasks.repaired()])
    repair(model, tasks.mending())
    system = model.heard[0][0]["content"]
    found = re.split(r"^Example \d\. .*\n", system, flags=re.MULTILINE)[1:]
    heads = r"^(One device|Contract|Ranks|Values|Reply):\n"
    parts = [re.split(heads, text.split("\n\n")[0], flags=re.MULTILINE)[1:] for text in found]
    return [dict(zip(p[::2], p[1::2], strict=True)) for p in parts]


@pytest.mark.parametrize("number", range(2))
def test_the_worked_examples_repair_their_programs(number: int) -> None:
    part = _examples()[number]
    one, many = parse_text(part["One device"]), parse_text(part["Ranks"])
    stated = read_contract(part["Contract"], one, many)
    asked = Question(one, many, stated.contract, part["Contract"])
    assert asked.prefixes.beside(many).values == tuple(part["Values"].split("\n")[:-1])
    assert not asked.judge(()).proved
    task = tasks.mending(sequential=one, distributed=many, accepts=asked.apply)
    found = repair(Scripted([part["Reply"]]), task)
    assert isinstance(found, Read), found
    assert asked.judge(found.value.edits).proved
    assert not found.corrected


def test_the_prompt_of_a_repair_shows_both_programs_and_how_they_meet() -> None:
    model = Scripted([tasks.repaired()])
    repair(model, tasks.mending())
    user = model.heard[0][1]["content"]
    assert "%x: f32[4, 8]" in user
    assert "%x: f32[4, 4]" in user
    assert "%y: %y as [4, 6] partial(sum)@tp" in user


def test_the_system_part_of_a_prompt_is_the_same_for_every_question() -> None:
    model = Scripted([tasks.repaired(), tasks.repaired()])
    repair(model, tasks.mending())
    repair(model, tasks.mending(finding="another", most=2))
    (one, first), (two, second) = ([m["content"] for m in asked] for asked in model.heard)
    assert one == two
    assert first != second


def test_a_long_program_is_cut_around_the_first_broken_relation() -> None:
    lines = [f"  %r{i} = relu %{'y' if i == 0 else f'r{i - 1}'}" for i in range(400)]
    one = parse_text(
        "program long\n  input %x: f32[4, 8]\n  param %w: f32[8, 6]\n  %y = mm %x, %w\n"
        + "\n".join(lines) + "\n  return %r399"
    )  # fmt: skip
    text = to_text(one).replace("program long", "program long mesh(tp=2)")
    many = parse_text(text.replace("%r200 = relu", "%r200 = neg"))
    question = Question(one, many, read_contract("", one, many).contract)
    beside = question.prefixes.beside(many)
    model = Scripted([tasks.repaired(tasks.edit(edit="drop", value="r3", op="", attrs=""))])
    repair(
        model,
        tasks.mending(
            sequential=one, distributed=many, accepts=question.apply, beside=beside, budget=4000
        ),
    )
    user = model.heard[0][1]["content"]
    assert (beside.broken, beside.theirs) == ("r200", "r199")
    assert "%r200 = relu %r199" in user
    assert "%r200 = neg %r199" in user
    assert "lines left out" in user
    assert len(user) < 16_000


def test_the_worked_example_of_a_translation_computes_its_source() -> None:
    model = Scripted([tasks.translated()])
    translate(model, tasks.translation())
    system = model.heard[0][0]["content"]
    example = system[system.index("Worked example.") :].split("Reply:\n")[1]
    task = tasks.translation(
        name="rows",
        inputs=(
            Input("x", TensorType((2, 4), "f32"), "input", "x"),
            Input("w", TensorType((3, 4), "f32"), "param", "w"),
        ),
    )
    found = translate(Scripted([example.split("\n")[0]]), task)
    assert isinstance(found, Read), found
    program = found.value.program
    assert program is not None
    rng = np.random.default_rng(0)
    seen: set[bool] = set()
    for _ in range(8):
        x, w = rng.standard_normal((2, 4)), rng.standard_normal((3, 4))
        h = x @ w.T
        expected = np.stack([r if r.sum() > 0.5 else r * r for r in h])
        seen |= {bool(r.sum() > 0.5) for r in h}
        got = evaluate(program, {"x": x, "w": w})
        np.testing.assert_allclose(np.asarray(got[program.outputs[0].value]).squeeze(), expected)
    assert seen == {True, False}
