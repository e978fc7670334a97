"""The tables of assumptions, stand-ins and lemmas in docs/proofs.md, by their declarations.

`python -m benchmarks.assumptions_page` in the root of the project writes them.
"""

from __future__ import annotations

from benchmarks.blocks import DOCS, replaced
from benchmarks.declared import assumptions, stand_ins
from tests.laws.lemmas import LEMMAS

PAGE = DOCS / "proofs.md"


def lemmas() -> str:
    """The lemmas as a table in Markdown."""
    rows = [f"| {name} | {lemma.says} | {lemma.rests} |" for name, lemma in LEMMAS.items()]
    return (
        "\n".join(["| lemma | statement | rules that rest on it |", "|---|---|---|", *rows]) + "\n"
    )


TABLES = {"assumptions": assumptions.table, "stand-ins": stand_ins.table, "lemmas": lemmas}


def written(page: str) -> str:
    """The page with the tables as they are declared now."""
    for name, table in TABLES.items():
        page = replaced(page, name, table())
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
