"""What is to be repaired, and under what: the part that nothing in the loop can change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from shardproof.synthesis.repair import diagnosis
from shardproof.synthesis.repair.attempts import first
from shardproof.synthesis.repair.edits import Edit, apply, without_dead
from shardproof.synthesis.repair.frame import contract_values, keeps
from shardproof.synthesis.repair.prefix import NOTHING, Held, Prefixes
from shardproof.verifier import verification
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.assemble import well_formed
from shardproof.verifier.verdict import Counterexample, Proof, Unknown, Verdict


@dataclass(frozen=True)
class Candidate:
    """Some edits, and what became of them."""

    edits: tuple[Edit, ...]
    program: Program
    verdict: Verdict
    held: Held
    """What holds of the edited program; everything where it is proved."""

    @property
    def proved(self) -> bool:
        return isinstance(self.verdict, Proof)

    @property
    def finding(self) -> str:
        """The class of what was found: two programs of one class fail in the same way."""
        return finding(self.verdict)

    def __str__(self) -> str:
        return "; ".join(map(str, self.edits)) or "the program as given"


def finding(verdict: Verdict) -> str:
    """Which check fails at which op, without numbers, ranks and indices."""
    match verdict:
        case Proof():
            return ""
        case Counterexample(location=location, witness=witness, wrong_outputs=wrong):
            kind = getattr(witness, "check", "") or f"numbers {' '.join(sorted(wrong))}"
        case Unknown(location=location, open_outputs=wrong):
            kind = f"unknown {' '.join(sorted(wrong))}"
    place = location.text.partition(" = ")[0] if location else ""
    return f"{kind} at {place} {location.op if location else ''}".rstrip()


@dataclass(frozen=True)
class Question:
    """A one-device program, a program of the ranks, and their contract.

    Edits reach the program of the ranks alone. Whatever proposed them, they are applied here, held
    to the frame (inputs, names of outputs, the programs of the contract), and judged by `verify`.
    """

    sequential: Program
    distributed: Program
    contract: Contract
    stated: str = ""
    """The contract as text, for reading only."""
    consts: Mapping[str, Array] = field(default_factory=dict[str, Array])
    max_edits: int = 3
    held_fast: frozenset[str] = frozenset()
    """Values whose ops are left as they are, besides those of programs of the contract."""

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Values whose ops no edit may change."""
        return contract_values(self.distributed) | self.held_fast

    @cached_property
    def prefixes(self) -> Prefixes:
        return Prefixes(self.sequential, self.contract)

    def apply(self, edits: Sequence[Edit], start: Program | None = None) -> Program:
        """The program (or one on the way) with these edits.

        Raises:
            IRError: an edit that does not fit, or that touches what is fixed.
        """
        program = start or self.distributed
        for edit in edits:
            program = apply(program, edit)
        if not self.keeps(program):
            raise IRError("the edit touches what the contract fixes: inputs, outputs, its programs")
        return without_dead(self.distributed, program) if edits else program

    def keeps(self, program: Program) -> bool:
        """Whether an edited program has the frame that it had."""
        return keeps(self.distributed, program, self.fixed)

    def verdict(self, program: Program, *, diagnosed: bool = False) -> Verdict:
        """The verdict on an edited program as a whole: what no repair goes without.

        Raises:
            IRError: a program that is not well formed, or that the contract does not fit.
        """
        decide = diagnosis.verify if diagnosed else verification.verify
        problem = Problem(self.sequential, program, self.contract, consts=self.consts)
        try:
            with np.errstate(all="ignore"):
                return decide(problem, simpler=False)
        except ContractError as error:
            raise IRError(str(error)) from None

    def judge(self, edits: Sequence[Edit], start: Candidate | None = None) -> Candidate:
        """The verdict on the program (or a candidate) with these edits.

        Raises:
            IRError: an edit that does not fit, or that touches what is fixed.
        """
        program = well_formed(self.apply(edits, start.program if start else None))
        verdict = self.verdict(program, diagnosed=True)
        before = start.edits if start else ()
        return Candidate((*before, *edits), program, verdict, self._held(program, verdict))

    def _held(self, program: Program, verdict: Verdict) -> Held:
        if isinstance(verdict, Proof):
            return NOTHING
        wrong = verdict.wrong_outputs if isinstance(verdict, Counterexample) else ()
        return self.prefixes.of(program, wrong)

    def fewest(self, found: Candidate) -> Candidate:
        """A proved candidate of as few of the same edits as possible."""
        fewer = first(fewer_of(found.edits), lambda edits: proved(self.judge(edits)))
        return fewer or found


MOST = 5
"""Edits of which all subsets are looked at."""


def proved(found: Candidate) -> Candidate | None:
    return found if found.proved else None


def fewer_of(edits: tuple[Edit, ...]) -> Iterator[tuple[Edit, ...]]:
    """Fewer edits in the same order, fewest first."""
    for size in range(len(edits) if len(edits) <= MOST else 0):
        yield from combinations(edits, size)
