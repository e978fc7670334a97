"""docs/chat.md says what the commands are and what a session shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import chat_page as page
from shardproof.agent.chat.registry import registered

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(ROOT)
    return page.PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date(written: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del home
    monkeypatch.chdir(ROOT)
    assert page.table() in written, "out of date: make docs"
    shown = page.transcript(page.REFUTED, sorted(page.PROGRAMS.glob("*.txt")))
    assert shown in written, "out of date: make docs"
    fixed = page.TEMPLATE.read_text().split("{{")[0]
    assert written.startswith(fixed), "out of date: make docs"


def test_commands_that_the_page_names_exist(written: str) -> None:
    import re

    named = set(re.findall(r"`/([a-z-]+)", written))
    assert named <= set(registered())
