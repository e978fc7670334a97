"""Wrong programs to repair: the corpus, and mutants with one, two or three faults.

A mutant counts where float64 simulation of every rank says that it is wrong. Its right program is
known, and so is a fix of as many edits as there are faults.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from benchmarks.mutation_testing import messages
from benchmarks.mutation_testing.author import Base
from benchmarks.mutation_testing.cases import Case
from benchmarks.mutation_testing.corpus import cases
from benchmarks.mutation_testing.mutants import Mutation, mutations
from benchmarks.mutation_testing.truth import equal
from benchmarks.mutation_testing.zoo import bases
from benchmarks.steps.examples import preconditions
from benchmarks.steps.strategies import STRATEGIES
from benchmarks.steps.truth import agrees
from shardproof.synthesis.training.step import Step
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract, ContractError, check
from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.search import refute
from shardproof.verifier.text.assemble import well_formed

assert messages.__name__  # importing it declares its kinds of mutations
PARTS = ("corpus", "zoo", "training")
EACH = {"zoo": 36, "training": 1}
"""Mutants of each right program, by part: 502 in all."""
FAULTS = (1, 2, 3)
"""How many faults the mutants have, in turn."""
TRIES = 20


@dataclass(frozen=True)
class Source:
    """A right pair of programs to put faults into."""

    name: str
    sequential: Program
    distributed: Program
    contract: Contract
    right: Callable[[Program], bool]
    """Whether every rank computes what one device does, by float64 simulation."""
    consts: Mapping[str, Array] = field(default_factory=dict[str, Array])


@dataclass(frozen=True)
class Wrong:
    """A wrong program, or why there is none to repair."""

    name: str
    faults: int
    """Faults that were put in; 0 where nobody counted them."""
    what: tuple[str, ...]
    source: Source | None = None
    program: Program | None = None
    """Composed with the programs of the contract."""
    twin: Program | None = None
    """The right program, where it is known."""
    stated: str = ""
    """The contract as text."""
    reason: str = ""


@dataclass(frozen=True)
class Making:
    """A wrong program that is not made yet: drawing a mutant takes a while."""

    name: str
    made: Callable[[], Wrong]


def wrong(part: str, limit: int | None = None, seed: int = 0) -> Iterator[Making]:
    """The programs of a part in an order that does not change."""
    made = _corpus() if part == "corpus" else _mutants(part, seed)
    for count, one in enumerate(made):
        if limit is not None and count >= limit:
            return
        yield one


def size(part: str, limit: int | None = None) -> int:
    """How many there are."""
    found = sum(1 for _ in wrong(part)) if part == "corpus" else EACH[part] * _count(part)
    return found if limit is None else min(found, limit)


def _count(part: str) -> int:
    return len(bases()) if part == "zoo" else len(STRATEGIES)


def _corpus() -> Iterator[Making]:
    for case in cases():
        if "wrong" in case.sides:
            name = f"{case.path.parent.name}/{case.path.stem}"
            yield Making(name, lambda case=case, name=name: _case(case, name))


def _case(case: Case, name: str) -> Wrong:
    what = (case.about.get("title", ""),)
    if case.kind != "program":
        return Wrong(name, 0, what, reason=f"no program: a {case.kind} of events")
    try:
        one, many, contract = case.programs("wrong")
        check(one, well_formed(many), contract)
    except (IRError, ContractError) as error:
        return Wrong(name, 0, what, reason=f"no program: {error}")
    twin: Program | None = None
    if "right" in case.sides and "contract right" not in case.sections:
        twin = case.programs("right")[1]

    def right(program: Program) -> bool:
        with np.errstate(all="ignore"):
            return _safely(
                lambda: refute(Problem(inline(one), inline(program), contract), seed=91) is None
            )

    source = Source(name, one, many, contract, right)
    return Wrong(name, 0, what, source, many, twin, case.sections.get("contract", ""))


def _sources(part: str) -> Iterator[Source]:
    return _zoo() if part == "zoo" else _training()


def _zoo() -> Iterator[Source]:
    for base in bases():

        def right(program: Program, base: Base = base) -> bool:
            return _safely(lambda: equal(base, inline(program)))

        yield Source(f"{base}", base.sequential, base.distributed, base.contract, right)


def _training() -> Iterator[Source]:
    for strategy in STRATEGIES:
        step = strategy.step()

        def trained(program: Program, step: Step = step) -> bool:
            return _safely(lambda: agrees(step, inline(program)))

        many, known = step.distributed, preconditions(step)
        yield Source(f"{strategy}", step.sequential, many, step.contract, trained, known)


def _safely(judge: Callable[[], bool]) -> bool:
    """A program that some rank cannot run computes nothing."""
    try:
        return judge()
    except (IRError, KeyError, ValueError):
        return False


def _mutants(part: str, seed: int) -> Iterator[Making]:
    sources = list(_sources(part))
    for number, (place, source) in product(range(EACH[part]), enumerate(sources)):
        faults = FAULTS[(number + place) % len(FAULTS)]
        name = f"{source.name} #{number}"
        yield Making(name, lambda s=source, n=number, f=faults: _mutant(s, n, f, seed))


def _mutant(source: Source, number: int, faults: int, seed: int) -> Wrong:
    """Some faults in a row, each of a kind and at a place drawn evenly."""
    rng = np.random.default_rng([seed, zlib.crc32(source.name.encode()), number])
    program, what = source.distributed, list[str]()
    name = f"{source.name} #{number}"
    for _ in range(faults):
        pools: dict[str, list[Mutation]] = defaultdict(list)
        for mutation in mutations(program):
            pools[mutation.kind].append(mutation)
        edited: Program | None = None
        for _ in range(TRIES):
            kinds = sorted(pools)
            pool = pools[kinds[int(rng.integers(len(kinds)))]]
            mutation = pool[int(rng.integers(len(pool)))]
            edited = mutation.edit()
            if edited is not None and _admitted(source, edited) and not source.right(edited):
                what.append(f"{mutation.kind}: {mutation.text}")
                break
            edited = None
        if edited is None:
            return Wrong(name, faults, tuple(what), reason="no program: no such mutant was drawn")
        program = edited
    return Wrong(name, faults, tuple(what), source, program, source.distributed)


def _admitted(source: Source, program: Program) -> bool:
    try:
        check(source.sequential, well_formed(program), source.contract)
    except (IRError, ContractError):
        return False
    return True
