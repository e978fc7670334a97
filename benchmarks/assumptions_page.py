"""The tables of assumptions and of stand-ins in docs/proofs.md, by their declarations.

`python -m benchmarks.assumptions_page` in the root of the project writes them.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.declared import assumptions, stand_ins

PAGE = Path("docs/proofs.md")
TABLES = {"assumptions": assumptions.table, "stand-ins": stand_ins.table}


def written(page: str) -> str:
    """The page with the tables as they are declared now."""
    for name, table in TABLES.items():
        head, rest = page.split(f"<!-- {name}: written by make docs -->\n\n")
        end = f"\n<!-- end of {name} -->"
        after = rest.split(end, 1)[1]
        page = f"{head}<!-- {name}: written by make docs -->\n\n{table()}{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
