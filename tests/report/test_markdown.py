"""`report.md`: whole, safe to post, and small enough for a comment."""

from __future__ import annotations

import re
from dataclasses import replace

import jinja2
import pytest

from shardproof.agent.report import Report, render_markdown
from shardproof.agent.report.markdown import LEVELS, MOST_BYTES, cell, code, environment, plain
from tests.report import failures, samples
from tests.report.hostile import poisoned


def outside_code(page: str) -> str:
    """The page without fenced blocks and code spans."""
    page = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", page, flags=re.M | re.S)
    return re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", page)


def test_every_report_fits_a_comment(report: Report) -> None:
    page = render_markdown(report)
    assert len(page.encode()) < MOST_BYTES
    assert page.startswith(("# Proved: ", "# Refuted: ", "# Unknown: "))
    assert page.endswith("\n")
    assert "\n\n\n" not in page


def test_tables_have_as_many_cells_as_their_head(report: Report) -> None:
    width = 0
    for row in render_markdown(report).split("\n"):
        if not row.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", row)) - 1
        width = width or cells
        assert cells == width, row


def test_hostile_strings_stay_text(report: Report) -> None:
    page = outside_code(render_markdown(poisoned(report)))
    assert not re.search(r"(?<!\\)<(?!br>|!-- -->|/?details>|/?summary>)", page)
    assert not re.search(r"(?<!\\)\]\(", page)
    assert not re.search(r"@\w|(?<!&)#\d", page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069\u200b]", page)
    assert "\n# heading" not in page


def test_long_diff_is_cut_and_pointed_at() -> None:
    base = samples.proved()
    assert base.patch is not None
    body = "".join(f"+line {i} of a long patch\n" for i in range(20_000))
    diff = f"--- /dev/null\n+++ b/f.py\n@@ -0,0 +1,20000 @@\n{body}"
    page = render_markdown(replace(base, patch=replace(base.patch, diff=diff)))
    assert len(page.encode()) < MOST_BYTES
    assert re.search(r"\*19,\d+ more lines of the diff are in\* `patch.diff`", page)
    assert "+20000 −0 lines" in page


def test_long_plan_is_cut_and_pointed_at() -> None:
    base = samples.proved()
    page = render_markdown(replace(base, plan=base.plan * 100))
    assert len(page.encode()) < MOST_BYTES
    assert re.search(r"\*\d+ more in report.html and plan.json\.\*", page)


def test_one_endless_line_still_fits() -> None:
    base = samples.proved()
    assert base.patch is not None
    endless = "@@ -0,0 +1 @@\n+" + "x" * 200_000
    page = render_markdown(replace(base, patch=replace(base.patch, diff=endless)))
    assert len(page.encode()) < MOST_BYTES
    assert "*2 more lines of the diff are in*" in page


def test_counterexample_names_place_values_and_fixes() -> None:
    page = render_markdown(failures.refuted())
    for part in (
        "`no-pending-sum`",
        "`examples/mlp.py:14`",
        "`y[0, 0]` is expected to be `2` and is `1`",
        "- proved: `all_reduce %5, axis=tp`",
        "- proved: `reduce_scatter %5, axis=tp, dim=0`",
    ):
        assert part in page


def test_contradicting_execution_is_loud() -> None:
    base = samples.proved()
    assert base.execution is not None
    page = render_markdown(replace(base, execution=replace(base.execution, agrees=False)))
    assert "> **Attention.** The executed patch differs from one process although" in page


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        ("self_attn of _x_", "self_attn of \\_x\\_"),
        ("2.5 KiB", "2.5 KiB"),
        ("2. item", "2\\. item"),
        ("- item", "\\- item"),
        ("a | b", "a \\| b"),
        ("[2@tp, 4]", "\\[2@tp, 4\\]"),
        ("<b> &amp; @you #7", "\\<b\\> &amp;amp; @<!-- -->you #<!-- -->7"),
        ("two\nlines", "two lines"),
    ],
)
def test_plain_text(raw: str, written: str) -> None:
    assert plain(raw) == written


def test_code_spans_survive_backticks_and_bars() -> None:
    assert code("a `b`") == "`` a `b` ``"
    assert cell("a | b") == "`a \\| b`"
    assert code("") == ""


def test_missing_variable_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        environment(LEVELS[0]).from_string("{{ nothing }}").render()
