"""The report of one run: what was proved or refuted, the plan and its cost, the patch."""

from pathlib import Path

from agent.files import write_whole
from agent.report.html import render_html
from agent.report.markdown import render_markdown
from agent.report.model import Report


def write_report(report: Report, folder: Path) -> None:
    """`report.md` and `report.html` in `folder`, which is made when missing. Both are rendered
    before either is written, so that a failure leaves earlier files as they were."""
    texts = {"report.md": render_markdown(report), "report.html": render_html(report)}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())


__all__ = ["Report", "render_html", "render_markdown", "write_report"]
