"""`python -m benchmarks.mutants`: wrong training steps of every strategy, judged.

Each mutant is one edit of the program that all ranks run. Truth is the float64 simulation of every
rank against one device, with no rule involved. A mutant that differs and is proved, or that the
relations alone would accept, is a false accept; one that is equal and refuted on numbers is a
false alarm. A mutant may be refuted by a run in which ranks wait for ever or meet in another order:
that says nothing of values, and is counted by itself.
Outcomes are appended to a file by strategy, so that a run goes on where the last one stopped.
Exits 1 on a false accept, a false alarm, a crash, a strategy that is refuted, or one that should
be proved and is not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

import benchmarks.mutation_testing.messages  # noqa: F401  (declares its kinds)
from benchmarks.mutation_testing.mutants import Mutation, mutations
from benchmarks.steps.examples import preconditions
from benchmarks.steps.strategies import OPEN, STRATEGIES, Strategy
from benchmarks.steps.truth import agrees
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.training.step import Step
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Trace

DISAGREE = "the deciders disagree"
KEPT = Path("build/mutants")


@dataclass(frozen=True)
class Outcome:
    """One mutant: does it compute the step, and what was said of it."""

    strategy: str
    kind: str
    what: str
    equal: bool
    verdict: str
    related: bool
    """The relations accept it."""
    seconds: float

    @property
    def false_accept(self) -> bool:
        return not self.equal and (self.verdict == "proved" or self.related)

    @property
    def false_alarm(self) -> bool:
        return self.equal and self.verdict == "refuted"


def judge(step: Step, distributed: Program) -> tuple[str, bool]:
    """The verdict in a word, and whether the relations accept the program."""
    try:
        with np.errstate(all="ignore"):
            verdict = verify(
                Problem(step.sequential, distributed, step.contract, consts=preconditions(step)),
                simpler=False,
            )
    except (IRError, ContractError):
        return "ill-formed", False
    except Exception:  # noqa: BLE001  (a crash of the verifier is an outcome, and a bad one)
        return "crashed", False
    if isinstance(verdict, Proof):
        return "proved", True
    if isinstance(verdict, Counterexample):
        return ("stuck" if isinstance(verdict.witness, Trace) else "refuted"), False
    return "unknown", verdict.reason.startswith(DISAGREE)


def computes(step: Step, distributed: Program) -> bool:
    """Whether all ranks compute the step; a program that some rank cannot run does not."""
    try:
        return agrees(step, distributed)
    except IRError:
        return False


def drawn(
    program: Program, count: int, rng: np.random.Generator
) -> Iterator[tuple[int, Mutation, Program]]:
    """Mutants of a program by number: kinds evenly, then places; edits that leave none skipped."""
    pools: dict[str, list[Mutation]] = defaultdict(list)
    for mutation in mutations(program):
        pools[mutation.kind].append(mutation)
    number = 0
    for _ in range(20 * count):
        if number == count:
            return
        kinds = sorted(kind for kind, pool in pools.items() if pool)
        if not kinds:
            return
        pool = pools[kinds[int(rng.integers(len(kinds)))]]
        mutation = pool.pop(int(rng.integers(len(pool))))
        edited = mutation.edit()
        if edited is not None:
            yield number, mutation, edited
            number += 1


def run(name: str, count: int, seed: int, folder: Path) -> str:
    """Judge the mutants of one strategy that were not judged yet."""
    strategy = next(s for s in (*STRATEGIES, *OPEN) if s.name == name)
    step, path = strategy.step(), _path(folder, name, seed)
    kept = _lines(path)
    done = len(kept)
    with path.open("w", encoding="utf-8") as file:
        for outcome in kept:
            _write(file.write, outcome)
        if done == 0:
            _write(file.write, _outcome(step, "unmutated", "as written", step.distributed))
            done = 1
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        for number, mutation, edited in drawn(step.distributed, count, rng):
            if number + 1 < done:
                continue
            _write(file.write, _outcome(step, mutation.kind, mutation.text, edited))
            file.flush()
    return name


def _outcome(step: Step, kind: str, what: str, edited: Program) -> Outcome:
    begin = time.perf_counter()
    said, related = judge(step, edited)
    seconds = time.perf_counter() - begin
    return Outcome(step.name, kind, what, computes(step, edited), said, related, seconds)


def _write(write: Callable[[str], object], outcome: Outcome) -> None:
    write(json.dumps(asdict(outcome)) + "\n")


def _path(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{re.sub('[^a-z0-9]+', '-', name)}.{seed}.jsonl"


def _lines(path: Path) -> list[Outcome]:
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [Outcome(**json.loads(line)) for line in whole.splitlines()]


HEADER = (
    "mutants", "differ", "- refuted", "- stuck", "- unknown", "equal", "+ proved", "+ stuck",
    "+ unknown", "ill-formed", "crashed", "false accepts", "false alarms",
)  # fmt: skip


def table(outcomes: Iterable[Outcome], by: str) -> list[tuple[str, ...]]:
    """Counts by strategy or by kind. `-` columns are of those that differ, `+` of equal ones."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for o in outcomes:
        if o.kind == "unmutated":
            continue
        side = "equal" if o.equal else "differ"
        for row in (str(getattr(o, by)), "all"):
            counts[row].update(["mutants", side, f"{side} {o.verdict}"])
            counts[row].update(["accept"] * o.false_accept + ["alarm"] * o.false_alarm)
            counts[row].update(["ill"] * (o.verdict == "ill-formed"))
            counts[row].update(["crash"] * (o.verdict == "crashed"))
    keys = (
        "mutants", "differ", "differ refuted", "differ stuck", "differ unknown", "equal",
        "equal proved", "equal stuck", "equal unknown", "ill", "crash", "accept", "alarm",
    )  # fmt: skip
    rows = sorted(counts, key=lambda row: (row != "all", row))
    return [(by, *HEADER), *((row, *(str(counts[row][k]) for k in keys)) for row in rows)]


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    lines = [
        "| " + " | ".join(rows[0]) + " |",
        "|---" * len(rows[0]) + "|",
        *("| " + " | ".join(row) + " |" for row in rows[1:]),
    ]
    return "\n".join(lines) + "\n"


def report(outcomes: Sequence[Outcome], count: int, seed: int) -> str:
    """The page that is written to `benchmarks/results/`."""
    mutants = [o for o in outcomes if o.kind != "unmutated"]
    differ = [o for o in mutants if not o.equal]
    refuted = sum(o.verdict in ("refuted", "stuck", "ill-formed") for o in differ)
    share = refuted / len(differ) if differ else 0.0
    seconds = sum(o.seconds for o in mutants) / max(len(mutants), 1)
    return "\n".join(
        [
            "# Mutants of training steps",
            "",
            f"Written by `python -m benchmarks.mutants --count {count} --seed {seed} --write "
            "benchmarks/results/training_mutants.md`.",
            "",
            "Every strategy of `benchmarks/steps/strategies.py`: a whole step, forward and "
            "backward, gradient",
            "reduction, clipping and AdamW, with single edits of the program that all ranks run. "
            "Truth is float64",
            "simulation of every rank. The columns with - are of those that differ, with + of "
            "those that are equal;",
            "stuck ones are refuted by a run in which ranks wait for ever or meet out of order.",
            "",
            f"{len(mutants)} mutants, {len(differ)} of them wrong; {100 * share:.2f} % of those "
            "are refuted or refused as no program;",
            f"{sum(o.false_accept for o in mutants)} false accepts, "
            f"{sum(o.false_alarm for o in mutants)} false alarms; {seconds:.2f} s a verdict.",
            "",
            markdown(table(outcomes, "strategy")),
            markdown(table(outcomes, "kind")),
        ]
    )


def _bad(outcomes: Iterable[Outcome]) -> Iterator[str]:
    proved = {s.name for s in STRATEGIES}
    for o in outcomes:
        truth = "equal" if o.equal else "different"
        unproved = o.strategy in proved and o.verdict != "proved"
        if o.kind == "unmutated" and (not o.equal or o.verdict == "refuted" or unproved):
            yield f"{o.verdict} though right: {o.strategy}"
        elif o.false_accept or o.false_alarm or o.verdict == "crashed":
            yield f"{o.verdict} though {truth}: {o.strategy}: {o.kind}: {o.what}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("strategies", nargs="*", help="names, or parts of them; all by default")
    parser.add_argument("--count", type=int, default=40, help="mutants of each strategy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=KEPT, help="where outcomes are kept")
    parser.add_argument("--fresh", action="store_true", help="forget outcomes that are kept")
    parser.add_argument("--write", type=Path, help="a markdown file for the tables")
    parser.add_argument("--show", action="store_true", help="name those that stay unknown")
    given = parser.parse_args()
    chosen: list[Strategy] = [
        s
        for s in (*STRATEGIES, *OPEN)
        if not given.strategies or any(part in s.name for part in given.strategies)
    ]
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.fresh:
        for s in chosen:
            _path(given.folder, s.name, given.seed).unlink(missing_ok=True)
    work = partial(run, count=given.count, seed=given.seed, folder=given.folder)
    with multiprocessing.Pool(given.processes, maxtasksperchild=1) as pool:
        for name in pool.imap_unordered(work, [s.name for s in chosen]):
            print(f"{name} done", file=sys.stderr)
    outcomes = [
        o
        for s in chosen
        for o in _lines(_path(given.folder, s.name, given.seed))[: given.count + 1]
    ]
    rows = table(outcomes, "strategy")
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (c.ljust(w) for c, w in zip(row, widths, strict=True))
        print("  ".join(cells), flush=True)
    bad = list(_bad(outcomes))
    for line in bad:
        print(line)
    for o in outcomes:
        if given.show and o.verdict == "unknown":
            print(
                f"unknown, {'equal' if o.equal else 'different'}: {o.strategy}: {o.kind}: {o.what}"
            )
    if given.write:
        given.write.write_text(report(outcomes, given.count, given.seed), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
