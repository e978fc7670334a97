"""The report of one run: what was proved or refuted, the plan and its cost, the patch."""

from shardproof.agent.report import html, markdown
from shardproof.agent.report.html import render_html
from shardproof.agent.report.markdown import LEVELS, render_markdown
from shardproof.agent.report.model import Report


def compile_templates() -> None:
    """For all reports of this process, and of those that are forked from it."""
    for made, end in ((html.environment(), "html.j2"), (markdown.environment(LEVELS[0]), "md.j2")):
        for name in made.list_templates(filter_func=lambda n, end=end: n.endswith(end)):
            made.get_template(name)


__all__ = ["Report", "compile_templates", "render_html", "render_markdown"]
