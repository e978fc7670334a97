"""The programs of a question as the checker reads them: nothing about them is taken on trust."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import OWN
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.digest import digest
from shardproof.verifier.text.wellformed import shared, well_formed

if TYPE_CHECKING:
    from shardproof.verifier.order.events import TimeProgram


@dataclass
class Prepared:
    """A problem in primitive ops, all types inferred anew: worked out once, for prover and
    checker."""

    problem: Problem
    written: Program
    """The distributed program as given."""
    others: frozenset[str]
    """Ops of both programs that are not declared in `verifier/kernel/ops`."""
    renamed: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    """By the `id` of each program in `written`, what results of composite ops are called now."""

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Of the one-device and of the distributed program."""
        return digest(self.problem.sequential), digest(self.problem.distributed)

    @cached_property
    def events(self) -> TimeProgram:
        """What the ranks do in time. Raises IRError where that cannot be told."""
        from shardproof.verifier.order.from_program import from_program

        return from_program(self.problem.distributed, meetings=True)


def prepare(problem: Problem) -> Prepared:
    """Raises IRError: a program that is not well formed."""
    sequential = well_formed(shared(problem.sequential))
    written = well_formed(shared(problem.distributed))
    ops = frozenset(n.op for program in (sequential, written) for _, n in program.distinct())
    out = Prepared(problem, written, ops - OWN)
    sequential, distributed = inline(sequential), inline(out.written, names=out.renamed)
    out.problem = replace(problem, sequential=sequential, distributed=distributed)
    return out
