"""How far a wrong program is right: outputs and one-device values whose relations hold.

This is proved, not guessed: the relations are those of the verifier's walk. It compares programs on
the way to a repair, and says from which one to start afresh.
"""

from collections.abc import Collection
from dataclasses import dataclass

from synthesis.repair.edits import Edit, apply
from synthesis.repair.offers import likely
from verifier.kernel.contract import Contract, output_key
from verifier.kernel.inline import inline
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.program import Program
from verifier.provers.relate.facts import Fact, Related
from verifier.provers.relate.goal import initial, satisfied
from verifier.provers.relate.rules import Rules
from verifier.provers.relate.walk import relate
from verifier.provers.sequential import Sequential, as_terms
from verifier.text.wellformed import shared, well_formed


@dataclass(frozen=True)
class Held:
    """What holds of a distributed program."""

    outputs: frozenset[str]
    """Keys of the outputs that are as the contract asks."""
    values: frozenset[str]
    """One-device values of which the distributed program has the pieces."""

    @property
    def rank(self) -> tuple[int, int]:
        """More is further."""
        return len(self.outputs), len(self.values)

    def __str__(self) -> str:
        return f"{len(self.outputs)} outputs and {len(self.values)} values hold"


NOTHING = Held(frozenset(), frozenset())


class Prefixes:
    """Judges how far distributed programs are right under one question."""

    def __init__(self, sequential: Program, contract: Contract) -> None:
        self.one: Sequential = as_terms(inline(well_formed(shared(sequential))))
        self.contract = contract
        self.names = {ref: name for name, ref in reversed(self.one.values.items())}

    def of(self, distributed: Program, but: Collection[str] = ()) -> Held:
        """What holds of a program; nothing where it is not well formed. `but` are output keys that
        numbers have shown to be wrong."""
        walked = self._walked(distributed)
        if walked is None:
            return NOTHING
        many, related, wrong = walked
        held = {output_key(o) for o in many.outputs} - set(wrong) - set(but)
        facts = (f for value in related.facts.values() for f in value)
        values = {self.names[f.ref] for f in facts if f.ref in self.names}
        return Held(frozenset(held), frozenset(values))

    def suggested(self, distributed: Program, most: int = 8) -> list[Edit]:
        """Single edits that the relations suggest, likeliest first; none is judged."""
        walked = self._walked(distributed)
        out: dict[Edit, None] = {}
        for edit in likely(self.one, walked[0], self.contract, *walked[1:]) if walked else ():
            if len(out) == most:
                break
            try:
                apply(distributed, edit)
            except IRError:
                continue
            out[edit] = None
        return list(out)

    def _walked(
        self, distributed: Program
    ) -> tuple[Program, Related, dict[str, list[Fact]]] | None:
        """The program in primitive ops, what it is related to, and the outputs that are wrong."""
        try:
            many = inline(well_formed(shared(distributed)))
        except IRError:
            return None
        known = initial(self.contract, self.one, many)
        related = relate(self.one, many, known, self.contract, Rules(many.mesh))
        return many, related, satisfied(self.one, many, related, self.contract)


__all__ = ["NOTHING", "Held", "Prefixes"]
