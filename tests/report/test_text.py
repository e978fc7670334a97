"""How values are written."""

from __future__ import annotations

import math

import pytest

from shardproof.agent.report import text
from shardproof.agent.report.facts import changed, diff_lines
from tests.report.samples import DIFF


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain self_attn.q_proj", "plain self_attn.q_proj"),
        ("Größe 模型 →", "Größe 模型 →"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("lone \ud800", "lone \\ud800"),
        ("line\u2028separator", "line\\u2028separator"),
        ("tab\tand\nnewline\r", "tab\tand\nnewline\\r"),
    ],
)
def test_hidden_characters_are_written_as_escapes(raw: str, shown: str) -> None:
    assert text.visible(raw) == shown


def test_legible_reaches_every_string() -> None:
    assert text.legible({"a\x00": ("b\x07", ["kept"])}) == {"a\\x00": ("b\\x07", ["kept"])}


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1000, "0.977 KiB"),
        (1024, "1 KiB"),
        (1023 * 1024, "0.999 MiB"),
        (999 * 1024, "999 KiB"),
        (5_312_512, "5.07 MiB"),
        (80 * 2**30, "80 GiB"),
        (7409 * 2**30, "7.24 TiB"),
        (None, "–"),
    ],
)
def test_size(count: int | None, shown: str) -> None:
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 µs"),
        (0.000212, "212 µs"),
        (0.9996, "1000 ms"),
        (0.0021, "2.1 ms"),
        (11.4, "11.4 s"),
        (125.0, "2 min 5 s"),
        (math.inf, "inf"),
        (None, "–"),
    ],
)
def test_duration(seconds: float | None, shown: str) -> None:
    assert text.duration(seconds) == shown


def test_small_numbers() -> None:
    assert [text.small(v) for v in (0.0, 3.14e-15, math.nan)] == ["0", "3.1e-15", "nan"]
    assert [text.number(v) for v in (2.0, -0.5, 1 / 3, math.inf)] == ["2", "-0.5", "0.333", "inf"]


def test_diff_lines_have_kinds_and_numbers() -> None:
    lines = diff_lines(DIFF)
    assert changed(lines) == (23, 2)
    assert [item.kind for item in lines[:3]] == ["file", "file", "hunk"]
    deleted = next(item for item in lines if item.kind == "del")
    assert (deleted.number, deleted.text) == (14, "-    model = LlamaForCausalLM(config)")


def test_deleted_line_that_looks_like_a_header_is_deleted() -> None:
    hunk = (
        "--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n--- old\n+++ new\n-gone\n\\ No newline at end of file\n"
    )
    assert [item.kind for item in diff_lines(hunk)] == [
        "file",
        "file",
        "hunk",
        "del",
        "add",
        "del",
        "note",
    ]


def test_no_diff_has_no_lines() -> None:
    assert diff_lines("") == ()
