"""Right programs that look wrong, and wrong ones that look like them, at two sizes.

A file is a case of the corpus (`benchmarks/mutation_testing/cases.py`) with several right and wrong
sections, each with a name of its own, and with extents as arithmetic: `<4*k>` stands for four times
what the line `# small: k=2` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.text.contract import compose, read_contract
from shardproof.verifier.text.parser import parse_text

HERE = Path(__file__).parent
SIZES = ("small", "large")


@dataclass(frozen=True)
class Spelling:
    """One distributed program of a file, at one size."""

    path: Path
    section: str
    """`right` or `wrong`, with a name behind it where there are several."""
    size: str

    def __str__(self) -> str:
        return f"{self.path.stem}-{self.section.replace(' ', '_')}-{self.size}"

    @property
    def right(self) -> bool:
        return self.section.startswith("right")

    def programs(self) -> tuple[Program, Program, Contract]:
        """The one-device program, the composed distributed one, and the contract."""
        sections, sizes = _read(self.path)
        filled = {k: _fill(text, sizes[self.size]) for k, text in sections.items()}
        name = str(self.path)
        one = parse_text(filled["one"], name)
        many = parse_text(filled[self.section], name)
        asked = filled.get(f"contract {self.section}", filled["contract"])
        stated = read_contract(asked, one, many, name)
        composed, contract = compose(many, stated)
        return one, composed, contract


def spellings(size: str) -> Iterator[Spelling]:
    """Every distributed program of every file, at one size."""
    for path in sorted(HERE.glob("*.txt")):
        sections, sizes = _read(path)
        for section in sections:
            if section.split()[0] in ("right", "wrong") and size in sizes:
                yield Spelling(path, section, size)


@cache
def _read(path: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    sections: dict[str, list[str]] = {"one": []}
    sizes: dict[str, dict[str, int]] = {}
    current = sections["one"]
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("--- "):
            current = sections.setdefault(line[4:], [])
        elif line.startswith("# ") and line[2:].partition(":")[0] in SIZES:
            size, _, extents = line[2:].partition(":")
            pairs = (item.split("=") for item in extents.split())
            sizes[size] = {name: int(value) for name, value in pairs}
        else:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in sections.items()}, sizes


def _fill(text: str, extents: dict[str, int]) -> str:
    return re.sub(r"<([^<>]+)>", lambda found: str(eval(found[1], {}, extents)), text)
