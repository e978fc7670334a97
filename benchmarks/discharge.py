"""`python -m benchmarks.discharge`: how far Z3 shows the steps of proofs, and what that costs.

Proves the corpus, the right programs at both sizes and the full-size training steps, and asks about
every distinct step that the certificates rest on: first with no answer kept, then with all of them.
Seconds are of the processor. With `--again FILE`, every answer in a file is asked for anew, with
`--write` the rows are kept for docs/trust.md. Exits 1 where a step is shown by its rule alone, is
refuted or not shown, or has another answer than was kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.mutation_testing.corpus import cases
from benchmarks.steps.model import MODELS
from benchmarks.steps.scale import PLANS as PUBLISHED
from benchmarks.steps.step import training_step
from benchmarks.training import PLANS
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.checker.conclusion import conclude
from shardproof.verifier.problem import Problem
from shardproof.verifier.smt.answers import EXTENTS, UNACCEPTED, Answers
from shardproof.verifier.smt.equalities import RESTS
from shardproof.verifier.verdict import Proof
from shardproof.verifier.verification import verify
from tests.right.programs import SIZES, spellings

RESULTS = Path(__file__).parent / "results" / "discharge.json"
HEADS = (
    "programs", "proofs", "by entries", "as polynomials", "identities", "shown by Z3",
    "instances", "forms", *EXTENTS, "with a query", "equal terms", *RESTS,
    "prove s", "check s", "cold s", "warm s",
)  # fmt: skip
STEPS = {
    **{str(p): (MODELS[p.model], p.degrees) for p in PLANS},
    **{f"{p.name}: {p}": (p.model, p.degrees) for p in PUBLISHED},
}


@dataclass
class Row:
    """What was asked of the proofs of some programs."""

    proofs: int = 0
    elements: int = 0
    """Proofs entry by entry."""
    polynomials: int = 0
    """Of these, those whose steps are replayed."""
    instances: int = 0
    prove_s: float = 0.0
    """Until a proof, the programs at hand."""
    check_s: float = 0.0
    cold_s: float = 0.0
    warm_s: float = 0.0
    answers: Answers = field(default_factory=Answers)

    def add(self, problem: Problem) -> None:
        begin = time.process_time()
        proof = verify(problem)
        if not isinstance(proof, Proof):
            return
        self.prove_s += time.process_time() - begin
        self.proofs += 1
        seconds: list[float] = []
        for answers in (None, self.answers, self.answers):
            begin = time.process_time()
            found = check(proof.certificate, problem, answers)
            seconds.append(time.process_time() - begin)
            assert isinstance(found, Accepted), found
        self.check_s += seconds[0]
        self.cold_s += seconds[1]
        self.warm_s += seconds[2]
        if found.steps is None:
            self.elements += 1
            self.polynomials += "identities" in proof.certificate
            return
        self.instances += found.steps.instances

    def cells(self, name: str) -> list[str]:
        kept = [one.answer for one in self.answers.known.values()]
        counts = Counter(one.extent for one in kept)
        queries = sum(one.queries > 0 for one in kept)
        numbers = [self.proofs, self.instances, len(kept), *(counts[e] for e in EXTENTS)]
        spent = self.prove_s, self.check_s, self.cold_s, self.warm_s
        equal = Counter(self.answers.equal.values())
        classes = Counter(self.answers.classes.values())
        told = [self.proofs, self.elements, self.polynomials, classes.total(), classes["shown"]]
        told += [*numbers[1:], queries, equal.total()]
        told += [equal[how] for how in RESTS]
        return [name, *map(str, told), *(f"{s:.1f}" for s in spent)]


def programs(name: str) -> Iterator[Problem]:
    if name == "corpus":
        for case in cases():
            if case.kind == "program" and "right" in case.sections:
                yield Problem(*case.programs("right"))
    elif name == "right":
        for size in SIZES:
            yield from (Problem(*s.programs()) for s in spellings(size) if s.right)
    else:
        model, degrees = STEPS[name]
        step = training_step(model, degrees)
        yield Problem(step.sequential, step.distributed, step.contract)


def again(path: Path) -> int:
    """Ask for every answer of a file anew."""
    kept = Answers(path)
    wrong = kept.again(conclude)
    print("\n".join([f"{len(kept.known)} answers, {len(wrong)} of them others", *map(str, wrong)]))
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.discharge", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all by default")
    parser.add_argument("--again", type=Path, metavar="FILE", help="ask for kept answers anew")
    parser.add_argument("--write", action="store_true", help="keep the rows for docs/trust.md")
    options = parser.parse_args()
    if options.again is not None:
        return again(options.again)
    warnings.simplefilter("ignore", RuntimeWarning)
    given: list[str] = options.names
    print("| " + " | ".join(HEADS) + " |")
    print("|---" * len(HEADS) + "|")
    bad, rows = 0, list[list[str]]()
    for name in ("corpus", "right", *STEPS):
        if given and not any(part in name for part in given):
            continue
        row = Row()
        for problem in programs(name):
            row.add(problem)
        rows.append(row.cells(name))
        print("| " + " | ".join(rows[-1]) + " |", flush=True)
        kept = row.answers.known.values()
        bad += sum(one.answer.extent in ("rule alone", *UNACCEPTED) for one in kept)
    if options.write:
        RESULTS.write_text(json.dumps([HEADS, *rows], indent=1) + "\n", encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
