"""Writes both forms of a report, each file whole or not at all."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

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
    folder.mkdir(parents=True, exist_ok=True)
    files = ReportFiles(folder / "report.md", folder / "report.html")
    _replace(files.markdown, markdown)
    _replace(files.html, html)
    return files


def _replace(path: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
