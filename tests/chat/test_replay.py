"""A transcript runs again to the same events, without its model; a change of it is found."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from shardproof.agent.chat import replaying
from shardproof.agent.llm.answers import Failed, Trouble
from shardproof.agent.run import events
from shardproof.agent.run.errors import Exit, InputError
from shardproof.agent.run.run import Run
from tests.chat.conftest import LOAD, Begin, Heard
from tests.llm.scripted import Scripted


def _reply(answer: str) -> str:
    return json.dumps({"answer": answer, "proposals": []})


@pytest.fixture
def transcript(begin: Begin, tmp_path: Path) -> Path:
    """A session with a model, failures, an answer of the owner, and files that changed since."""
    failed = Failed(Trouble.SERVER, "status 500: no")
    talk = begin(Scripted([_reply("Both ranks add it."), "{no JSON", _reply("So."), failed]))
    talk.session.agree = lambda _: False
    for line in (
        LOAD,
        "/verify",
        "what is wrong?",
        "/cex",
        "/cex",
        "and then?",
        "and now?",
        "nothing more",
        "/cost",
        "/frob",
        "/repair",
        "/diff",
        "/apply",
        "/apply --yes",
        "/undo",
        "/doctor",
        "/settings",
    ):
        talk(line)
    talk.session.close()
    Path("wrong.txt").write_text("# gone\n")
    path = tmp_path / "t.jsonl"
    path.write_bytes(talk.session.journal.path.read_bytes())
    return path


def _replay(path: Path) -> tuple[Exit, str]:
    heard = Heard()
    outcome = replaying.replay(Run([heard]), path)
    found = [e for e in heard.seen if isinstance(e, events.VerdictReached)]
    return outcome.exit, found[-1].message if found else outcome.answer


def test_the_same_session_gives_the_same_events(transcript: Path) -> None:
    before = sorted(p.name for p in Path().iterdir())
    assert _replay(transcript) == (Exit.PROVED, "16 steps the same, 1 not run again")
    assert sorted(p.name for p in Path().iterdir()) == before, "it writes nothing here"
    assert Path("wrong.txt").read_text() == "# gone\n"


@pytest.mark.parametrize(
    ("was", "becomes", "step"),
    [
        ('"verdict":"refuted"', '"verdict":"proved"', "step 2"),
        ("rank tp=0", "rank tp=5", "step 2"),
        ("Both ranks add it.", "All is well.", "step 3"),
        ("So.", "Hm.", "step 6"),
        ("status 500", "status 501", "step 7"),
        ("%bias", "%up", "step 1"),
    ],
)
def test_a_changed_transcript_is_found_at_its_step(
    was: str, becomes: str, step: str, transcript: Path
) -> None:
    text = transcript.read_text()
    first = text.index('"event":"step.completed","step":1,')
    at = text.index(was, 0 if step == "step 1" else first)
    transcript.write_text(text[:at] + becomes + text[at + len(was) :])
    code, message = _replay(transcript)
    assert code is Exit.NOT_PROVED
    assert message.startswith(step)


def test_a_step_that_is_missing_or_added_is_found(transcript: Path) -> None:
    lines = transcript.read_text().splitlines(keepends=True)
    said = next(i for i, line in enumerate(lines) if '"event":"said"' in line)
    transcript.write_text("".join(lines[:said] + lines[said + 1 :]))
    assert _replay(transcript)[0] is Exit.NOT_PROVED
    transcript.write_text("".join([*lines[: said + 1], lines[said], *lines[said + 1 :]]))
    assert _replay(transcript)[0] is Exit.NOT_PROVED


def test_what_was_interrupted_or_lost_is_not_run_again(transcript: Path) -> None:
    text = transcript.read_text()
    last = text.rindex('{"schema_version":1', 0, text.index('"event":"step.started","step":5'))
    cut = text[: text.index("\n", last) + 1]
    transcript.write_text(cut)
    code, said = _replay(transcript)
    assert (code, said) == (Exit.PROVED, "4 steps the same, 1 not run again")


def test_a_session_that_was_resumed_and_forked_is_replayed(begin: Begin) -> None:
    talk = begin()
    talk(LOAD)
    talk("/verify")
    talk.session.close()
    again = begin(resume=talk.session.journal.folder)
    again("/cex")
    assert any(e.phase == "verify" for e in again.heard.of(events.PhaseStarted)), "made again"
    again("/fork")
    third = again.session.moved([again.heard])
    third.do("/repair")
    third.close()
    assert _replay(third.journal.path) == (Exit.PROVED, "4 steps the same, 1 not run again")


def test_what_an_interrupted_step_had_made_is_made_again(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shardproof.agent.chat import steps

    talk = begin()
    talk(LOAD)
    with monkeypatch.context() as patched:
        patched.setattr(steps, "of", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        assert talk("/cex").outcome.exit is Exit.INTERRUPTED
    talk("/cex")
    talk.session.close()
    said = "2 steps the same, 1 not run again"
    assert _replay(talk.session.journal.path) == (Exit.PROVED, said)


def test_a_transcript_cannot_write_outside(transcript: Path, tmp_path: Path) -> None:
    text = transcript.read_text().replace('"path":"one.txt"', '"path":"../../one.txt"')
    transcript.write_text(text)
    with pytest.raises(InputError, match="outside"):
        _replay(transcript)


def test_another_file_is_no_transcript(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"event": "nothing"}\n')
    with pytest.raises(InputError, match="not an event"):
        _replay(path)
    with pytest.raises(InputError, match="cannot be read"):
        _replay(tmp_path / "none.jsonl")
