"""cvc5, which is asked what Z3 was asked: `make trust`.

The package is the extra `trust`. Without it nothing is asked, and the page says so.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from shardproof.verifier.smt.solver import Obligation

LIMIT_MS = 20_000
SKIPPED = "cvc5 is not installed, so no obligation was asked of it: pip install 'shardproof[trust]'"


@dataclass(frozen=True)
class Compared:
    """What cvc5 answers to obligations."""

    version: str
    """Empty where it is not installed."""
    shown: int = 0
    """Obligations that Z3 discharges and cvc5 too."""
    undecided: int = 0
    """Obligations to which one of the two has no answer."""
    disagreements: tuple[str, ...] = ()
    """Obligations, as SMT-LIB text, to which the two answer differently."""

    def __str__(self) -> str:
        if not self.version:
            return SKIPPED
        said = f"cvc5 {self.version} discharges {self.shown:,} of them"
        more = f", {self.undecided:,} undecided" if self.undecided else ""
        return f"{said}{more}; disagreements: {len(self.disagreements)}"


def compare(obligations: Iterable[Obligation]) -> Compared:
    if find_spec("cvc5") is None:
        return Compared("")
    cvc5: Any = importlib.import_module("cvc5")
    counts, wrong = Counter[str](), list[str]()
    for one in obligations:
        said = answer(one.text, cvc5)
        if "unknown" in (said, one.status):
            counts["undecided"] += 1
        elif said == one.status:
            counts["shown"] += said == "unsat"
        else:
            wrong.append(one.text)
    return Compared(str(cvc5.__version__), counts["shown"], counts["undecided"], tuple(wrong))


def answer(text: str, cvc5: Any) -> str:
    """What cvc5 answers to SMT-LIB text: `unsat`, `sat` or `unknown`.

    Raises:
        ValueError: it cannot read the text.
    """
    solver = cvc5.Solver(cvc5.TermManager())
    solver.setOption("tlimit-per", str(LIMIT_MS))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    symbols, said = parser.getSymbolManager(), ""
    try:
        while not (command := parser.nextCommand()).isNull():
            said += str(command.invoke(solver, symbols))
    except RuntimeError as error:
        raise ValueError(f"cvc5 cannot read an obligation: {error}") from None
    said = said.strip()
    if said not in ("unsat", "sat", "unknown"):
        raise ValueError(f"cvc5 cannot read an obligation: {said}")
    return said
