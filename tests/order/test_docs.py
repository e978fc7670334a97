"""The page about time says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from shardproof.synthesis.schedules import check_schedule, parse
from shardproof.verifier.order.checks import CHECKS
from shardproof.verifier.order.text import parse_text
from shardproof.verifier.order.verify import verify_time


def test_the_table_of_checks_is_that_of_the_registry(root: Path) -> None:
    page = (root / "docs" / "time.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert rows[: len(CHECKS)] == [(c.name, c.proves, c.means) for c in CHECKS]


def test_the_examples_are_what_the_page_says(root: Path) -> None:
    page = (root / "docs" / "time.md").read_text(encoding="utf-8")
    events, schedule = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert verify_time(parse_text(events)) == []
    assert {fault.check for fault in check_schedule(parse(schedule))} == {"deadlock"}
