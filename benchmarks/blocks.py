"""Blocks of a page that a command writes, each between two comments that name it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"


def _pattern(name: str) -> re.Pattern[str]:
    name = re.escape(name)
    return re.compile(
        rf"(<!-- {name}: written by [^\n]* -->\n\n)(.*?)(\n<!-- end of {name} -->)", re.DOTALL
    )


def block(page: str, name: str) -> str:
    """What stands in a block of a page.

    Raises:
        ValueError: the page has no such block.
    """
    found = _pattern(name).search(page)
    if found is None:
        raise ValueError(f"no block {name!r}")
    return found[2]


def replaced(page: str, name: str, text: str) -> str:
    """A page with a block replaced by `text`, which ends with a newline.

    Raises:
        ValueError: the page has no such block.
    """
    block(page, name)
    return _pattern(name).sub(lambda found: f"{found[1]}{text}{found[3]}", page, count=1)


def write(page: Path, name: str, text: str) -> None:
    """Replace a block in a file."""
    page.write_text(replaced(page.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def without(page: str) -> str:
    """A page without its generated blocks."""
    return re.sub(
        r"<!-- ([\w -]+): written by [^\n]* -->\n.*?<!-- end of \1 -->\n", "", page, flags=re.DOTALL
    )
