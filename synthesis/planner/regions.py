"""Which modules of a plan are split together: what one of them leaves split, another takes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Lowered, Pair
from shardproof.synthesis.planner.narrowing import alike
from shardproof.synthesis.planner.roles import Module
from shardproof.verifier.kernel.program.program import Program

Value = tuple[str, str]
"""The scan that a value is made in, '' at the top, and its name."""
Line = tuple[str, int]
_T = TypeVar("_T")


class _Sets(Generic[_T]):
    """Disjoint sets that grow together."""

    def __init__(self) -> None:
        self.parent: dict[_T, _T] = {}

    def find(self, item: _T) -> _T:
        """The member that stands for the set of an item."""
        parent = self.parent.setdefault(item, item)
        while parent != item:
            item, parent = parent, self.parent[parent]
        return item

    def join(self, items: Iterable[_T]) -> None:
        found = list(dict.fromkeys(map(self.find, items)))
        self.parent.update(dict.fromkeys(found[1:], found[0]) if found else {})


class Regions:
    """The modules that one plan splits, by the activations over `tp` that connect them in the
    forward pass. Modules that are one choice in every layer are together."""

    def __init__(
        self,
        program: Program,
        lowered: Lowered,
        modules: Sequence[Module],
        split: set[str],
        tp: str,
    ) -> None:
        forward = forward_values(program)
        self._pairs = [p for p in lowered.pairs if (p.scope, p.one.outputs[0]) in forward]
        made = {(p.scope, v) for p in self._pairs for v in p.one.outputs}
        self._tp, self._sets = tp, _Sets[Value]()
        for pair in self._pairs:
            self._sets.join(v for v in self._touched(pair) if v in made)
        kinds = _Sets[str]()
        for paths in alike(m for m in modules if m.path in split):
            kinds.join(paths)
        held: dict[Value, str] = {}
        for pair in self._pairs:
            path = pair.one.source.module
            if path not in split:
                continue
            for value in self._touched(pair):
                if value in made:
                    kinds.join((path, held.setdefault(self._sets.find(value), path)))
        found: dict[str, list[str]] = {}
        for path in (m.path for m in modules if m.path in split):
            found.setdefault(kinds.find(path), []).append(path)
        self.parts = [frozenset(paths) for paths in found.values()]
        """In the order in which they are used first."""
        self._held = held

    def _touched(self, pair: Pair) -> Iterator[Value]:
        """The values of an op that are split over tp, or a sum over it."""
        names, split = pair.one.inputs, [self._tp in at.mentioned for at in pair.operands]
        if len(split) != len(names):  # an op that a rank computes from other operands
            split = [any(split)] * len(names)
        yield from ((pair.scope, name) for name, here in zip(names, split, strict=True) if here)
        if self._tp in pair.result.mentioned:
            yield pair.scope, pair.one.outputs[0]

    def at(self, line: Line) -> frozenset[str]:
        """The modules that are split together with what a line of the source works on."""
        names = {
            self._held.get(self._sets.find(value))
            for pair in self._pairs
            if (pair.one.source.file, pair.one.source.line) == line
            for value in self._touched(pair)
        }
        return frozenset[str]().union(*(p for p in self.parts if names & p))
