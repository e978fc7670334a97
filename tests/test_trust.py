"""What the pages say of the size of the checker is so, within three in a hundred."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.trust import DISCHARGE, TABLES, core, lines, order, reach

ROOT = Path(__file__).resolve().parents[1]
SAYS = re.compile(r"([\d,]+) lines(?: of its own)?,(?: and)? ([\d,]+) with all that it")


@pytest.mark.parametrize("page", ["README.md", "docs/proofs.md", "docs/trust.md"])
def test_the_lines_of_the_checker_are_those_that_a_page_says(page: str) -> None:
    found = SAYS.search((ROOT / page).read_text(encoding="utf-8"))
    assert found is not None
    said = [int(number.replace(",", "")) for number in found.groups()]
    counted = reach()
    for number, modules in zip(said, (counted.own, counted.all), strict=True):
        assert number == pytest.approx(lines(modules), rel=0.03), "make trust writes the page"


def test_the_core_is_listed_in_an_order_in_which_nothing_is_read_before_what_it_needs() -> None:
    told = [row.split("`")[1] for row in order() if row.startswith("| `")]
    own = {m.removeprefix("shardproof.verifier.") for m in core() if lines([m]) > 1}
    assert sorted(told) == sorted(own)
    first = ("kernel.layout", "kernel.program.registry", "terms.table", "checker.rules")
    at = [told.index(m) for m in (*first, "checker.replay", "checker.proofs")]
    assert at == sorted(at)
    said = TABLES.read_text(encoding="utf-8").partition("order to read it")
    assert [row.split("`")[1] for row in said[2].splitlines() if row.startswith("| `")] == told


def test_no_step_of_a_measured_proof_is_shown_by_its_rule_alone() -> None:
    heads, *rows = json.loads(DISCHARGE.read_text(encoding="utf-8"))
    assert {"corpus", "right"} < {row[0] for row in rows}
    for row in rows:
        counted = dict(zip(heads, row, strict=True))
        assert int(counted["forms"]) > 100
        assert counted["rule alone"] == counted["refuted"] == "0"
