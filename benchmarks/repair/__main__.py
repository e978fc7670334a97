"""Repairs of wrong programs measured: the corpus, programs of one layer, training steps.

python -m benchmarks.repair --out repair/
python -m benchmarks.repair corpus --limit 10
python -m benchmarks.repair --out repair/ --llm auto --feedback all --limit 20
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.repair.command import Choice, command
from benchmarks.repair.programs import PARTS
from shardproof.agent.run.run import Outcome, Run, conduct


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repair")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; or all")
    parser.add_argument("--out", type=Path, help="folder for results and tables")
    parser.add_argument("--limit", type=int, metavar="N", help="wrong programs of each part")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of one program")
    parser.add_argument("--stop", type=float, metavar="S", help="stop after; the next run goes on")
    parser.add_argument("--llm", default="none", metavar="none|auto|MODEL")
    parser.add_argument(
        "--feedback",
        action="append",
        default=[],
        metavar="LEVEL",
        help="by the model alone, given so much: none, message, relation, witness, fixes or all",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    given = parser.parse_args()
    choice = Choice(
        tuple(given.parts),
        given.limit,
        given.seconds,
        llm=given.llm,
        levels=tuple(given.feedback),
        stop=given.stop,
    )

    def work(run: Run) -> Outcome:
        return command(run, choice, given.out)

    return conduct("benchmarks.repair", sys.argv[1:], work, json=given.json)


if __name__ == "__main__":
    sys.exit(main())
