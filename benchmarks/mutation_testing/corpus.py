"""`python -m benchmarks.mutation_testing.corpus`: the corpus, judged, as a table by class.

Exits 1 where a wrong program is let through, a right one is refused, or a certificate of a proof
does not replay.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutation_testing.cases import Case, Judged, judge, read_case
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Proof

ROOT = Path(__file__).resolve().parents[2] / "tests" / "corpus"


@dataclass
class Row:
    """Counts of one class of cases."""

    entries: int = 0
    refuted: int = 0
    shown: int = 0
    proved: int = 0
    wrong_sides: int = 0
    right_sides: int = 0
    unknown: int = 0
    false: int = 0
    seconds: float = 0.0

    def add(self, judged: Judged) -> None:
        self.seconds += judged.seconds
        self.unknown += judged.outcome == "unknown"
        self.false += judged.false
        if judged.side == "wrong":
            self.wrong_sides += 1
            self.refuted += judged.right
            self.shown += judged.right and judged.witness
        else:
            self.right_sides += 1
            self.proved += judged.right


def cases(root: Path = ROOT, names: Sequence[str] = ()) -> Iterator[Case]:
    """The cases under a folder, those named where names are given; classes are folders."""
    for path in sorted(root.glob("*/*.txt")):
        if not names or path.stem in names or path.parent.name in names:
            yield read_case(path)


def replays(judged: Judged) -> bool:
    """Whether the certificate of a proof is accepted by the checker, for the same and under the
    same assumptions (true where there is none)."""
    verdict = judged.verdict
    if not isinstance(verdict, Proof):
        return True
    found = check(verdict.certificate, Problem(*judged.case.programs(judged.side)))
    same = verdict.scope, verdict.assumptions
    return isinstance(found, Accepted) and (found.scope, found.assumptions) == same


def main(names: Sequence[str]) -> int:
    rows: dict[str, Row] = defaultdict(Row)
    bad = 0
    for case in cases(names=names):
        row = rows[case.path.parent.name]
        row.entries += 1
        for side in case.sides:
            judged = judge(case, side)
            row.add(judged)
            accepted = replays(judged)
            bad += judged.false or not accepted
            if names or not judged.right or not accepted:
                mark = "" if judged.right else "  <- unexpected"
                mark += "" if accepted else "  <- certificate rejected"
                _say(f"{case.path.stem} {side}: {judged.outcome} {judged.message}{mark}")
                if judged.where:
                    _say(f"    at {judged.where}")
    _say(_table(rows))
    return 1 if bad else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _table(rows: dict[str, Row]) -> str:
    head = ("class", "entries", "refuted", "with witness", "right proved", "unknown", "false", "s")
    lines: list[tuple[str, ...]] = [head]
    total = Row()
    for name, row in sorted(rows.items()):
        for key, value in vars(row).items():
            setattr(total, key, getattr(total, key) + value)
        lines.append(_line(name, row))
    lines.append(_line("all", total))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
        for line in lines
    )


def _line(name: str, row: Row) -> tuple[str, ...]:
    return (
        name,
        str(row.entries),
        f"{row.refuted}/{row.wrong_sides}",
        str(row.shown),
        f"{row.proved}/{row.right_sides}",
        str(row.unknown),
        str(row.false),
        f"{row.seconds:.1f}",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
