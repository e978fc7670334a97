"""Pages and help texts keep within the limits of readable English, and each limit can fail."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from benchmarks import readability
from benchmarks.blocks import ROOT, block, replaced, without
from benchmarks.readability import PAGE, Text, faults, markdown, retired, too_long
from shardproof.agent.cli.main import app

COMMANDS = typer.main.get_command(app)


@pytest.mark.parametrize("page", readability.pages(), ids=lambda page: page.name)
def test_a_page_keeps_within_the_limits(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    limits = readability.CHANGES if page.name == "CHANGELOG.md" else PAGE
    assert faults(Text(name, markdown(page.read_text(encoding="utf-8"))), limits) == []


def test_help_texts_keep_within_the_limits() -> None:
    texts = list(readability.helps())
    assert [fault for text in texts for fault in faults(text, None)] == []
    together = tuple(s for text in texts for s in text.sentences)
    assert faults(Text("help texts", together), readability.HELP) == []


def test_all_pages_together_are_short() -> None:
    assert too_long(readability.counted()) == []


GOOD = "The checker reads a certificate. It replays each step.\n\n" * 6
BAD = {
    "expected 'pipeline', got 'road'": "The road of a patch is short.\n",
    "expected a subject with a noun": "What is proved rests on the rules.\n",
    "expected a sentence of at most 45 words, got 50": "word " * 49 + "end.\n",
    "expected a cell of at most 60 words, got 70": "| " + "word " * 70 + "|\n",
    "words a sentence on the mean": (("word " * 24).strip() + ". ").capitalize() * 40 + "\n",
    "words in 95 % of sentences": (("word " * 40).strip() + ". ").capitalize() * 3 + "\n",
    "of sentences in the passive": "The step is replayed by us. The file was never written.\n\n"
    * 4,
}


@pytest.mark.parametrize("expected", BAD)
def test_a_bad_page_fails_with_its_line(expected: str) -> None:
    assert faults(Text("page.md", markdown(GOOD)), PAGE) == []
    said = faults(Text("page.md", markdown(f"# Title\n\n{GOOD}{BAD[expected]}")), PAGE)
    assert any(expected in line for line in said), said
    assert all(line.startswith("page.md:") for line in said)
    assert any(int(line.split(":")[1]) >= len(GOOD.splitlines()) for line in said)


def test_too_many_words_are_shown_at_the_longest_page() -> None:
    (said,) = too_long({"a.md": 20, "b.md": 90}, 100)
    assert said == "docs/b.md:1: expected at most 100 words in docs/, got 110"


def test_code_and_generated_blocks_are_left_out() -> None:
    page = "<!-- x: written by make docs -->\n\nthe road\n\n<!-- end of x -->\n"
    assert markdown(page) == ()
    assert without(page) == ""
    assert block(page, "x") == "the road\n"
    assert block(replaced(page, "x", "new\n"), "x") == "new\n"
    assert markdown("```text\nthe road\n```\n") == ()
    assert retired(Text("x", markdown("a broad roadster, `kernel/peel.py`, [x](road.md)"))) == []
    assert retired(Text("x", markdown("loop peeling"))) == []


def test_a_verdict_is_no_passive() -> None:
    states, acts = markdown("It is *proved* and never refuted."), markdown("It is then written.")
    assert [s.passive for s in (*states, *acts)] == [False, True]


@pytest.mark.parametrize("name", sorted(cast(Any, COMMANDS).commands))
def test_help_fits_a_terminal(name: str) -> None:
    command = cast(Any, COMMANDS).commands[name]
    narrow: dict[str, Any] = {"resilient_parsing": True, "terminal_width": 80}
    with command.make_context(name, [], **narrow) as context:
        text = command.get_help(context)
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_the_list_of_commands_has_whole_sentences() -> None:
    with COMMANDS.make_context("", [], resilient_parsing=True, terminal_width=80) as context:
        lines = COMMANDS.get_help(context).splitlines()
    assert [line for line in lines[1:] if line.endswith("...")] == []


GONE = re.compile(r"(?:desk|mend(?:s|ed|er|ing)?|wish(?:es|ed)?|roads?)", re.IGNORECASE)
"""Retired words that no code of the product uses, in a name or in a text."""
PARTS = re.compile(r"[A-Za-z][a-z]*|[A-Z]+(?![a-z])")


@pytest.mark.parametrize("package", ["agent", "synthesis", "verifier", "shardproof"])
def test_code_uses_no_word_that_is_gone(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if any(GONE.fullmatch(part) for part in PARTS.findall(line))
    ]
    assert found == []
