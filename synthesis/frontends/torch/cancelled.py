"""Sums that are taken off again, and products with 0, left out of a program.

    x + e - e = x        f(d) + f(-d) = 0  for f linear        n + 1000 - 1000 = n        0 e = 0

Over the reals this holds where `e` is a number. So what is left out may hold no infinity and looks
up no entry beyond a table, and where it may have no value, the outputs that are left have none
either.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from shardproof.verifier.analysis.definedness import needed
from shardproof.verifier.analysis.rewrite import Pattern, Rewriting, rewrite
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Output, Program
from shardproof.verifier.kernel.program.registry import traits

_LINEAR = ("index_add", "reshape", "permute", "expand", "slice", "sum", "pad")
"""Ops that are linear in their first operand."""
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "add_scalar": operator.add,
    "mul_scalar": operator.mul,
    "neg": operator.neg,
    "floor": math.floor,
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "cast": Fraction,
}
"""What is computed of one number everywhere."""
_LOOKUPS = frozenset(("take", "index_add", "take_along", "put_along"))
TALKING = ("collective", "movement")
_HUGE = 2**199
"""From which on a number stands for an infinity."""
_MOST = 12
"""Terms of a sum that is looked at."""


@dataclass(frozen=True)
class _Term:
    added: bool
    """Or taken off."""
    value: str
    sign: int
    """Of the term, with the sign of its value."""
    key: int
    """Equal for terms that are alike up to their signs."""


def without_cancelled(program: Program, below: Mapping[str, int], spoken: str = "") -> Program:
    """The program without terms that cancel; the same where none can be left out. Integers of an
    input that `below` names are from 0 to that less one. Outputs whose path starts with `spoken`
    are there to be computed, not to be compared."""
    compared = [o for o in program.outputs if not spoken or not o.path.startswith(spoken)]
    first = [o.value for o in compared if o.role != "grad"]
    found = _Cancelling(program, below, _reached(program, first))
    patterns: dict[str, Pattern] = dict.fromkeys(_OF_NUMBERS, found.number)
    patterns |= dict.fromkeys(("add", "sub"), found.total)
    patterns |= {"add_scalar": found.shifted, "mul_scalar": found.scaled}
    shorter = rewrite(program, patterns)
    if not found.count:
        return program
    for partial, outputs in (
        (found.partial, [o for o in compared if o.role != "grad"]),
        (found.partial_back, compared),
    ):
        ends = [o.value for o in shorter.outputs if (o.role, o.path) in _named(outputs)]
        if not partial <= needed(shorter, ends)[id(shorter)]:
            return program
    return shorter


def _named(outputs: Iterable[Output]) -> set[tuple[str, str]]:
    return {(o.role, o.path) for o in outputs}


def _reached(program: Program, values: Iterable[str]) -> frozenset[str]:
    """What some values are computed from, and these."""
    found = set(values)
    for node in reversed(program.nodes):
        if not found.isdisjoint(node.outputs):
            found.update(node.inputs)
    return frozenset(found)


@dataclass
class _Cancelling:
    program: Program
    below: Mapping[str, int]
    forward: frozenset[str]
    """What outputs other than gradients are computed from."""
    count: int = 0
    """How often something was left out."""
    partial: set[str] = field(default_factory=set[str])
    """Values without which there is none of what was left out."""
    partial_back: set[str] = field(default_factory=set[str])
    """The same, of what only gradients are computed from."""
    done: int = 0
    """Ops that have keys."""
    known: dict[Any, int] = field(default_factory=dict[Any, int])
    signs: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """The sign of a value, and the key of what is left without it."""
    sums: dict[str, tuple[_Term, ...]] = field(default_factory=dict[str, tuple[_Term, ...]])

    def __post_init__(self) -> None:
        self.roles = {i.name: i.role for i in self.program.inputs}

    def total(self, r: Rewriting, node: Node) -> str | None:
        """A sum without the terms that cancel."""
        if (number := self.number(r, node)) is not None:
            return number
        self._follow(r)
        kind, terms = r.type(node.outputs[0]), self.sums[node.outputs[0]]
        if any(r.type(v) != kind for v in node.inputs):
            return None
        left = list(terms)
        for term in terms:
            other = next((t for t in left if (t.sign, t.key) == (-term.sign, term.key)), None)
            if term in left and other is not None and self._is_number(r, node, term.value):
                left.remove(term)
                left.remove(other)
        if len(left) == len(terms) and all(r.number(v) != 0 for v in node.inputs):
            return None
        self.count += 1
        if not left:
            return self._full(r, node, Fraction(0))
        first = next((t for t in left if t.added), left[0])
        made = first.value if first.added else r.add("neg", first.value)
        for term in left:
            if term is not first:
                made = r.add("add" if term.added else "sub", made, term.value)
        return made

    def shifted(self, r: Rewriting, node: Node) -> str | None:
        """A number added, and taken off."""
        if (number := self.number(r, node)) is not None:
            return number
        inner = r.made(node.inputs[0], "add_scalar")
        a = node.attrs["value"]
        b = inner.attrs["value"] if inner is not None else None
        if inner is None or not isinstance(a, Fraction) or not isinstance(b, Fraction):
            return None
        if a + b != 0 or abs(a) >= _HUGE:
            return None
        self.count += 1
        return inner.inputs[0]

    def scaled(self, r: Rewriting, node: Node) -> str | None:
        """A number times 0."""
        if (number := self.number(r, node)) is not None:
            return number
        if node.attrs["value"] != 0 or not self._is_number(r, node, node.inputs[0]):
            return None
        self.count += 1
        return self._full(r, node, Fraction(0))

    def number(self, r: Rewriting, node: Node) -> str | None:
        """What is one number everywhere, written as such."""
        given = [r.number(v) for v in node.inputs]
        given += [node.attrs["value"]] if node.op.endswith("_scalar") else []
        numbers = [Fraction(v) for v in given if isinstance(v, Fraction | int)]
        kind = r.type(node.outputs[0])
        if len(numbers) < len(given) or any(abs(v) >= _HUGE for v in numbers):
            return None
        value = Fraction(_OF_NUMBERS[node.op](*numbers))
        if not kind.is_float and (value.denominator != 1 or node.op == "cast"):
            return None
        return self._full(r, node, value)

    def _full(self, r: Rewriting, node: Node, value: Fraction) -> str:
        kind = r.type(node.outputs[0])
        one = r.add("full", shape=(), value=value, dtype=kind.dtype)
        return r.add("expand", one, shape=kind.shape) if kind.shape else one

    def _follow(self, r: Rewriting) -> None:
        """Keys of the ops that were added since."""
        while self.done < len(r.b.nodes):
            node = r.b.nodes[self.done]
            self.done += 1
            for value in node.outputs:
                self._describe(r, node, value)

    def _describe(self, r: Rewriting, node: Node, value: str) -> None:
        alone = bool(node.where) or node.body is not None or len(node.outputs) > 1
        signs = [self.signs.get(v, (1, self._key(v))) for v in node.inputs]
        if alone or lookup(node.op).kind in TALKING:
            sign, key = 1, self._key(value)
        elif node.op == "neg":
            sign, key = -signs[0][0], signs[0][1]
        else:
            sign = signs[0][0] if signs and node.op in _LINEAR else 1
            firsts = signs if sign > 0 else [(1, signs[0][1]), *signs[1:]]
            attrs = tuple(sorted((k, repr(v)) for k, v in node.attrs.items()))
            key = self._number((node.op, tuple(firsts), attrs))
        self.signs[value] = sign, key
        terms: tuple[_Term, ...] = (_Term(True, value, sign, key),)
        kind = r.type(value)
        if r.number(value) == 0:
            terms = ()
        elif (
            node.op in ("add", "sub") and not alone and all(r.type(v) == kind for v in node.inputs)
        ):
            left, right = (self._terms(v) for v in node.inputs)
            if node.op == "sub":
                right = tuple(_Term(not t.added, t.value, -t.sign, t.key) for t in right)
            terms = (*left, *right) if len(left) + len(right) <= _MOST else terms
        self.sums[value] = terms

    def _terms(self, value: str) -> tuple[_Term, ...]:
        """What a value is the sum of; a 0 is the sum of nothing."""
        return self.sums.get(value) or (
            () if value in self.sums else (_Term(True, value, 1, self._key(value)),)
        )

    def _key(self, value: str) -> int:
        """Of a value that is only itself."""
        return self._number((value,))

    def _number(self, what: Any) -> int:
        return self.known.setdefault(what, len(self.known))

    def _is_number(self, r: Rewriting, node: Node, value: str) -> bool:
        """Whether a value that a node reads holds no infinity and looks up what there is; what it
        has no value without is noted."""
        seen, waiting = {value}, [value]
        partial: set[str] = set()
        while waiting:
            at = waiting.pop()
            made = r.node(at)
            if made is None:
                if self.roles.get(at, "const") == "const":
                    return False
                continue
            if made.where or made.body is not None or not self._finds(r, made):
                return False
            if any(isinstance(v, Fraction) and abs(v) >= _HUGE for v in made.attrs.values()):
                return False
            if traits(made.op).needs:
                partial.update(made.outputs)
            more = [v for v in made.inputs if v not in seen]
            seen.update(more)
            waiting += more
        forward = not self.forward.isdisjoint(node.outputs)
        (self.partial if forward else self.partial_back).update(partial)
        return True

    def _finds(self, r: Rewriting, node: Node) -> bool:
        """Whether each index is one of an entry."""
        if node.op not in _LOOKUPS:
            return lookup(node.op).kind != "index"
        index = r.through(node.inputs[1], "reshape", "expand", "permute", "slice")
        kind = r.type(node.inputs[0])
        dim, size = node.attrs.get("dim", 0), node.attrs.get("size")
        if size is None and isinstance(dim, int) and kind.shape:
            size = kind.shape[dim]
        return isinstance(size, int) and 0 < self.below.get(index, 0) <= size
