"""The report of one run: what was proved or refuted, the plan and its cost, the patch."""

from agent.report.html import render_html
from agent.report.markdown import render_markdown
from agent.report.model import Report
from agent.report.write import write_report

__all__ = ["Report", "render_html", "render_markdown", "write_report"]
