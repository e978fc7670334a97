"""Both files are written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from agent.report import Report, html, write_report
from tests.report import samples


def test_report_is_plain_data(report: Report) -> None:
    if report.execution and any(d.relative != d.relative for d in report.execution.differences):
        report = replace(report, execution=None)
    again = json.loads(json.dumps(asdict(report)))
    assert TypeAdapter(Report).validate_python(again) == report


def test_writes_both_files(report: Report, tmp_path: Path) -> None:
    files = write_report(report, tmp_path / "new" / "out")
    assert files.markdown.read_text("utf-8").startswith("# ")
    assert files.html.read_text("utf-8").startswith("<!doctype html>")
    assert sorted(p.name for p in files.html.parent.iterdir()) == ["report.html", "report.md"]


def test_same_report_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (write_report(samples.proved(), tmp_path / name) for name in "ab")
    assert first.html.read_bytes() == second.html.read_bytes()
    assert first.markdown.read_bytes() == second.markdown.read_bytes()


def test_failure_leaves_earlier_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_report(samples.proved(), tmp_path).markdown.read_bytes()
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
