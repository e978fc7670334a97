"""The table of assumptions in docs/proofs.md, by their declarations.

`python -m benchmarks.assumptions_page` in the root of the project writes it.
"""

from __future__ import annotations

from pathlib import Path

from verifier.assumptions import table

PAGE = Path("docs/proofs.md")
BEGIN = "<!-- assumptions: written by make docs -->\n\n"
END = "\n<!-- end of assumptions -->"


def written(page: str) -> str:
    """The page with the table as it is declared now."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}{table()}{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
