"""The table of published code: rows name what is there, and pages show what was found."""

from __future__ import annotations

import re

import pytest

from benchmarks.blocks import DOCS, block
from benchmarks.published_code import ALL, ROOT, TABLE, Row, kept, page, totals


@pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
def test_a_row_names_what_its_file_has(row: Row) -> None:
    if row.of_library:
        return
    text = (ROOT / row.file).read_text()
    after = re.findall(r"--after-backward (\w+)", row.options)
    for name in (row.target.partition(":")[2], *after, *({row.against} - {"same@1"})):
        assert re.search(rf"^(class|def) {name}\b", text, re.MULTILINE), name
    assert (row.expected == "proved") <= (not row.fault)
    if row.fault:
        assert row.line() > 0


def test_names_differ_and_every_kept_row_came_out_as_expected() -> None:
    assert len({r.name for r in ALL}) == len(ALL)
    expected = {r.name: r.expected for r in ALL}
    assert {n: f.verdict for n, f in kept().items()} == {n: expected[n] for n in kept()}


def test_the_pages_show_what_was_found() -> None:
    renew = "python -m benchmarks.published_code --page"
    assert TABLE.read_text() == page(), renew
    assert block((DOCS / "models.md").read_text(), "published code") == totals(), renew
