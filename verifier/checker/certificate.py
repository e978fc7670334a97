"""Which question a certificate answers, as the checker reads it, and its seal.

Nothing about the programs of a question is taken on trust. `verifier/certify.py` writes
certificates; docs/certificate.md says what one holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardproof.verifier.kernel.inline import inline
from shardproof.verifier.kernel.ops import OWN
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem
from shardproof.verifier.text.assemble import shared, well_formed
from shardproof.verifier.text.digest import digest

if TYPE_CHECKING:
    from shardproof.verifier.order.events import TimeProgram

VERSION = 5
ELEMENTWISE = "elementwise"
"""The kind of certificate that has no claims: the comparison is made anew."""


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
    def about(self) -> str:
        """A digest of the programs and of the contract."""
        said = json.dumps([*self.digests, self.problem.contract.to_json()], sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

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


def header(given: Prepared) -> dict[str, Any]:
    """Which question a certificate answers."""
    p, (sequential, distributed) = given.problem, given.digests
    return {
        "sequential": {"name": p.sequential.name, "digest": sequential},
        "distributed": {"name": p.distributed.name, "digest": distributed},
        "mesh": [list(d) for d in p.distributed.mesh.dims],
        "contract": p.contract.to_json(),
    }


def sealed(document: Mapping[str, Any], order: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The certificate with its seal, and with what shows that events are in order."""
    body = {**{k: v for k, v in document.items() if k != "seal"}, "order": list(order)}
    return {**body, "seal": seal(body)}


def seal(document: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of a certificate but for its seal: it shows damage, the checker shows truth."""
    body = {k: v for k, v in document.items() if k != "seal"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
