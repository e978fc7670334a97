"""What is kept of a proof, so that an edited program is proved by what changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verifier.checker import Prepared
from verifier.kernel.contract import Contract
from verifier.kernel.program.program import Program
from verifier.kernel.program.types import Mesh
from verifier.kernel.rank_sets import Regions, regions
from verifier.order.meetings import in_order, is_quiet, meeting_mesh
from verifier.provers.relate import Related
from verifier.provers.sequential import Sequential


@dataclass
class Names:
    """Values of a program as written -> as they are called in primitive ops, where that differs."""

    values: dict[str, str] = field(default_factory=dict[str, str])
    blocks: dict[str, Names] = field(default_factory=dict[str, "Names"])
    """By the first result of each repeated block."""

    def __call__(self, value: str) -> str:
        return self.values.get(value, value)


@dataclass
class Base:
    """A proved pair of programs, with the facts that the proof rests on."""

    written: Program
    """The distributed program as given, its types inferred."""
    plain: Program
    """The same in primitive ops."""
    names: Names
    contract: Contract
    one: Sequential
    related: Related
    places: Regions
    meeting: Mesh | None
    """The ranks that stand for all where its order in time was judged; None: its order is that of
    its text, and nothing was to be judged."""
    quiet: bool
    """Nothing but messages and collectives could go wrong in time."""
    scope: tuple[str, ...]
    assumptions: tuple[str, ...]
    nodes: int = 0
    """Ops, those of repeated blocks once for each block."""


def base(
    given: Prepared,
    one: Sequential,
    related: Related,
    scope: tuple[str, ...],
    assumptions: tuple[str, ...],
) -> Base:
    plain, written = given.problem.distributed, given.written
    timeless, places = in_order(plain), regions(plain)
    return Base(
        written,
        plain,
        _names(written, given.renamed, {}),
        given.problem.contract,
        one,
        related,
        places,
        None if timeless else meeting_mesh(plain, places),
        is_quiet(plain),
        scope,
        assumptions,
        sum(1 for _ in written.walk()),
    )


def _names(
    program: Program, renamed: Mapping[int, dict[str, str]], made: dict[int, Names]
) -> Names:
    if id(program) not in made:
        blocks = {
            node.outputs[0]: _names(node.body, renamed, made)
            for node in program.nodes
            if node.body is not None
        }
        made[id(program)] = Names(dict(renamed.get(id(program), {})), blocks)
    return made[id(program)]
