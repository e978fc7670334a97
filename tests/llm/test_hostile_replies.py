"""Replies of a model that obeys others: nothing moves but a proposal."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from shardproof.agent.llm import proposing, repairing, translating
from shardproof.agent.llm.dialogue import Malformed, Read
from shardproof.agent.llm.explaining import explain
from shardproof.agent.llm.proposing import propose
from shardproof.agent.llm.repairing import repair
from shardproof.agent.llm.replies import FORMS
from shardproof.agent.llm.translating import translate
from shardproof.verifier.text.parser import to_text
from tests.llm import tasks
from tests.llm.scripted import Scripted

STOLEN = [
    {"contract": "input x tp=R"},
    {"specification": tasks.PROGRAM},
    {"S": tasks.PROGRAM},
    {"sequential": tasks.PROGRAM},
    {"rules": ["x = y"]},
    {"assume": ["all inputs are zero"]},
    {"verdict": "proved"},
    {"file": "/etc/passwd", "content": "x"},
    {"path": "../../.bashrc"},
    {"command": "rm -rf /"},
    {"tool_calls": [{"name": "bash"}]},
    {"__class__": "os.system"},
]


@pytest.mark.parametrize("extra", STOLEN, ids=lambda e: next(iter(e)))
def test_a_reply_with_more_than_its_fields_is_thrown_away(extra: dict[str, object]) -> None:
    roles = {
        "translate": (lambda m: translate(m, tasks.translation()), tasks.translated),
        "propose": (lambda m: propose(m, tasks.planning()), tasks.proposed),
        "repair": (lambda m: repair(m, tasks.mending()), tasks.repaired),
        "explain": (lambda m: explain(m, tasks.judged()), tasks.explained),
    }
    for ask, reply in roles.values():
        bad = json.dumps({**json.loads(reply()), **extra})
        found = ask(Scripted([bad, bad]))
        assert isinstance(found, Malformed)
        assert "no such field" in str(found)
    inner = [
        (lambda m: repair(m, tasks.mending()), tasks.repaired(tasks.edit(**extra))),
        (lambda m: propose(m, tasks.planning()), tasks.proposed(**extra)),
    ]
    for ask, bad in inner:
        assert isinstance(ask(Scripted([bad, bad])), Malformed)


def _fields(form: type[BaseModel]) -> Iterator[str]:
    for name, field in form.model_fields.items():
        yield name
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _fields(part)


def test_no_reply_has_a_field_for_what_a_model_may_not_decide() -> None:
    fields = {name for form in FORMS for name in _fields(form)}
    assert fields == {
        "program", "unsupported", "line", "why",
        "proposals", "tactic", "stream", "placements", "module", "style", "reason",
        "diagnosis", "edits", "edit", "value", "op", "attrs", "operands", "index", "uses", "where",
        "summary", "cause", "advice", "answer",
        "commands",  # read by the registry: tests/chat/test_acting.py
        "configurations", "fix",  # read as `--fix` is: tests/llm/test_configuring.py
    }  # fmt: skip


def test_what_comes_out_of_a_role_holds_no_specification() -> None:
    """A repair gives a program of the ranks, a proposal a point, and nothing else."""
    assert [f.name for f in dataclasses.fields(repairing.Repaired)] == [
        "program", "edits", "diagnosis", "text",
    ]  # fmt: skip
    assert [f.name for f in dataclasses.fields(proposing.Proposed)] == ["point", "tactic", "reason"]
    assert [f.name for f in dataclasses.fields(translating.Translated)] == [
        "program", "unsupported", "text",
    ]  # fmt: skip


REWIRE = {"edit": "rewire", "op": "", "attrs": "", "operands": ["x"]}
SMUGGLED = {
    "a program for an op": {"op": "program mlp\n  return"},
    "a contract for a value": {"value": "contract"},
    "another input for attrs": {"attrs": "}\n input %z: f32[1] \n{"},
    "a path for attrs": {"attrs": 'dim="/etc/passwd"'},
    "code for attrs": {"attrs": "__import__('os').system('id')"},
    "a shell word for an op": {"op": "$(id)"},
    "an escape for an op": {"op": "\x1b[31mall_reduce"},
    "a huge number": {"op": "mul_scalar", "attrs": "value=1" + "0" * 5000},
    "a number for ever": {"op": "mul_scalar", "attrs": "value=1e999999999"},
    "a division by nought": {"op": "mul_scalar", "attrs": "value=1/0"},
    "not a number": {"op": "mul_scalar", "attrs": "value=nan"},
    "a huge position": {
        "edit": "rewire",
        "op": "",
        "attrs": "",
        "operands": ["x"],
        "index": 10**30,
    },
    "a position below nought": {
        "edit": "rewire",
        "op": "",
        "attrs": "",
        "operands": ["x"],
        "index": -1,
    },
    "a huge extent": {"op": "expand", "attrs": f"shape=[{2**61}, {2**61}]"},
}


@pytest.mark.parametrize("case", SMUGGLED)
def test_smuggled_values_are_located_errors(case: str) -> None:
    bad = tasks.repaired(tasks.edit(**SMUGGLED[case]))
    found = repair(Scripted([bad, bad]), tasks.mending())
    assert isinstance(found, Malformed), found
    assert str(found.problems[0]).startswith("edits[0]")
    assert "\x1b" not in str(found)
    assert len(str(found)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        '{"diagnosis": "' + "x" * 500_000,
        '{"diagnosis": NaN, "edits": []}',
        '{"diagnosis": "\\ud800", "edits": []}',
        "\x00",
        "```json\n" * 10_000,
        "<think>" * 10_000,
    ],
    ids=["lists", "objects", "long", "NaN", "surrogate", "zero", "fences", "thoughts"],
)
def test_hostile_json_is_a_malformed_reply(text: str) -> None:
    found = repair(Scripted([text, text]), tasks.mending())
    assert isinstance(found, Malformed)


def test_the_model_cannot_touch_inputs_and_outputs() -> None:
    """Whatever edits are accepted, the program keeps its interface, and no reply holds a S."""
    for change in (
        {"value": "x"},
        {"value": "z"},
        {"edit": "drop", "value": "z", "op": "", "attrs": ""},
    ):
        found = repair(Scripted([tasks.repaired(tasks.edit(**change))]), tasks.mending())
        assert isinstance(found, Read)
        edited = found.value.program
        assert edited.inputs == tasks.BROKEN.inputs
        assert [(o.role, o.path) for o in edited.outputs] == [("output", "z")]
        assert edited.mesh == tasks.BROKEN.mesh
    names = {f.name for f in dataclasses.fields(repairing.Repaired)}
    assert names == {"program", "edits", "diagnosis", "text"}


def test_files_a_model_names_are_not_taken_over() -> None:
    program = tasks.PROGRAM.replace("@ -:8", "@ /etc/passwd:8 evil | rm -rf /").replace(
        "@ -:9", "@ ../x.py:99999"
    )
    found = translate(Scripted([tasks.translated(program)]), tasks.translation())
    assert isinstance(found, Read)
    assert found.value.program is not None
    assert "passwd" not in to_text(found.value.program)
    assert "evil" not in to_text(found.value.program)
    assert [n.source.line for n in found.value.program.nodes] == [8, 0]
