"""Both files are written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from shardproof.agent.report import Report, html, write_report
from tests.report import samples


def test_report_is_plain_data(report: Report) -> None:
    if report.execution and any(d.relative != d.relative for d in report.execution.differences):
        report = replace(report, execution=None)
    again = json.loads(json.dumps(asdict(report)))
    assert TypeAdapter(Report).validate_python(again) == report


def test_writes_both_files(report: Report, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    write_report(report, out)
    assert (out / "report.md").read_text("utf-8").startswith("# ")
    assert (out / "report.html").read_text("utf-8").startswith("<!doctype html>")
    assert sorted(p.name for p in out.iterdir()) == ["report.html", "report.md"]


def test_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in "ab")
    for folder in (first, second):
        write_report(samples.proved(), folder)
    for name in ("report.html", "report.md"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_failure_leaves_earlier_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(samples.proved(), tmp_path)
    before = (tmp_path / "report.md").read_bytes()
    monkeypatch.setattr(html, "MOST_DIFF_LINES", None)
    with pytest.raises(TypeError):
        write_report(replace(samples.proved(), headline="Another."), tmp_path)
    assert (tmp_path / "report.md").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "report.md"]


def test_full_disk_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_report(samples.proved(), tmp_path)
    assert list(tmp_path.iterdir()) == []
