"""`python -m benchmarks.attacks`: generated programs that do more than the ops that are traced of
them, each run on gloo and judged; a run that was stopped goes on.

No wrong one may be proved, save where it is wrong only in what the verdict says it rests on, and
95 of 100 right ones must be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.attacks.compose import Program, programs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "attacks.jsonl"
TRACED = RESULTS.with_name("attacks-traced.jsonl")
"""What is found with `--no-run`."""
TRUTHS = ROOT / "build" / "attacks.jsonl"
LEAST = 0.95
VERDICTS = ("proved", "refuted", "refused", "unknown", "crashed")
LONGEST = 120
READING = ("process", "draws", "around")
"""Kinds of which a step may read the clock, the environment or the process, and nothing else is
wrong."""
READ = "a run that reads something else is not covered"
THIRD = 2
"""The call, from 0, from which on a verdict says that it takes them for the first two."""


@dataclass(frozen=True)
class Row:
    """What came of a program."""

    key: str
    kind: str
    truth: str
    where: list[list[Any]]
    """[mode, whether gradients are on, seed, call] of each run that differs."""
    verdict: str
    said: str
    assumptions: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def covered(self) -> bool:
        """Wrong in calls alone that the verdict says it did not look at, or by what a line of the
        program reads, which the verdict names."""
        later = bool(self.where) and all(call >= THIRD for *_, call in self.where)
        if later and any("first two" in a for a in self.assumptions):
            return True
        return self.kind in READING and any(READ in a for a in self.assumptions)

    @property
    def wrong(self) -> bool:
        return self.truth in ("wrong", "broken")

    @property
    def proved_wrong(self) -> bool:
        return self.wrong and self.verdict == "proved" and not self.covered


class LateError(Exception):
    """A verdict took too long."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Gloo:
    """A process that runs programs, started again when it ends. `kept` holds what it found: a
    program that was run before is not run again."""

    def __init__(self, kept: Path | None = None) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.kept = kept
        self.found: dict[str, dict[str, Any]] = {}
        if kept is not None and kept.is_file():
            self.found = dict(json.loads(line) for line in kept.read_text().splitlines())

    def __call__(self, program: Program, file: Path) -> dict[str, Any]:
        options = {k: v for k, v in program.options.items() if k != "run"}
        asked = json.dumps([file.read_text(), program.command, program.mesh, options])
        key = hashlib.sha256(asked.encode()).hexdigest()
        if key not in self.found:
            self.found[key] = self.run(program, file)
            if self.kept is not None:
                self.kept.parent.mkdir(parents=True, exist_ok=True)
                with self.kept.open("a") as out:
                    out.write(json.dumps([key, self.found[key]]) + "\n")
        return self.found[key]

    def run(self, program: Program, file: Path) -> dict[str, Any]:
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.attacks.truth"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {
            "file": str(file),
            "command": program.command,
            "mesh": program.mesh,
            "options": dict(program.options),
        }
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"truth": "broken", "where": [], "error": ["ended"]}

    def close(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=60)


def checked(program: Program, file: Path) -> tuple[str, str, list[str]]:
    """The verdict of `check`, its words and its assumptions."""
    import shardproof

    try:
        with within(LONGEST):
            verdict = shardproof.check(
                f"{file}:P", f"{file}:M", program.mesh, repair_seconds=0, **program.options
            )
    except LateError:
        return "unknown", f"no verdict in {LONGEST} s", []
    except shardproof.ShardproofError as problem:
        return "refused", str(problem)[:400], []
    except Exception as problem:  # noqa: BLE001 a fault of shardproof's
        return "crashed", f"{type(problem).__name__}: {problem}"[:400], []
    match verdict:
        case shardproof.Proof():
            return "proved", "", [str(a) for a in verdict.assumptions]
        case shardproof.Counterexample():
            return "refuted", str(verdict.witness)[:200], []
        case _:
            return "unknown", str(verdict)[:300], []


def parallelized(program: Program, file: Path) -> tuple[str, str, list[str], Path]:
    """The verdict of `parallelize`, and the patched file where it is proved."""
    import shardproof

    out = file.parent / f"{file.stem}_out"
    try:
        with within(LONGEST):
            plan = shardproof.parallelize(f"{file}:M", mesh=program.mesh, out=out, run=False)
    except LateError:
        return "unknown", f"no verdict in {LONGEST} s", [], file
    except shardproof.ShardproofError as problem:
        return "refused", str(problem)[:400], [], file
    except Exception as problem:  # noqa: BLE001 a fault of shardproof's
        return "crashed", f"{type(problem).__name__}: {problem}"[:400], [], file
    if not plan.proved:
        return plan.verdict, plan.message[:300], list(plan.assumptions), file
    patched = file.with_name(f"{file.stem}_patched.py")
    patched.write_text(file.read_text())
    subprocess.run(
        ["patch", "-s", str(patched), "-"], input=plan.diff, text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    return "proved", "", list(plan.assumptions), patched


def row_of(program: Program, folder: Path, gloo: Gloo) -> Row:
    """Judge a program and run it; a patch that is not proved is not run, and counts as meant."""
    file = folder / f"program_{abs(hash(program.key))}.py"
    file.write_text(program.text)
    start = time.monotonic()
    if program.command == "check":
        with ThreadPoolExecutor(1) as beside:
            run = beside.submit(gloo, program, file)
            verdict, said, given = checked(program, file)
            found = run.result()
    else:
        verdict, said, given, patched = parallelized(program, file)
        found = {"truth": program.meant, "where": []}
        if verdict == "proved":
            found = gloo(program, patched)
    spent = round(time.monotonic() - start, 1)
    words = said or "; ".join(found.get("error", []))
    truth = found["truth"]
    if program.kind == "process" and (program.meant, truth) == ("wrong", "right"):
        truth = "chance"  # what it reads was the same on all ranks this time
    row = (program.key, program.kind, truth, found["where"], verdict, words)
    return Row(*row, given, spent)


def read(path: Path) -> dict[str, Row]:
    lines = path.read_text().splitlines() if path.is_file() else []
    return {row.key: row for row in (Row(**json.loads(line)) for line in lines)}


def table(rows: Sequence[Row]) -> str:
    """By kind: programs, and verdicts of the wrong and of the right ones."""
    heads = ["kind", "programs", *(f"{t}, {v}" for t in ("wrong", "right") for v in VERDICTS)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    counted = [r for r in rows if r.truth not in ("alone", "chance")]
    for kind in [*dict.fromkeys(r.kind for r in counted), "all"]:
        own = [r for r in counted if kind in (r.kind, "all")]
        cells = Counter((r.wrong, r.verdict) for r in own)
        numbers = [len(own), *(cells[w, v] for w in (True, False) for v in VERDICTS)]
        lines.append(f"| {kind} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> tuple[str, bool]:
    """What is printed, and whether it is as it must be."""
    bad = [r for r in rows if r.proved_wrong]
    right = [r for r in rows if r.truth == "right"]
    rate = sum(r.verdict == "proved" for r in right) / max(1, len(right))
    covered = sum(r.wrong and r.covered and r.verdict == "proved" for r in rows)
    lines = [table(rows), "", *(f"proved and wrong: {r.key}" for r in bad)]
    lines += [
        f"proved_wrong {len(bad)}",
        f"wrong from the third call on, or by what is read, as the verdict says {covered}",
        f"right ones proved {rate:.1%} of {len(right)}, at least {LEAST:.0%}",
    ]
    return "\n".join(lines), not bad and rate >= LEAST


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.attacks", description=__doc__)
    parser.add_argument("--results", type=Path, help="rows that are there are not judged again")
    parser.add_argument("--truths", type=Path, default=TRUTHS, help="what was found on gloo")
    parser.add_argument("--count", type=int, default=2000, help="programs at most")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--kind", default="", help="programs of this kind alone")
    parser.add_argument("--no-run", action="store_true", help="what `check` says without its run")
    parser.add_argument("--ends", type=float, default=0, help="seconds after which none is begun")
    parser.add_argument("--keep", type=Path, help="a folder for those that are proved and wrong")
    parser.add_argument("--page", action="store_true", help="print the table; run nothing")
    given = parser.parse_args(argv)
    results: Path = given.results or (TRACED if given.no_run else RESULTS)
    rows = read(results)
    made = [p for p in programs(given.seed) if given.kind in ("", p.kind)][: given.count]
    if given.no_run:
        made = [replace(p, options={**p.options, "run": False}) for p in made]
    ends = time.monotonic() + given.ends if given.ends else None
    gloo = Gloo(given.truths)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for program in made:
            late = ends is not None and time.monotonic() > ends
            if given.page or late or program.key in rows:
                continue
            row = rows[program.key] = row_of(program, Path(scratch), gloo)
            with results.open("a") as out:
                out.write(json.dumps(asdict(row)) + "\n")
            print(f"{row.truth:6} {row.verdict:8} {row.seconds:5} {row.key}", flush=True)
            if row.proved_wrong and given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                name = f"{row.kind}_{len(list(given.keep.glob('*.py'))):02}.py"
                (given.keep / name).write_text(f'"""{row.key}"""\n{program.text}')
    gloo.close()
    said, good = summary([rows[p.key] for p in made if p.key in rows])
    print(said)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
