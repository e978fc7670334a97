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
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "benchmarks" / "results" / "ledger.json"
WORSE = 1.5
"""From this many times the ratio of the file on, a row is worse."""
FLOOR = 0.1
"""Rows of fewer loops than this are measured with too little of the clock to be held against it."""
RUNS = 7
"""Runs of what takes less than a second; the fastest counts."""
LOOPS = 3
"""Runs of the loop before a group, and after it; the one in the middle counts."""
Seconds = Mapping[str, float]
"""Seconds of the processor by row."""


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


def fastest(work: Callable[[], object], runs: int = RUNS) -> float:
    """Seconds of the processor of the fastest run."""
    taken: list[float] = []
    for _ in range(runs):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return min(taken)


# The groups


def layer() -> Seconds:
    """One layer at full size, proved, and its certificate replayed."""
    from synthesis.repair.diagnosis import verify
    from synthesis.training.model import MODELS, Degrees
    from synthesis.training.step import training_step
    from verifier.checker import Accepted, check
    from verifier.problem import Problem
    from verifier.verdict import Proof

    out: dict[str, float] = {}
    for name in ("llama3-8b", "llama3-405b"):
        step = training_step(replace(MODELS[name], layers=1, batch=1), Degrees(tp=8))
        programs = step.sequential, step.distributed, step.contract
        said = verify(Problem(*programs))
        assert isinstance(said, Proof), said
        certificate = said.certificate
        assert isinstance(check(certificate, *programs), Accepted)
        out[f"{name} proved"] = fastest(lambda p=programs: verify(Problem(*p)))
        out[f"{name} checked"] = fastest(lambda p=programs, c=certificate: check(c, *p))
    return out


def bugs() -> Seconds:
    """The plan as it was written, and bugs of several kinds."""
    from benchmarks.artifact_bugs import ALL, run
    from synthesis.training.model import MODELS

    chosen = [b for b in ALL if b.number in (1, 9, 12)]
    out: dict[str, float] = {}
    for bug in (None, *chosen):
        said = run(bug, MODELS["llama3-8b"])
        assert said.found if bug else said.verdict == "proved", said
        out[said.name] = said.cpu
    return out


def corpus() -> Seconds:
    """All of the corpus, and its proofs replayed."""
    from benchmarks.mutation_testing.corpus import main

    with contextlib.redirect_stdout(io.StringIO()) as told:
        begin = time.process_time()
        code = main([])
        taken = time.process_time() - begin
    assert code == 0, told.getvalue()
    return {"all of it": taken}


def frontier() -> Seconds:
    """Published plans, written and proved once."""
    from synthesis.training.scale import PLANS, measured

    out: dict[str, float] = {}
    for point in (p for p in PLANS if p.name in ("L1", "L3", "D1")):
        row = measured(point, again=False, checked=False)
        assert row.verdict == "proved", row
        out[point.name] = row.cpu_s
    return out


def imports() -> Seconds:
    """What a fresh interpreter takes for a module, its own start included."""
    out: dict[str, float] = {}
    for module in ("verifier", "agent.cli"):
        command = [sys.executable, "-c", f"import {module}"]
        taken: list[float] = []
        for _ in range(RUNS + 1):  # the first one writes bytecode
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, cwd=ROOT)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            user = after.ru_utime - before.ru_utime
            taken.append(user + after.ru_stime - before.ru_stime)
        out[module] = min(taken[1:])
    return out


def demo() -> Seconds:
    """The phases of `parallelize` on a user file, with what other processes do in them."""
    from agent import cli, events
    from agent.run import Run

    begun: dict[str, float] = {}
    out: dict[str, float] = {}
    plain = Run.emit

    def emit(self: Run, event: events.Event) -> None:
        if isinstance(event, events.PhaseStarted):
            begun[event.phase] = sum(os.times()[:4])
        elif isinstance(event, events.PhaseCompleted):
            out[event.phase] = sum(os.times()[:4]) - begun[event.phase]
        plain(self, event)

    Run.emit = emit
    with tempfile.TemporaryDirectory() as folder:
        words = "parallelize examples/nanogpt.py:GPT --mesh dp=2,tp=2 --force --json --out"
        sys.argv = ["shardproof", *words.split(), folder]
        code: object = None
        with contextlib.redirect_stdout(io.StringIO()) as told:
            try:
                cli.main()
            except SystemExit as end:
                code = end.code
    assert code == 0, told.getvalue()
    return out


GROUPS: dict[str, Callable[[], Seconds]] = {
    g.__name__: g for g in (imports, layer, bugs, frontier, demo, corpus)
}


def rows(group: str) -> dict[str, Row]:
    """One group, measured in this process."""
    loop()
    loops = [loop() for _ in range(LOOPS)]
    found = GROUPS[group]()
    by = median([*loops, *(loop() for _ in range(LOOPS))])
    return {f"{group}: {name}": Row(s, s / by) for name, s in found.items()}


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
