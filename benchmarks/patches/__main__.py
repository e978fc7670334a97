"""`python -m benchmarks.patches`: patches of random user models, against what they compute.

Every model is planned for one or two meshes of tensor and data parallelism. Truth is the patched
code on gloo processes in float64, on several draws of weights and inputs: loss, outputs and every
gradient, against one process. What is counted is the share of right patches that are proved; a
model that is refused before there is a patch counts by itself.
Rows are appended to a file, so that a run goes on where the last one stopped.
Exits 1 where a patch is proved that is wrong or does not run.
"""

from __future__ import annotations

import argparse
import sys
from itertools import chain
from pathlib import Path

from benchmarks.patches.campaign import BAD, code, read, run
from benchmarks.patches.models import generate, of_file
from benchmarks.patches.table import report

KEPT = Path("build/patches")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.patches")
    parser.add_argument(
        "files", nargs="*", type=Path, help="these models, with their `# mesh: tp=2`"
    )
    parser.add_argument("--count", type=int, default=400, help="models")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--only", type=int, action="append", help="this seed alone; repeatable")
    parser.add_argument(
        "--results",
        type=Path,
        help="file of JSON lines; by default one for every state of the code",
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep models and directories")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--again", action="store_true", help="forget what was worked out before")
    parser.add_argument("--table", action="store_true", help="the table of kept rows, no new ones")
    given = parser.parse_args()
    results = given.results or KEPT / f"{code()}.jsonl"
    if given.table:
        print(report(read(results)))
        return 0
    if given.again:
        results.unlink(missing_ok=True)
    drawn = () if given.files else range(given.seed, given.seed + given.count)
    models = chain(map(of_file, given.files), map(generate, given.only or drawn))
    rows = run(models, results, given.keep, given.jobs)
    print(report(rows))
    return int(any(row.end in BAD for row in rows))


if __name__ == "__main__":
    sys.exit(main())
