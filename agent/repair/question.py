"""What is to be repaired, and under what: the part that nothing in the loop can change."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np

from shardproof.synthesis.repair.diagnosis import verify
from shardproof.synthesis.repair.edits import Edit, apply, without_dead
from shardproof.synthesis.repair.frame import contract_values, keeps
from shardproof.synthesis.repair.prefix import NOTHING, Held, Prefixes
from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import Contract, ContractError
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.wellformed import well_formed
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

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Values that programs of the contract make."""
        return contract_values(self.distributed)

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
        if not keeps(self.distributed, program, self.fixed):
            raise IRError("the edit touches what the contract fixes: inputs, outputs, its programs")
        return without_dead(self.distributed, program) if edits else program

    def judge(self, edits: Sequence[Edit], start: Candidate | None = None) -> Candidate:
        """The verdict on the program (or a candidate) with these edits.

        Raises:
            IRError: an edit that does not fit, or that touches what is fixed.
        """
        program = well_formed(self.apply(edits, start.program if start else None))
        try:
            with np.errstate(all="ignore"):
                verdict = verify(
                    Problem(self.sequential, program, self.contract, consts=self.consts),
                    simpler=False,
                )
        except ContractError as error:
            raise IRError(str(error)) from None
        before = start.edits if start else ()
        return Candidate((*before, *edits), program, verdict, self._held(program, verdict))

    def _held(self, program: Program, verdict: Verdict) -> Held:
        if isinstance(verdict, Proof):
            return NOTHING
        wrong = verdict.wrong_outputs if isinstance(verdict, Counterexample) else ()
        return self.prefixes.of(program, wrong)

    def fewest(self, found: Candidate) -> Candidate:
        """A proved candidate of as few of the same edits as possible."""
        for edits in _subsets(found.edits):
            try:
                fewer = self.judge(edits)
            except IRError:
                continue
            if fewer.proved:
                return fewer
        return found


MOST = 5
"""Edits of which all subsets are looked at."""


def _subsets(edits: tuple[Edit, ...]) -> Iterator[tuple[Edit, ...]]:
    """Fewer edits in the same order, fewest first."""
    for size in range(len(edits) if len(edits) <= MOST else 0):
        yield from combinations(edits, size)
