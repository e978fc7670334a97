"""`python -m benchmarks.mutation_testing`: mutants and rewrites, judged by running every rank."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.mutation_testing import rewrites
from benchmarks.mutation_testing.author import Base
from benchmarks.mutation_testing.mutants import Mutation, mutations
from benchmarks.mutation_testing.truth import equal
from benchmarks.mutation_testing.zoo import bases
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.checker import Accepted, check
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.provers.relate.rules import Rules, initial, satisfied
from shardproof.verifier.provers.relate.walk import relate
from shardproof.verifier.provers.sequential import as_terms
from shardproof.verifier.smt.answers import Answers
from shardproof.verifier.verdict import Counterexample, Proof, Unknown

REWRITE = "rewrite: "
ANSWERS = Answers()
"""What Z3 said of the steps of proofs so far."""


@dataclass(frozen=True)
class Outcome:
    """One variant: is it equal, what was said of it, and would the relations alone accept it."""

    kind: str
    what: str
    equal: bool
    verdict: str
    related: bool

    @property
    def false_accept(self) -> bool:
        return not self.equal and (self.verdict == "proved" or self.related)

    @property
    def false_alarm(self) -> bool:
        return self.equal and self.verdict == "refuted"


def related(base: Base, distributed: Program) -> bool:
    """Whether the relations alone hold for every output, with no number computed."""
    one = as_terms(inline(base.sequential))
    many = inline(distributed)
    rules = Rules(many.mesh)
    found = relate(one, many, initial(base.contract, one), base.contract, rules)
    return not satisfied(one, many, found, base.contract)


def judge(base: Base, distributed: Program) -> str:
    """The verdict in a word: `rejected` is a proof of which Z3 or numbers refute a step, and a
    program that the verifier does not admit is `ill-formed`."""
    problem = Problem(base.sequential, distributed, base.contract)
    try:
        with np.errstate(all="ignore"):
            verdict = verify(problem)
    except (IRError, ContractError):
        return "ill-formed"
    match verdict:
        case Proof():
            found = check(verdict.certificate, problem, ANSWERS)
            return "proved" if isinstance(found, Accepted) else "rejected"
        case Counterexample():
            return "refuted"
        case Unknown():
            return "unknown"


def outcome(base: Base, kind: str, what: str, distributed: Program) -> Outcome:
    said = judge(base, distributed)
    holds = said != "ill-formed" and related(base, distributed)
    return Outcome(kind, f"{base}: {what}", equal(base, distributed), said, holds)


def rewritten(base: Base, rng: np.random.Generator, steps: int) -> tuple[Base, str] | None:
    """The base after random rewrites that keep its meaning, and their names."""
    names: list[str] = []
    program = base.distributed
    for _ in range(steps):
        kind = rewrites.kinds()[int(rng.integers(len(rewrites.kinds())))]
        changed = rewrites.apply(program, kind, base.contract, rng)
        if changed is not None:
            program = changed
            names.append(kind)
    if not names:
        return None
    return Base(base.name, base.sequential, program, base.contract), ", then ".join(names)


def campaign(count: int, seed: int, keep: Sequence[Base]) -> Iterator[Outcome]:
    """The bases, every kind of rewrite on every base, chains of rewrites, and `count` mutants.

    Half of the mutants start from a rewritten base. Kinds are drawn evenly, then places.
    """
    rng = np.random.default_rng(seed)
    for base in keep:
        yield outcome(base, "unmutated", "as written", base.distributed)
        for kind in rewrites.kinds():
            changed = rewrites.apply(base.distributed, kind, base.contract, rng)
            if changed is not None:
                yield outcome(base, REWRITE + kind, kind, changed)
    for _ in range(count // 10):
        made = rewritten(keep[int(rng.integers(len(keep)))], rng, int(rng.integers(2, 6)))
        if made is not None:
            yield outcome(made[0], REWRITE + "chain of 2 to 5", made[1], made[0].distributed)
    found = fresh = 0
    pools: dict[str, list[tuple[Base, Mutation]]] = {}
    while found < count:
        if found >= fresh:
            fresh += 250
            pools = _pools(keep, rng)
        kinds = sorted(pools)
        kind = kinds[int(rng.integers(len(kinds)))]
        base, mutation = pools[kind][int(rng.integers(len(pools[kind])))]
        program = mutation.edit()
        if program is not None:
            found += 1
            yield outcome(base, kind, mutation.text, program)


def _pools(
    keep: Sequence[Base], rng: np.random.Generator
) -> dict[str, list[tuple[Base, Mutation]]]:
    """Mutations by kind, of the bases and of one rewriting of each."""
    pools: dict[str, list[tuple[Base, Mutation]]] = defaultdict(list)
    for base in keep:
        made = rewritten(base, rng, 3)
        for start in (base, made[0] if made else base):
            for mutation in mutations(start.distributed):
                pools[mutation.kind].append((start, mutation))
    return pools


HEADER = (
    "kind", "variants", "differ", "- refuted", "- unknown", "equal", "+ proved", "+ unknown",
    "ill-formed", "false accepts", "false alarms",
)  # fmt: skip


def table(outcomes: Iterable[Outcome]) -> list[tuple[str, ...]]:
    """Counts by kind. `-` columns are of those that differ, `+` columns of those that are equal."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for o in outcomes:
        for kind in (o.kind, "all rewrites" if o.kind.startswith(REWRITE) else "all mutants"):
            if o.kind == "unmutated" and kind != o.kind:
                continue
            side = "equal" if o.equal else "differ"
            counts[kind].update(["variants", side, f"{side} {o.verdict}"])
            counts[kind].update(["accept"] * o.false_accept + ["alarm"] * o.false_alarm)
            counts[kind].update(["ill"] * (o.verdict == "ill-formed"))
    keys = (
        "variants", "differ", "differ refuted", "differ unknown", "equal", "equal proved",
        "equal unknown", "ill", "accept", "alarm",
    )  # fmt: skip
    order = ("unmutated", "all rewrites", "all mutants")
    kinds = sorted(counts, key=lambda k: (k not in order, order.index(k) if k in order else k))
    return [HEADER, *((k, *(str(counts[k][c]) for c in keys)) for k in kinds)]


def markdown(rows: Sequence[tuple[str, ...]], count: int, seed: int, seconds: float) -> str:
    lines = [
        "# Mutation campaign",
        "",
        f"Written by `python -m benchmarks.mutation_testing --count {count} --seed {seed} --write "
        f"benchmarks/results/mutants.md` in {seconds:.0f} s on one core.",
        "",
        "Truth is float64 simulation of every rank. A variant that differs and is proved, or that",
        "the relations alone accept, is a false accept; one that is equal and refuted is a false",
        "alarm. The columns with - are of those that differ, with + of those that are equal.",
        "",
        "| " + " | ".join(h.strip() for h in rows[0]) + " |",
        "|---" * len(rows[0]) + "|",
        *("| " + " | ".join(row) + " |" for row in rows[1:]),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit status 1 on any false accept or false alarm, a proof that is rejected, or a base that is
    not proved."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mutation_testing", description=__doc__
    )
    parser.add_argument("--count", type=int, default=2000, help="mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="a markdown file for the table")
    parser.add_argument("--show", action="store_true", help="name variants that stay unknown")
    given = parser.parse_args()
    begin = time.perf_counter()
    outcomes: list[Outcome] = []
    for made in campaign(given.count, given.seed, bases()):
        outcomes.append(made)
        if len(outcomes) % 250 == 0:
            sys.stderr.write(f"{len(outcomes)} variants\n")
    seconds = time.perf_counter() - begin
    rows = table(outcomes)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        sys.stdout.write("  ".join(cells) + "\n")
    bad = [o for o in outcomes if o.false_accept or o.false_alarm or o.verdict == "rejected"]
    bad += [o for o in outcomes if o.kind == "unmutated" and o.verdict != "proved"]
    shown = bad + [o for o in outcomes if given.show and o.verdict == "unknown"]
    for o in shown:
        truth = "equal" if o.equal else "different"
        sys.stdout.write(f"{o.verdict} though {truth} (related: {o.related}): {o.kind}: {o.what}\n")
    sys.stdout.write(f"{len(outcomes)} variants in {seconds:.1f} s\n")
    if given.write:
        given.write.write_text(markdown(rows, given.count, given.seed, seconds), encoding="utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
