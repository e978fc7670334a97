"""`python -m benchmarks.ledger`: short benchmarks, held against the speeds of a committed file.

Every group runs in a fresh process. Its seconds of the processor are divided by those of a fixed
loop that is run beside it, in plain Python and numpy, so that what is compared is no property of
the machine, nor of what else it does. Exits 1 where a row takes 1.5 times as many loops as in the
file; such a group is measured once more first. `--write` renews the file, for the groups named.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "results" / "ledger.json"
WORSE = 1.5
"""From this many times the ratio of the file on, a row is worse."""
FLOOR = 0.5
"""Rows of fewer loops than this are measured with too little of the clock to be held against it."""
MANY = 5
"""Runs of what takes a tenth of a second; the fastest counts."""


@dataclass(frozen=True)
class Row:
    """What was measured once."""

    seconds: float
    ratio: float
    """The seconds by those of the loop."""


def loop() -> float:
    """Seconds of the processor of the fixed loop: dicts, tuples and small arrays, as the verifier
    has them, and one larger product."""
    begin = time.process_time()
    known: dict[tuple[int, str], int] = {}
    for i in range(150_000):
        key = i % 5003, str(i % 7)
        known[key] = known.get(key, 0) + len(key)
    small, large = np.linspace(0.0, 1.0, 24).reshape(4, 6), np.linspace(0.0, 1.0, 250_000)
    for _ in range(8_000):
        small = np.sqrt(small * small + 1.0) - small.sum(axis=0) * 0.125
    square = large.reshape(500, 500)
    for _ in range(2):
        square = square @ square / 500.0
    assert len(known) == 35_021
    assert np.isfinite(small).all()
    return time.process_time() - begin


class Clock:
    """Measures the rows of one group, each between two runs of the loop."""

    def __init__(self, group: str) -> None:
        self.group, self.rows = group, dict[str, Row]()
        self.before = min(loop(), loop())

    def row(self, name: str, work: Callable[[], object], runs: int = 2) -> None:
        """Of some runs of one piece of work, what the fastest took."""
        for _ in range(runs):
            before = times()
            work()
            self.add(name, times() - before)

    def add(self, name: str, seconds: float) -> None:
        """What was measured since the last row; of two of a name the faster counts."""
        after = loop()
        row = Row(seconds, 2 * seconds / (self.before + after))
        name, self.before = f"{self.group}: {name}", after
        self.rows[name] = min(row, self.rows.get(name, row), key=lambda r: r.ratio)


def times() -> float:
    """Seconds of the processor so far, with those of other processes that were started here: on
    Linux those that still run are counted too."""
    return sum(os.times()[:4]) + sum(map(_spent, _children(os.getpid())))


def _children(pid: int) -> list[int]:
    try:
        lists = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for one in lists for child in one.split()]


def _spent(pid: int) -> float:
    """Seconds of a process that runs, of those that it started and of those that ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    ticks = sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(_spent, _children(pid)))


# The groups


def layer(clock: Clock) -> None:
    """One layer at full size, proved, and its certificate replayed."""
    from benchmarks.steps.model import MODELS, Degrees
    from benchmarks.steps.step import training_step
    from shardproof.synthesis.repair.diagnosis import verify
    from shardproof.verifier.checker import Accepted, check
    from shardproof.verifier.problem import Problem
    from shardproof.verifier.verdict import Proof

    for name in ("llama3-8b", "llama3-405b"):
        step = training_step(replace(MODELS[name], layers=1, batch=1), Degrees(tp=8))
        problem = Problem(step.sequential, step.distributed, step.contract)
        said = verify(problem)
        assert isinstance(said, Proof), said
        certificate = said.certificate
        assert isinstance(check(certificate, problem), Accepted)
        clock.row(f"{name} proved", lambda p=problem: verify(p), MANY)
        clock.row(f"{name} checked", lambda p=problem, c=certificate: check(c, p), MANY)


def bugs(clock: Clock) -> None:
    """The plan as it was written, and bugs of several kinds."""
    from benchmarks.artifact_bugs import ALL, Bug, run
    from benchmarks.steps.model import MODELS

    chosen = [b for b in ALL if b.number in (1, 9, 12)]

    def judged(bug: Bug | None) -> None:
        said = run(bug, MODELS["llama3-8b"])
        assert said.found if bug else said.verdict == "proved", said

    for bug in (None, *chosen):
        clock.row(str(bug or "the plan as written"), lambda b=bug: judged(b))


def corpus(clock: Clock) -> None:
    """All of the corpus, and its proofs replayed."""
    from benchmarks.mutation_testing.corpus import ROOT as FOLDER, main

    def judged(kind: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()) as told:
            assert main([kind]) == 0, told.getvalue()

    for folder in sorted(p for p in FOLDER.iterdir() if p.is_dir()):
        clock.row(folder.name, lambda k=folder.name: judged(k), runs=1)


def frontier(clock: Clock) -> None:
    """Published plans, written and proved once."""
    from benchmarks.steps.scale import PLANS, Point, measured

    def proved(point: Point) -> None:
        row = measured(point, checked=False)
        assert row.verdict == "proved", row

    for point in (p for p in PLANS if p.name in ("L1", "L3", "D1")):
        clock.row(point.name, lambda p=point: proved(p))


def imports(clock: Clock) -> None:
    """What a fresh interpreter takes for a module, its own start included."""
    for module in ("shardproof.verifier", "shardproof.agent.cli.main"):
        command = [sys.executable, "-c", f"import {module}"]
        subprocess.run(command, check=True, cwd=ROOT)  # writes bytecode
        clock.row(module, lambda c=command: subprocess.run(c, check=True, cwd=ROOT), MANY)


def demo(clock: Clock) -> None:
    """The phases of `parallelize` on a user file, with what other processes do in them."""
    from shardproof.agent.cli.main import main as cli
    from shardproof.agent.run import events
    from shardproof.agent.run.run import Run

    begun: dict[str, float] = {}
    plain = Run.emit

    def emit(self: Run, event: events.Event) -> None:
        if isinstance(event, events.PhaseStarted):
            begun[event.phase] = times()
        elif isinstance(event, events.PhaseCompleted):
            clock.add(event.phase, times() - begun[event.phase])
        plain(self, event)

    Run.emit = emit
    with tempfile.TemporaryDirectory() as folder:
        words = f"parallelize {ROOT}/examples/nanogpt.py:GPT --mesh dp=2,tp=2 --force --json --out"
        sys.argv = ["shardproof", *words.split(), folder]
        code: object = None
        with contextlib.redirect_stdout(io.StringIO()) as told:
            try:
                cli()
            except SystemExit as end:
                code = end.code
    assert code == 0, told.getvalue()


GROUPS: dict[str, Callable[[Clock], None]] = {
    g.__name__: g for g in (imports, layer, bugs, frontier, demo, corpus)
}


def rows(group: str) -> dict[str, Row]:
    """One group, measured in this process."""
    clock = Clock(group)
    GROUPS[group](clock)
    return clock.rows


def measured(group: str) -> dict[str, Row]:
    """One group, measured in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(rows, group).result()


def worse(found: Mapping[str, Row], known: Mapping[str, float]) -> list[str]:
    """The rows that take 1.5 times as many loops as is known of them."""
    return [n for n, row in found.items() if n in known and row.ratio >= WORSE * held(known[n])]


def held(ratio: float) -> float:
    """The ratio that others are held against."""
    return max(ratio, FLOOR)


def known(file: Path = FILE) -> dict[str, float]:
    """The ratios of a file; none where there is no file."""
    if not file.exists():
        return {}
    said: dict[str, float] = json.loads(file.read_text(encoding="utf-8"))["ratios"]
    return said


def compared(
    group: str, ratios: Mapping[str, float], measure: Callable[[str], dict[str, Row]] = measured
) -> tuple[dict[str, Row], list[str]]:
    """The rows of a group, and which are worse, twice if need be; of two runs the faster counts."""
    found = measure(group)
    if worse(found, ratios):
        again = measure(group)
        for name, row in again.items():
            found[name] = min(row, found.get(name, row), key=lambda r: r.ratio)
    return found, worse(found, ratios)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--write", action="store_true", help="renew the committed file")
    given = parser.parse_args(arguments)
    chosen: list[str] = given.groups or list(GROUPS)
    unknown = [g for g in chosen if g not in GROUPS]
    if unknown:
        parser.error(f"no group {unknown[0]}; there are {', '.join(GROUPS)}")
    ratios, bad, new = known(), list[str](), dict[str, float]()
    sys.stdout.write(f"{'row':<58} {'cpu s':>7} {'loops':>8} {'file':>8} {'times':>6}\n")
    for group in chosen:
        found, late = compared(group, {} if given.write else ratios)
        bad += late
        for name, row in found.items():
            new[name] = round(row.ratio, 4)
            before = f"{ratios[name]:8.2f}" if name in ratios else f"{'-':>8}"
            times = f"{row.ratio / held(ratios[name]):6.2f}" if name in ratios else f"{'-':>6}"
            mark = "  <- slower" if name in late else ""
            line = f"{name[:58]:<58} {row.seconds:7.2f} {row.ratio:8.2f} {before} {times}{mark}\n"
            sys.stdout.write(line)
            sys.stdout.flush()
    if given.write:
        kept = {n: r for n, r in ratios.items() if n.split(":")[0] not in chosen}
        text = json.dumps({"ratios": dict(sorted({**kept, **new}.items()))}, indent=1)
        FILE.write_text(f"{text}\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
