"""Docs and help texts use the field's words; those of an earlier dialect do not come back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from shardproof.agent.chat.registry import registered
from shardproof.agent.cli.main import app

RETIRED = {
    r"roads?": "pipeline",
    r"desk": "workspace",
    r"peels?": "loop peeling",
    r"mend(s|ed|ing)?": "repair, fix",
    r"twins?": "right version, counterpart",
    r"wish(es|ed)?": "constraint",
    r"told|tells?": "say, print, show, distinguish",
    r"alike": "equal, the same, replicated",
    r"came by": "found",
    r"dearer": "more expensive",
    r"(held|hold) to": "compared with, tested against",
    r"marks": "sentinel labels",
    r"rungs?": "format tier",
    r"at its word": "as it is",
    r"whole way": "end to end",
}
"""Words of the dialect, as patterns of whole words, and what to write instead."""
ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests/README.md"]
PAGES += sorted((ROOT / "docs").glob("*.md"))
COMMANDS = typer.main.get_command(app)


def found(text: str) -> list[str]:
    """Each retired word in a text, with its line and what to write."""
    out: list[str] = []
    for line in text.splitlines():
        prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
        for pattern, better in RETIRED.items():
            if re.search(rf"(?<![\w-])({pattern})(?![\w-])", prose, re.IGNORECASE):
                out.append(f"{better!r} instead of {pattern!r}: {line.strip()}")
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_field_s_words(page: Path) -> None:
    assert found(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", sorted(cast(Any, COMMANDS).commands))
def test_help_uses_the_field_s_words(name: str) -> None:
    command = cast(Any, COMMANDS).commands[name]
    narrow: dict[str, Any] = {"resilient_parsing": True, "terminal_width": 80}
    with command.make_context(name, [], **narrow) as context:
        text = command.get_help(context)
    assert found(text) == []
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_list_of_commands_has_whole_sentences() -> None:
    with COMMANDS.make_context("", [], resilient_parsing=True, terminal_width=80) as context:
        lines = COMMANDS.get_help(context).splitlines()
    assert [line for line in lines[1:] if line.endswith("...")] == []


def test_help_of_sessions_uses_the_field_s_words() -> None:
    texts = [found(f"{c.summary}\n{c.__doc__ or ''}") for c in registered().values()]
    assert [t for t in texts if t] == []


def test_words_are_matched_whole_and_not_in_code() -> None:
    assert found("the road of a patch") != []
    assert found("a broad roadster, `kernel/peel.py`, [x](road.md)") == []
    assert found("loop peeling") == []
