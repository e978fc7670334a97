"""Commands on programs in text form: what each step says, changes, refuses and leaves alone."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest

from shardproof.agent.chat import journal, registry
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from tests.chat.conftest import LOAD, PROGRAMS, Begin


def test_programs_are_refuted_stepped_through_mended_and_written(begin: Begin, home: Path) -> None:
    talk = begin()
    before = (home / "wrong.txt").read_bytes()
    assert talk(LOAD).outcome.exit is Exit.PROVED
    assert talk("/verify").outcome.verdict == "refuted"
    assert "mlp_tp.py:23" in talk.heard.of(events.VerdictReached)[-1].where

    talk("/cex")
    assert "adds a partial sum" in talk.said
    talk("/cex")
    assert "rank tp=0" in talk.said
    assert "got" not in talk.said.split("rank")[0]
    assert "one device has" in talk.said
    talk("/cex")
    assert "rank tp=1" in talk.said
    assert "the last step" in talk.said
    talk("/cex first")
    assert talk.said.startswith("1 of 3")

    assert talk("/repair").outcome.verdict == "proved"
    assert talk("/diff").outcome.exit is Exit.PROVED
    assert (home / "wrong.txt").read_bytes() == before, "nothing is written before /apply"
    assert talk("/apply").outcome.exit is Exit.INPUT, "nobody is there to say yes"
    assert (home / "wrong.txt").read_bytes() == before
    assert talk("/apply --yes").outcome.exit is Exit.PROVED
    after = (home / "wrong.txt").read_bytes()
    assert after != before
    assert after.startswith(b"# The bias is added before"), "comments stay"
    assert talk(LOAD).outcome.exit is Exit.PROVED
    assert talk("/verify").outcome.verdict == "proved"
    talk("/undo")
    assert (home / "wrong.txt").read_bytes() == before
    talk("/redo")
    assert (home / "wrong.txt").read_bytes() == after


def test_a_file_that_changed_is_not_written_over(begin: Begin, home: Path) -> None:
    talk = begin()
    talk(LOAD)
    talk("/repair")
    edited = (home / "wrong.txt").read_text() + "# mine\n"
    (home / "wrong.txt").write_text(edited)
    assert talk("/apply --yes").outcome.exit is Exit.INPUT
    assert (home / "wrong.txt").read_text() == edited
    talk(LOAD)
    talk("/repair")
    talk("/apply --yes")
    (home / "wrong.txt").write_text("# something else\n")
    assert talk("/undo").outcome.exit is Exit.INPUT
    assert (home / "wrong.txt").read_text() == "# something else\n"


def test_a_file_in_a_session_is_the_file_as_it_was_read(begin: Begin, home: Path) -> None:
    talk = begin()
    talk(LOAD)
    (home / "wrong.txt").write_text((home / "right.txt").read_text())
    assert talk("/verify").outcome.verdict == "refuted"
    talk("/load distributed wrong.txt")
    assert talk("/verify").outcome.verdict == "proved"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/frob", "no command /frob"),
        ("/verfy", "/verify"),
        ("/unpin up", "try /pin --drop"),
        ("/translate", "nothing was refused"),
        ("/translate nothing.py:X", "cannot be read"),
        ("/plan now", "words that mean nothing here"),
        ("/candidates -3", "no such count"),
        ("/settings repair_seconds 0", "no such value"),
        ("/load \udcff\udcfe", "names no model"),
        ("/load", "nothing to load"),
        ("/load nothing", "names no model"),
        ("/load net.py:Net", "not found"),
        ("/load sequential", "by kind and file"),
        ("/load sequential missing.txt", "cannot be read"),
        ("/load sequential contract.txt", "contract.txt:1"),
        ('/load "open', "No closing quotation"),
        ("/load x.py:X --batch none", "a whole number of at least 1"),
        ("/load x.py:X --frob", "no option --frob"),
        ("/load x.py:X --batch", "needs a value"),
        ("/mesh tp", "cannot read the mesh dim"),
        ("/mesh pp=2", "only tp and dp are planned"),
        ("/plan", "no model is loaded"),
        ("/candidates", "there is no plan"),
        ("/why-not up", "which module, and which style?"),
        ("/why-not up row", "there is no plan"),
        ("/pin nothing", "cannot be read"),
        ("/constrain time=3", "cannot be read"),
        ("/ban --drop up", "no such ban"),
        ("/verify", "nothing is loaded"),
        ("/cex", "nothing is loaded"),
        ("/explain", "nothing is loaded"),
        ("/repair --edits none", "nothing is loaded"),
        ("/diff", "no model is loaded"),
        ("/apply", "no model is loaded"),
        ("/undo", "nothing to undo"),
        ("/report", "no model is loaded"),
        ("/budget calls=none", "no such limit"),
        ("/settings frob 3", "no such setting"),
        ("/settings run sometimes", "Input should be"),
        ("/settings hardware nothing", "nothing"),
        ("/resume nothing", "no such session"),
        ("/save one.txt", "cannot be written"),
        ("/prompt", "for which input?"),
        ("/help frob", "no command /frob"),
        ("x" * 200_001, "too long"),
    ],
)
def test_what_cannot_be_done_is_one_located_error(line: str, said: str, begin: Begin) -> None:
    talk = begin()
    done = talk(line)
    problem = talk.heard.problem
    assert done.outcome.exit is Exit.INPUT, problem
    assert problem.kind == "input"
    everything = (problem.message, problem.where, problem.expected, problem.got)
    assert said in " ".join((*everything, f"try {problem.hint}"))
    last = talk.heard.seen[-1]
    assert isinstance(last, events.StepCompleted)
    assert (last.changes, last.exit_code) == ({}, 2)


def test_a_step_that_fails_changes_nothing(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    talk("/verify")
    before = talk.session.state
    assert talk("/load sequential one.txt distributed contract.txt").outcome.exit is Exit.INPUT
    assert talk.session.state == before
    assert talk("/verify").outcome.verdict == "refuted"


def test_a_fault_of_ours_ends_the_step_and_not_the_session(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardproof.agent.chat import repairs as repairing

    talk = begin()
    talk(LOAD)
    monkeypatch.setattr(repairing, "fix", lambda *_: 1 / 0)
    assert talk("/repair").outcome.exit is Exit.FAULT
    assert "ZeroDivisionError" in Path(talk.heard.problem.traceback_file).read_text()
    assert talk("/verify").outcome.verdict == "refuted"


def test_every_command_is_in_the_help_with_an_example(begin: Begin) -> None:
    talk = begin()
    talk("/help")
    overview = talk.said
    for name, command in registry.registered().items():
        assert f"/{name} " in overview.replace("\n", " ")
        assert command.summary.endswith(".")
        assert command.examples, name
        assert all(e.split()[0] == f"/{name}" for e in command.examples)
        for example in command.examples:
            registry.split(command, example.partition(" ")[2])
        talk(f"/help {name}")
        assert registry.usage(command) in talk.said


def test_explaining_a_value_and_naming_near_ones(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    talk("/explain %p")
    assert "partial(sum)@tp" in talk.said
    assert talk("/explain %pp").outcome.exit is Exit.INPUT
    assert "%p" in talk.heard.problem.expected


def test_constraints_and_settings_stay(begin: Begin) -> None:
    talk = begin()
    talk("/pin up column")
    talk("/ban down=row")
    talk("/constrain memory=80GB")
    talk("/settings run never")
    talk("/settings repair-seconds 5")
    talk("/mesh dp=2,tp=4")
    again = begin(resume=_closed(talk))
    again("/settings")
    for part in ("up column", "down=row", "memory=80GB", "never", "5.0", "dp=2,tp=4"):
        assert part in again.said or part.replace(" ", "=") in again.said
    again("/ban --drop down")
    again("/ban")
    assert "down" not in again.said
    assert "pin up=column" in again.said


def _closed(talk: object) -> Path:
    session = talk.session  # type: ignore[attr-defined]
    session.close()
    return session.journal.folder


def test_the_stream_is_the_journal(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    talk("/verify")
    folder = _closed(talk)
    lines = (folder / "journal.jsonl").read_text().splitlines()
    assert [events.parse(line) for line in lines] == talk.heard.seen
    assert json.loads(lines[-1])["event"] == "run.completed"
    assert PROGRAMS in lines[2]
    for path in (folder, *folder.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0 or path.parent.name == "changes", path


def test_ctrl_c_while_a_step_is_written_waits_until_it_is(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = begin()
    show = talk.session.journal.show

    def interrupted(event: events.Event) -> None:
        if isinstance(event, events.StepCompleted):
            os.kill(os.getpid(), signal.SIGINT)
        show(event)

    monkeypatch.setattr(talk.session.journal, "show", interrupted)
    with pytest.raises(KeyboardInterrupt):
        talk("/mesh tp=2")
    assert talk.session.ended == talk.session.step == 1
    assert journal.read(talk.session.journal.path).state.mesh == {"tp": 2}


def test_a_disk_that_is_full_is_one_error_and_loses_that_step_alone(begin: Begin) -> None:
    talk = begin()
    talk("/mesh tp=2")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = talk.session.journal.path.stat().st_size
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, limits[1]))
    try:
        with pytest.raises(InputError, match="cannot be kept any longer"):
            talk("/mesh tp=4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    again = begin(resume=talk.session.journal.folder)
    assert again.heard.of(events.SessionOpened)[0].lost == "/mesh tp=4"
    assert again.session.state.mesh == {"tp": 2}


def test_an_interrupted_step_changes_nothing_and_the_session_goes_on(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardproof.agent.chat.commands import subject

    talk = begin()
    talk(LOAD)
    before = talk.session.state
    monkeypatch.setattr(subject, "_mesh_line", lambda _: os.kill(os.getpid(), signal.SIGINT))
    assert talk("/mesh tp=2").outcome.exit is Exit.INTERRUPTED
    assert talk.session.state == before
    monkeypatch.undo()
    assert talk("/verify").outcome.verdict == "refuted"


@pytest.mark.parametrize("line", ["help", "?", "/", "/?", "/h"])
def test_help_is_found_without_knowing_it(line: str, begin: Begin) -> None:
    talk = begin()
    assert talk(line).outcome.exit is Exit.PROVED
    assert "/load " in talk.said


@pytest.mark.parametrize("line", ["quit", "exit", "q", "/exit", "/q"])
def test_words_that_leave(line: str, begin: Begin) -> None:
    assert begin()(line).quit


def test_a_command_without_its_slash_is_told_how_it_is_written(begin: Begin) -> None:
    talk = begin()
    talk("load mlp.py:MLP")
    assert "/load mlp.py:MLP" in talk.heard.problem.hint


def test_after_a_repair_was_written_verify_is_about_the_file_as_it_is(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    talk("/repair")
    for line, verdict in (("/apply --yes", "proved"), ("/undo", "refuted"), ("/redo", "proved")):
        talk(line)
        assert "/verify" in talk.said
        assert talk("/verify").outcome.verdict == verdict
