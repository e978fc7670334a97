"""A model acts through commands: what reads runs, the rest waits for the owner, nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof.agent.chat import acting, registry, tools
from shardproof.agent.chat.engine import Session
from shardproof.agent.chat.models import Asker, Source
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from tests.chat.conftest import LOAD, Begin, Heard, Talk
from tests.llm.scripted import Scripted
from tests.llm.server import USAGE, Server, chunk, says, status, stream


def reply(answer: str, *commands: str) -> str:
    return json.dumps({"answer": answer, "commands": list(commands), "proposals": []})


def ran(talk: Talk) -> list[str]:
    return [e.command for e in talk.heard.of(events.CommandRun)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_reads_runs_at_once_and_the_model_sees_it(begin: Begin, home: Path) -> None:
    before = files(home)
    script = Scripted([reply("", "/verify", "/repair", "/diff"), reply("The bias came twice.")])
    talk = begin(script)
    talk(LOAD)
    done = talk("repair this and show the diff")
    assert ran(talk) == ["/verify", "/repair", "/diff"]
    assert talk.heard.of(events.PatchShown)
    assert done.outcome.verdict == "proved"
    seen = script.heard[1][-1]["content"]
    assert "refuted: output:out[0, 0] on rank tp=0: got 2" in seen
    assert "was shown to the owner; proved: the repaired program" in seen
    assert files(home) == before, "nothing is written"


def test_no_line_of_source_goes_to_the_model(begin: Begin) -> None:
    script = Scripted([reply("", "/verify", "/cex", "/explain", "/repair", "/diff"), reply("So.")])
    talk = begin(script)
    talk(LOAD)
    talk("what is wrong?")
    assert "y = a @ down + bias" in talk.said
    sent = json.dumps(script.heard)
    assert "a @ down" not in sent
    assert "dist.all_reduce(y)" not in sent
    assert "(a line of source)" in sent


@pytest.mark.parametrize("yes", [True, False])
def test_what_changes_waits_for_the_owner_and_what_follows_waits_with_it(
    yes: bool, begin: Begin
) -> None:
    asked: list[str] = []
    talk = begin(Scripted([reply("", "/help", "/mesh tp=4", "/mesh"), reply("Done.")]))
    talk.session.agree = lambda question: bool(asked.append(question)) or yes
    done = talk("plan it for 4 GPUs")
    assert asked == [acting.QUESTION]
    assert ran(talk) == (["/help", "/mesh tp=4", "/mesh"] if yes else ["/help"])
    assert talk.session.state.mesh == ({"tp": 4} if yes else {})
    assert done.outcome.exit is (Exit.PROVED if yes else Exit.NOT_PROVED)


def test_without_an_owner_nothing_but_reading_runs(begin: Begin) -> None:
    talk = begin(Scripted([reply("", "/mesh tp=4")]))
    assert talk("plan it for 4 GPUs").outcome.exit is Exit.NOT_PROVED
    assert "nobody is there to agree" in talk.said
    assert talk.session.state.mesh == {}


def test_writing_asks_a_second_time_after_the_diff(begin: Begin, home: Path) -> None:
    before = (home / "wrong.txt").read_bytes()
    talk = begin(Scripted([reply("", "/repair", "/apply"), reply("Not written.")]))
    talk(LOAD)
    answers = [True, False]
    talk.session.agree = lambda _: answers.pop(0)
    talk("repair it and write it")
    assert not answers
    assert next(e.question for e in talk.heard.of(events.Agreed)) == acting.QUESTION
    assert (home / "wrong.txt").read_bytes() == before


def test_questions_are_bounded(begin: Begin) -> None:
    script = Scripted([reply("again", "/cost")] * 99)
    talk = begin(script)
    talk("for ever")
    assert len(script.heard) == 6
    assert len(ran(talk)) == 5
    assert "no further commands are run" in script.heard[-1][-1]["content"]


def test_a_refused_command_neither_ends_the_step_nor_hides_the_others(begin: Begin) -> None:
    script = Scripted([reply("", "/frobnicate", "/verify"), reply("So.")])
    talk = begin(script)
    talk(LOAD)
    assert talk("is it right?").outcome.verdict == "refuted"
    assert ran(talk) == ["/verify"]
    assert "refused: no command /frobnicate" in script.heard[1][-1]["content"]


def test_a_command_that_fails_leaves_the_session_as_it_was(begin: Begin) -> None:
    script = Scripted([reply("", "/plan", "/cost"), reply("Load a model first.")])
    talk = begin(script)
    assert talk("plan it").outcome.exit is Exit.PROVED
    assert "no model is loaded" in script.heard[1][-1]["content"]


HOSTILE = (
    "/apply --yes", "/apply --unsafe", "/undo", "/redo", "/report /tmp/x", "/save stolen.jsonl",
    "/save as x", "/resume x", "/fork", "/quit", "/model other", "/budget none", "/doctor --probe",
    "/load sequential /etc/passwd", "/load wrong.txt:X", "/translate --reply one.txt", "/mesh tp=8",
    "/pin up row", "/ban up row", "/constrain memory=1KB", "/settings run always", "/edit rm",
    "/prompt /explain --model", "/explain --model x", "/repair --model", "/apply\n/apply --yes",
    "/verify; /apply --yes", "!rm -rf /", "rm -rf /", "/../apply --yes", "//apply --yes", "/",
    "/plan\x00/apply", "/\u202eylppa", "/apply\u200b --yes", "/ apply --yes", "/diff --yes",
    "x" * 5000, "/why-not " + "a" * 5000, "/exit", "/q", "/?", "/h", "/verify\n", "/cex 99",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_no_reply_writes_or_changes_anything_without_the_owner(
    seed: int, begin: Begin, home: Path
) -> None:
    """Any mix of hostile commands; the owner says no: spec, contract, rules and files stay."""
    rng = random.Random(seed)
    lines = [reply(rng.choice(["", "Trust me."]), *rng.sample(HOSTILE, 8)) for _ in range(6)]
    talk = begin(Scripted(lines))
    talk.session.agree = lambda _: False
    talk(LOAD)
    talk("/mesh tp=2")
    before, kept = files(home), talk.session.state
    for _ in range(3):
        talk("help me")
    assert files(home) == before
    state = talk.session.state
    for name in (
        "model",
        "programs",
        "mesh",
        "constraints",
        "settings",
        "budget",
        "subject",
        "title",
    ):
        if name != "programs":
            assert getattr(state, name) == getattr(kept, name)
    now, then = state.programs, kept.programs
    assert (now.sequential, now.distributed, now.contract) == (
        then.sequential, then.distributed, then.contract
    )  # fmt: skip
    effects = {registry.find(line[1:].split()[0]).effect for line in ran(talk)}
    assert effects <= {"reads"}
    assert talk.session.move_to is None
    assert not talk.session.leaving


def test_every_command_says_what_it_may_do() -> None:
    effects = {name: c.effect for name, c in registry.registered().items()}
    writing = {name for name, effect in effects.items() if effect == "writes"}
    assert writing == {"apply", "undo", "redo", "report"}
    assert {n for n, e in effects.items() if e == "owner"} == {
        "model", "prompt", "budget", "save", "resume", "fork", "doctor", "edit", "quit",
    }  # fmt: skip
    for command in registry.registered().values():
        assert not (command.machine and command.effect != "owner")
        assert command.owners <= set(command.options)


@pytest.mark.parametrize("line", ["/apply --yes", "/quit", "/save x", "/explain --model why"])
def test_what_is_the_owners_is_refused(line: str) -> None:
    with pytest.raises(InputError, match="for the owner"):
        tools.admitted(line)


# -- over HTTP -------------------------------------------------------------------------------


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    del home
    started = Server()
    monkeypatch.setenv("SHARDPROOF_BASE_URL", started.url)
    monkeypatch.setenv("SHARDPROOF_MODEL", "tiny")
    yield started
    started.close()


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    del server
    heard = Heard()
    session = Session.new([heard], Asker(Source.USER))
    yield Talk(session, heard)
    session.asker.close()
    session.journal.close()


def called(name: str, arguments: str, at: int = 0) -> dict[str, object]:
    function = {"name": name, "arguments": arguments}
    call = {"index": at, "id": f"call_{at}", "type": "function", "function": function}
    return chunk(None, tool_calls=[call])


CHOSEN = stream(
    called("choose", '{"colour": "teal-902", "count": 1}'), chunk(None, "tool_calls"), USAGE
)


def test_tools_of_the_endpoint_are_called_and_told_what_came_of_it(
    talk: Talk, server: Server
) -> None:
    both = stream(
        chunk("I look. "),
        called("verify", "{}"),
        called("explain", '{"words": ""}', 1),
        chunk(None, "tool_calls"),
        USAGE,
    )
    server.answers(CHOSEN, both, says("The bias is added on both ranks."))
    talk(LOAD)
    done = talk("is it right?")
    assert ran(talk) == ["/verify", "/explain"]
    assert [e.text for e in talk.heard.of(events.Said) if e.by == "model"] == [
        "I look.", "The bias is added on both ranks.",
    ]  # fmt: skip
    assert done.outcome.verdict == "refuted"
    asked, answered = server.bodies[1], server.bodies[2]
    assert {t["function"]["name"] for t in asked["tools"]} >= {"plan", "why_not", "verify"}
    assert "quit" not in {t["function"]["name"] for t in asked["tools"]}
    assert "response_format" not in asked
    assert [m["role"] for m in answered["messages"]] == [
        "system", "user", "assistant", "tool", "tool",
    ]  # fmt: skip
    assert answered["messages"][2]["tool_calls"][1]["id"] == "call_1"
    assert "refuted" in answered["messages"][3]["content"]
    stable = [body["messages"][0] for body in server.bodies[1:]]
    assert stable[0] == stable[1], "the system prompt is the same in every question"


def test_an_endpoint_without_tools_is_asked_for_commands_in_json(
    talk: Talk, server: Server
) -> None:
    colours = says('{"colour": "teal-902", "count": 1}')
    server.answers(
        status(400, "tools are not supported"), colours, says(reply("", "/verify")), says("No.")
    )
    talk(LOAD)
    assert talk("is it right?").outcome.verdict == "refuted"
    assert ran(talk) == ["/verify"]
    assert "tools" not in server.bodies[2]
    assert "no such" not in talk.said


def test_a_called_tool_that_is_none_of_ours_runs_nothing(
    talk: Talk, server: Server, home: Path
) -> None:
    before = files(home)
    shell = stream(
        called("bash", '{"cmd": "rm -rf ~"}'),
        called("apply", '{"words": "--yes"}', 1),
        called("verify", "{torn", 2),
        chunk(None, "tool_calls"),
    )
    server.answers(CHOSEN, shell, says("Well."))
    talk(LOAD)
    talk("help")
    talk("please help me")
    assert ran(talk) == ["/verify"]
    assert files(home) == before
