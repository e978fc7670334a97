"""The registry of ops, and the decorator that declares one.

A declaration holds everything about an op: its signature in factors, what it means on values, its
types, where it is linear, its vjp and its cost. How placements pass through ops is in
`verifier/provers/placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from verifier.kernel.program.errors import IRError, ShapeError
from verifier.kernel.program.traits import NO_TRAITS, Traits
from verifier.kernel.program.types import Mesh, TensorType
from verifier.kernel.program.where import Where

if TYPE_CHECKING:
    from verifier.kernel.program.builder import Builder
    from verifier.kernel.program.program import Program

Types = Sequence[TensorType]
AttrMap = Mapping[str, Any]
Vjp = Callable[
    ["Builder", Sequence[str], Sequence[str], Sequence[str], AttrMap], Sequence[str | None]
]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


ONE = Fraction(1)
"""The factor that most values have; known by identity where speed matters."""
REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Site:
    """What a type rule is given."""

    op: str
    types: tuple[TensorType, ...]
    attrs: AttrMap
    mesh: Mesh
    body: Program | None = None

    def fail(self, why: str) -> ShapeError:
        shown = ", ".join(map(str, self.types))
        return ShapeError(f"{self.op}({shown}): {why}")


TypeRule = Callable[[Site], tuple[TensorType, ...]]


class Refused(Exception):  # noqa: N818  (an answer, not a failure)
    """No relation holds for the result: which operand, on which mesh dim, and why."""

    def __init__(
        self, reason: str, mesh_dim: str | None = None, operand: int | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.mesh_dim = mesh_dim
        self.operand = operand


SPREADS = frozenset({"spreads"})
"""The tag of ops whose results are equal along a dim, and may be read in very many ways."""


@dataclass
class Op:
    """An op. Called on a domain and arrays it computes: `op.meaning(domain, *arrays, **attrs)`."""

    name: str
    kind: str
    """map, einsum, rows, reduce, view, index, create, collective, movement, control or
    composite."""
    signature: str
    meaning: Callable[..., Any]
    types: TypeRule
    linear: tuple[frozenset[int], ...] = ()
    """Groups of operands in each of which, jointly, the op is linear (the others held fixed)."""
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Name -> default, `REQUIRED` where there is none."""
    flops: Callable[[Types, tuple[TensorType, ...], AttrMap], int] | None = None
    vjp_rule: Vjp | None = None
    expand: Callable[..., Any] | None = None
    """Composites: builds the op from primitives, `expand(builder, *inputs, **attrs)`."""
    doc: str = ""
    tags: frozenset[str] = field(default_factory=frozenset[str])
    traits: Traits = NO_TRAITS
    """What else is known of it."""
    fold: str = ""
    """Of a reduction, the fold that split dims leave: provers read it."""
    checked: str = ""
    """The same as the checker reads it."""
    aten: tuple[str, ...] = ()
    """Ops of PyTorch that are this one, operand by operand."""
    region: Callable[[AttrMap, Sequence[Where], Where, Mesh], Where] | None = None
    """Movements: (attrs, ranks of each operand, ranks it is limited to, mesh) -> ranks of the
    result. Raises Refused."""

    def with_defaults(self, attrs: AttrMap) -> dict[str, Any]:
        """The attributes with defaults filled in."""
        return {**self.defaults, **attrs}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The attributes that need not be written."""
        return {k: v for k, v in self.attrs.items() if v is not REQUIRED}

    def vjp(self, rule: Vjp) -> Vjp:
        """Declare the vector-Jacobian product: (builder, inputs, outputs, cotangents, attrs) ->
        one cotangent (or None) per input."""
        if self.vjp_rule is not None:
            raise IRError(f"op {self.name} already has a vjp")
        self.vjp_rule = rule
        return rule


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Raises IRError where the name is taken."""
    if op.name in REGISTRY:
        raise IRError(f"op {op.name} is registered twice")
    REGISTRY[op.name] = op
    return op


def lookup(name: str) -> Op:
    """Raises IRError for a name that no declaration has, with the nearest names."""
    try:
        return REGISTRY[name]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name, REGISTRY, 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise IRError(f"unknown op {name!r}{hint}") from None


def traits(name: str) -> Traits:
    """What is known of an op; nothing of what is none, as terms that no op is."""
    op = REGISTRY.get(name)
    return NO_TRAITS if op is None else op.traits


def compares(name: str) -> bool:
    """Whether an op compares its two operands, and says so."""
    known = traits(name)
    return known.truth and known.picks == "pair"


def infer_types(
    name: str,
    types: Types,
    attrs: AttrMap,
    mesh: Mesh,
    body: Program | None = None,
) -> tuple[TensorType, ...]:
    """Types of the results. Raises ShapeError or IRError."""
    op = lookup(name)
    unknown = set(attrs) - set(op.attrs)
    if unknown:
        raise IRError(f"op {name} has no attribute {min(unknown)!r}; it has {sorted(op.attrs)}")
    missing = [a for a, default in op.attrs.items() if default is REQUIRED and a not in attrs]
    if missing:
        raise IRError(f"op {name} needs the attribute {missing[0]!r}")
    try:
        return op.types(Site(name, tuple(types), op.with_defaults(attrs), mesh, body))
    except IRError:
        raise
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        shown = ", ".join(map(str, types)) or "no operands"
        written = ", ".join(f"{k}={v}" for k, v in attrs.items()) or "no attributes"
        raise ShapeError(
            f"op {name} does not accept {shown} with {written}; "
            f"expected operands as in {op.signature!r}"
        ) from None


def groups(
    spec: Literal["each", "joint"] | Iterable[Iterable[int]] | None, arity: int
) -> tuple[frozenset[int], ...]:
    """Read a linearity spec: `each` (multilinear), `joint`, or explicit groups of operands."""
    if spec is None:
        return ()
    if spec == "each":
        return tuple(frozenset({i}) for i in range(arity))
    if spec == "joint":
        return (frozenset(range(arity)),)
    assert not isinstance(spec, str)
    return tuple(frozenset(g) for g in spec)
