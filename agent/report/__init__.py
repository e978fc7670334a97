"""The report of one run: what was proved or refuted, the plan and its cost, the patch."""

from pathlib import Path

from shardproof.agent.report import html, markdown
from shardproof.agent.report.html import render_html
from shardproof.agent.report.markdown import LEVELS, render_markdown
from shardproof.agent.report.model import Report
from shardproof.agent.run.files import write_whole


def compile_templates() -> None:
    """For all reports of this process, and of those that are forked from it."""
    for made, end in ((html.environment(), "html.j2"), (markdown.environment(LEVELS[0]), "md.j2")):
        for name in made.list_templates(filter_func=lambda n, end=end: n.endswith(end)):
            made.get_template(name)


def write_report(report: Report, folder: Path) -> None:
    """`report.md` and `report.html` in `folder`, which is made when missing. Both are rendered
    before either is written, so that a failure leaves earlier files as they were."""
    texts = {"report.md": render_markdown(report), "report.html": render_html(report)}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())


__all__ = ["Report", "compile_templates", "render_html", "render_markdown", "write_report"]
