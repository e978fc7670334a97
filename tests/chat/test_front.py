"""The front without a terminal: what Tab offers, words out of a stream, what reaches the screen."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console

from shardproof.agent.chat.commands.session import overview
from shardproof.agent.chat.registry import registered
from shardproof.agent.chat.state import Model
from shardproof.agent.chat.terminal.completion import Completions
from shardproof.agent.chat.terminal.screen import Screen
from shardproof.agent.chat.words import Spoken
from shardproof.agent.run import events
from tests.chat.conftest import ROOT, Begin


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/ver", {"/verify"}),
        ("/why", {"/why-not"}),
        ("/mesh dp", {"dp=2,tp=2"}),
        ("/load model.py", {"model.py:Net"}),
        ("/load model.py:N", {"model.py:Net"}),
        ("/load hf:LlamaForCa", {"hf:LlamaForCausalLM"}),
        ("/price dp", {"dp=2,tp=2"}),
        ("/load sequential on", {"e.txt"}),
        ("/load x.py:X --ba", {"--batch"}),
        ("/help why", {"why-not"}),
        ("/settings ru", {"run"}),
        ("/pin up col", {"column"}),
        ("hello /ver", set[str]()),
        ("/frob x", set[str]()),
    ],
)
def test_tab_offers_what_fits(typed: str, offered: set[str], begin: Begin, home: Path) -> None:
    (home / "model.py").write_text("import nothing_that_exists\nclass Net:\n    pass\n")
    found = Completions(begin().session).get_completions(Document(typed), CompleteEvent())
    assert {c.text for c in found} == offered


def test_every_first_word_is_offered(begin: Begin) -> None:
    found = Completions(begin().session).get_completions(Document("/"), CompleteEvent())
    assert len([c.text for c in found]) >= 29


def test_layers_of_a_repeated_block_are_offered_as_one(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begin().session
    paths = ["wte", "h", "h.0", "h.0.mlp", "h.0.mlp.up", "h.1", "h.1.mlp", "h.1.mlp.up"]
    session.change(model=Model(target="m.py:M", captured="", facts=""))
    facts = SimpleNamespace(facts=SimpleNamespace(modules=paths))
    monkeypatch.setattr(session.workspace, "captured", lambda: facts)
    found = Completions(session).get_completions(Document("/pin h.*.m"), CompleteEvent())
    assert [c.text for c in found] == ["h.*.mlp", "h.*.mlp.up"]


TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=30)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TEXT, TEXT, st.lists(st.integers(1, 9), max_size=30), st.booleans())
def test_words_come_out_of_a_reply_however_it_is_cut(
    answer: str, reason: str, cuts: list[int], escaped: bool
) -> None:
    data = {"answer": answer, "proposals": [{"reason": reason, "n": 3}]}
    text = "```json\n" + json.dumps(data, ensure_ascii=escaped) + "\n```"
    told: list[str] = []
    spoken = Spoken(told.append)
    while text:
        size = cuts.pop() if cuts else 5
        spoken.feed(text[:size])
        text = text[size:]
    assert "".join(told) == answer
    assert spoken.told == "".join(told)


def _screen() -> tuple[Screen, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=200, highlight=False, soft_wrap=True)
    return Screen(console), file


def test_nothing_of_others_steers_the_terminal() -> None:
    screen, file = _screen()
    nasty = "\x1b]52;c;b3duZWQ=\x07\x1b[2J[red]x[/red]\u202e\u200b:smile:"
    for event in (
        events.Said(by="model", text=nasty),
        events.Said(text=nasty),
        events.Problem(kind="input", message=nasty, where=nasty),
        events.VerdictReached(verdict="refuted", message=nasty, where=nasty),
        events.PatchShown(diff=f"+{nasty}", standing=nasty),
        events.PhaseCompleted(phase=nasty, seconds=1.0, summary=nasty),
        events.Warned(message=nasty),
        events.RepairCandidate(round=1, edits=[nasty], tactics=[], verdict="proved", holds=nasty),
    ):
        screen.show(event)
    screen.hear(json.dumps({"answer": nasty}))
    shown = file.getvalue()
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown
    assert shown.count("[red]x[/red]:smile:") >= 10


PROSE = "The bias is added on every rank before the sum, so it comes twice, which is wrong. " * 4
TABLE = "h.*.attn.c_attn  fused_column(3)  weight S(0) in 3 parts@tp, bias S(0) in 3 parts@tp"


@pytest.mark.parametrize("width", range(60, 201, 20))
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_lines_are_broken_between_words(width: int, cut: int) -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file, force_terminal=True, width=width, no_color=True))
    screen.quiet = True
    screen.show(events.ModelAsked(form="conversation", question="q"))
    for at in range(0, len(PROSE), cut):
        screen.hear(PROSE[at : at + cut])
    screen.show(events.Said(by="model", text=PROSE.strip()))
    for event in (
        events.Said(text=TABLE),
        events.VerdictReached(verdict="refuted", message=PROSE),
        events.Problem(kind="input", message=PROSE, where="here", hint=TABLE),
        events.Said(text=overview()),
    ):
        screen.show(event)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    lines = shown.split("\n")
    assert max(map(len, lines)) <= width
    assert {w for line in lines for w in line.split()} >= set(f"{PROSE} {TABLE}".split())
    assert shown.count("comes") == 12


def test_help_fits_a_small_terminal(begin: Begin) -> None:
    file = io.StringIO()
    screen = Screen(Console(file=file, force_terminal=True, width=80))
    screen.show(events.Said(text=overview()))
    assert file.getvalue().count("\n") <= 22
    talk = begin()
    talk("/help all")
    assert all(f"/{name} " in talk.said for name in registered())


def test_what_was_streamed_is_not_said_twice() -> None:
    screen, file = _screen()
    screen.quiet = True
    screen.show(events.ModelAsked(form="conversation", question="q"))
    for piece in ('{"answer": "All', " is ", 'well.", "proposals": []}'):
        screen.hear(piece)
    screen.show(events.ModelAnswered(question="q", answer="Completion", calls=1, model="m"))
    screen.show(events.Said(by="model", text="All is well."))
    assert file.getvalue().count("well.") == 1
    screen.show(events.Said(by="model", text="Another."))
    assert "Another." in file.getvalue()


def test_examples_of_the_help_name_files_that_exist() -> None:
    for word in " ".join(registered()["load"].examples).split():
        if word.startswith("examples/"):
            assert (ROOT / word.partition(":")[0]).is_file()
