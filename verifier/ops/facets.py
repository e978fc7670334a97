"""What provers, the refuter, captures and pages know of an op besides what the kernel holds.

A claim that a description does not make is not believed, as with `Traits`: `tests/laws` tries each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.registry import REGISTRY, AttrMap, Op, lookup
from shardproof.verifier.ops.bounds import Bounded, Bounds, among

if TYPE_CHECKING:
    from shardproof.verifier.kernel.program.builder import Builder

Names = Sequence[str]
"""Values of a program."""
Pulled = list[str | None]
"""A cotangent for each input, None where none passes."""
Vjp = Callable[["Builder", Names, Names, Names, AttrMap], Pulled]


def _written_out(*_: Any, **__: Any) -> Any:
    raise TypeError("composites are written out, and scans stepped through, by the interpreter")


@dataclass
class Facets:
    """Every field after `aten` is a claim; its default claims nothing."""

    meaning: Callable[..., Any] = _written_out
    """What it computes: `meaning(domain, *arrays, **attrs)`. For collectives and movements the
    arrays are those of the ranks of one group, in group order; theirs are returned."""
    doc: str = ""
    vjp_rule: Vjp | None = None
    aten: tuple[str, ...] = ()
    """Ops of PyTorch that are this one, operand by operand."""

    # placements
    fold: str = ""
    """Of a reduction, the fold that split dims leave: provers read it."""
    rearranges: bool = False
    """The result is the entries of its one operand, each once."""
    spreads: bool = False
    """Results are equal along a dim, and may be read in very many ways."""
    folds: frozenset[str] = frozenset()
    """Reductions of whole tensors that it commutes with, all operands reduced alike."""
    rises: tuple[int, ...] = ()
    """Operands that it never falls in as they grow, the others held fixed."""
    source: str = ""
    """The attribute that names the one coordinate whose value is read."""
    truth: bool = False
    """Whether results are truth values."""

    # what the refuter asks
    analytic: bool = False
    """Analytic in its operands, or moves them: nothing that enters is lost for all inputs."""
    picks: Literal["", "pair", "zero", "entry"] = ""
    """What it compares to choose its result: its two operands, one of them with 0, or entries."""
    steps: bool = False
    """Constant between jumps: what a field hashes of it says little."""
    adds: bool = False
    """Adds entries up: of ones it counts."""
    literal: str = ""
    """The attribute that is a number."""
    nothing: Fraction | None = None
    """The number with which it changes nothing."""
    bounds: Callable[[Bounded], Bounds] | None = None
    """Between what its entries lie."""

    def vjp(self, rule: Vjp) -> Vjp:
        """Declare the vector-Jacobian product: (builder, inputs, outputs, cotangents, attrs) ->
        one cotangent (or None) per input."""
        if self.vjp_rule is not None:
            raise IRError("an op has one vjp")
        self.vjp_rule = rule
        return rule


def stops(*_: object) -> Pulled:
    """The vjp of an op that no cotangent passes."""
    return [None]


def from_output(backward: str) -> Vjp:
    """The vjp of an op whose cotangent another composite computes from the result."""

    def rule(b: Builder, ins: Names, outs: Names, cts: Names, attrs: AttrMap) -> Pulled:
        return [b.add(backward, cts[0], outs[0])]

    return rule


NO_FACETS = Facets()
DESCRIBED: dict[str, Facets] = {}


def describe(
    op: Op,
    meaning: Callable[..., Any] = _written_out,
    doc: str = "",
    *,
    bounds: Callable[[Bounded], Bounds] | None = None,
    **known: Any,
) -> Facets:
    """Say of an op what the kernel does not ask; `known` are other fields of `Facets`. Raises
    IRError where that was said before."""
    if op.name in DESCRIBED:
        raise IRError(f"op {op.name} is described twice")
    if not doc and op.expand is not None:
        doc = (op.expand.__doc__ or "").strip()
    DESCRIBED[op.name] = found = Facets(meaning, doc, bounds=bounds, **known)
    return found


def moves(
    op: Op,
    meaning: Callable[..., Any],
    doc: str,
    bounds: Callable[[Bounded], Bounds] = among,
    **known: Any,
) -> Facets:
    """Describe an op that moves the entries of its operands."""
    return describe(op, meaning, doc, bounds=bounds, analytic=True, **known)


def facets(name: str) -> Facets:
    """What is known of an op; nothing of what is none, as terms that no op is."""
    found = DESCRIBED.get(name)
    if found is None:
        return NO_FACETS if name not in REGISTRY else describe(lookup(name))
    return found


def compares(name: str) -> bool:
    """Whether an op compares its two operands, and says so."""
    known = facets(name)
    return known.truth and known.picks == "pair"
