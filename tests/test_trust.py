"""What the pages say of the size of the checker is so, within three in a hundred."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.trust import lines, reach

ROOT = Path(__file__).resolve().parents[1]
SAYS = re.compile(r"([\d,]+) lines(?: of its own)?,(?: and)? ([\d,]+) with all that it")


@pytest.mark.parametrize("page", ["README.md", "docs/proofs.md", "docs/trust.md"])
def test_the_lines_of_the_checker_are_those_that_a_page_says(page: str) -> None:
    found = SAYS.search((ROOT / page).read_text(encoding="utf-8"))
    assert found is not None
    said = [int(number.replace(",", "")) for number in found.groups()]
    counted = reach()
    for number, modules in zip(said, (counted.own, counted.all), strict=True):
        assert number == pytest.approx(lines(modules), rel=0.03), "make trust writes docs/trust.md"
