"""Writes both forms of a report, each file whole or not at all."""

from dataclasses import dataclass
from pathlib import Path

from agent.files import write_whole
from agent.report.html import render_html
from agent.report.markdown import render_markdown
from agent.report.model import Report


@dataclass(frozen=True, slots=True)
class ReportFiles:
    markdown: Path
    html: Path


def write_report(report: Report, folder: Path) -> ReportFiles:
    """`report.md` and `report.html` in `folder`, which is made when missing. Both are rendered
    before either is written, so that a failure leaves earlier files as they were."""
    markdown, html = render_markdown(report), render_html(report)
    files = ReportFiles(folder / "report.md", folder / "report.html")
    write_whole(files.markdown, markdown.encode())
    write_whole(files.html, html.encode())
    return files
