"""Whole activations that meet split ones: keys that all heads share, the inputs of a scan.

What a rank finds of their gradient is a share of a sum. It is taken where the module ends that
makes them, if all that reads what that gives leaves shares, as a column linear does where asked.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Lowered, Pair
from shardproof.synthesis.planner.partial_gradients import Value, of_parameters
from shardproof.synthesis.planner.plan import LocalExtent
from shardproof.synthesis.planner.roles import Module
from shardproof.verifier.kernel.program.program import Node, Program

GIVE_WHOLE = ("row", "replicate", "vocab")
"""Styles of modules whose result every rank has in full."""
LEAVE_SHARES = ("column", "fused_column")
"""Styles of modules that may leave each rank its share of the gradient of what they take."""


@dataclass
class Shared:
    """The forward pass of one lowering, by who reads its values."""

    program: Program
    lowered: Lowered
    styles: Mapping[str, str]
    """Of the modules with parameters."""
    ends: Collection[str]
    """The modules where a gradient may be added up: those that hold no others."""
    tp: str
    taken: Sequence[LocalExtent] = ()
    """Arguments of which modules take a rank's share, as they do of its gradient."""
    readers: dict[Value, list[tuple[Pair, int]]] = field(
        default_factory=dict[Value, "list[tuple[Pair, int]]"]
    )
    makers: dict[Value, Pair] = field(default_factory=dict[Value, Pair])
    known: dict[Value, bool] = field(default_factory=dict[Value, bool])

    def __post_init__(self) -> None:
        forward = forward_values(self.program)
        self.alone = of_parameters(self.program, self.lowered)
        self.returned = {("", o.value) for o in self.program.outputs}
        self.inputs = {("", i.name) for i in self.program.inputs if i.role in ("input", "const")}
        for pair in self.lowered.pairs:
            if (pair.scope, pair.one.outputs[0]) in forward:
                for name in pair.one.outputs:  # a view may be made again, of a piece
                    self.makers.setdefault((pair.scope, name), pair)
                for at, name in enumerate(pair.one.inputs):
                    self.readers.setdefault((pair.scope, name), []).append((pair, at))
        for value in reversed(self.makers):  # the last first: none waits for one behind it
            self._all_split(value)

    def modules(self) -> tuple[frozenset[str], frozenset[str]]:
        """Paths of the modules whose result meets nothing but split activations, and of those that
        take such a result, or what is made of it, and leave shares of its gradient."""
        free = ((v, p, at) for v, pairs in self.readers.items() for p, at in pairs)
        todo = [v for v, pair, at in free if v not in self.alone and self._meets(pair, at)]
        found, leaving, seen = set[str](), set[str](), set[Value]()
        while todo:
            value = todo.pop()
            makers = self.of(value) if value not in seen else None
            seen.add(value)
            if makers is None:
                continue
            ends = [v for v, made in self.makers.items() if made.one.source.module in makers]
            found |= makers
            for pair, at in self._columns(ends):
                leaving.add(pair.one.source.module)
                todo.append((pair.scope, pair.one.inputs[at]))
        return frozenset(found), frozenset(leaving)

    def _columns(self, values: Sequence[Value]) -> list[tuple[Pair, int]]:
        """The products of columns that read values, or what is made of them and whole."""
        todo, seen, found = [*values], set[Value](), list[tuple[Pair, int]]()
        while todo:
            if (at := todo.pop()) in seen:
                continue
            seen.add(at)
            for pair, place in self.readers.get(at, []):
                if self._leaves(pair, place):
                    found.append((pair, place))
                elif self.tp not in pair.result.mentioned:
                    todo.append((pair.scope, pair.one.outputs[0]))
        return found

    def of(self, value: Value) -> set[str] | None:
        """The modules that make a whole value, where ranks may add up its gradient there; None
        where they may not."""
        todo, seen, found = [value], set[Value](), set[str]()
        while todo:
            at = todo.pop()
            if at in seen or at in self.alone or at in self.inputs:
                continue
            seen.add(at)
            made = self.makers.get(at)
            if made is None or made.one.body is not None:
                return None
            if not self._is_float(at):
                continue
            module = made.one.source.module
            ends = module in self.ends and self.styles.get(module) in GIVE_WHOLE
            if not self._all_split(at) or (not ends and self.tp in made.result.mentioned):
                return None
            if ends:
                found.add(module)
                continue
            todo += ((made.scope, name) for name in made.one.inputs)
        return found

    def _meets(self, pair: Pair, at: int) -> bool:
        """Whether an op, in code that no style runs, joins a whole operand with a split one."""
        free = self.styles.get(pair.one.source.module, "replicate") == "replicate"
        return free and self._splits(pair, at)

    def _leaves(self, pair: Pair, at: int) -> bool:
        """Whether an op is the product of a column with a whole activation."""
        return self.styles.get(pair.one.source.module) in LEAVE_SHARES and self._splits(pair, at)

    def _splits(self, pair: Pair, at: int) -> bool:
        made = self.makers.get((pair.scope, pair.one.inputs[at]))
        whole = len(pair.operands) > at and self.tp not in pair.operands[at].mentioned
        whole = whole or (made is not None and self.tp not in made.result.mentioned)
        meets = whole and pair.one.body is None and self.tp in pair.result.sharded
        return meets and not self._is_taken(pair, at)

    def _is_taken(self, pair: Pair, at: int) -> bool:
        """Whether an operand is an argument that a module around the op takes its share of."""
        types = self._body(pair.scope).types if pair.scope else self.program.types
        shape = types[pair.one.inputs[at]].shape
        sizes = (
            size
            for taken in self.taken
            if f"{pair.one.source.module}.".startswith(f"{taken.module}.")
            for size in (taken.before, taken.whole)
        )
        return any(
            len(size) == len(shape) and all(n % m == 0 for n, m in zip(shape, size, strict=True))
            for size in sizes
        )

    def _all_split(self, value: Value) -> bool:
        """Whether all that depends on a value meets split activations first."""
        if value not in self.known:
            pairs = self.readers.get(value, [])
            ends = value in self.returned or not pairs
            self.known[value] = not ends and all(self._is_split(p, at) for p, at in pairs)
        return self.known[value]

    def _is_split(self, pair: Pair, at: int) -> bool:
        if self._meets(pair, at) or self._leaves(pair, at):
            return True
        result = pair.scope, pair.one.outputs[0]
        if not self._is_float(result):
            return True
        style = self.styles.get(pair.one.source.module, "replicate")
        free = style in GIVE_WHOLE + LEAVE_SHARES
        layouts = *pair.operands, pair.result
        still = pair.one.body is None and all(self.tp not in x.mentioned for x in layouts)
        return free and still and self._all_split(result)

    def _is_float(self, value: Value) -> bool:
        scope, name = value
        pair = self.makers.get(value)
        types = self.program.types if not scope else self._body(scope).types
        return pair is None or types[name].is_float

    def _body(self, scope: str) -> Program:
        return self._scans[scope].block

    @cached_property
    def _scans(self) -> dict[str, Node]:
        return {n.outputs[0]: n for n in self.program.nodes if n.body is not None}


def ends(modules: Sequence[Module]) -> frozenset[str]:
    """Paths of the modules that hold no others."""
    return frozenset(m.path for m in modules if m.path and not m.holds)
