"""The registry of ops: what the kernel holds of each.

A declaration says what a program with the op means, as far as a certificate needs it: arity,
attributes and types, where it is linear, on which ranks it runs, and what a composite op is written
out as. What else is known of an op (its meaning on numbers, its gradient, its cost) is in
`verifier/ops`, and how placements pass through ops in `verifier/provers/placement`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from shardproof.verifier.kernel.program.errors import IRError, ShapeError
from shardproof.verifier.kernel.program.traits import NO_TRAITS, Traits
from shardproof.verifier.kernel.program.types import Mesh, TensorType
from shardproof.verifier.kernel.program.where import Where

if TYPE_CHECKING:
    from shardproof.verifier.kernel.program.program import Program

Types = Sequence[TensorType]
AttrMap = Mapping[str, Any]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


ONE = Fraction(1)
"""The factor that most values have; known by identity where speed matters."""
REQUIRED = _Required()
FURTHER = (
    "shardproof.verifier.kernel.movements",
    "shardproof.verifier.kernel.composites",
    "shardproof.verifier.ops",
)
"""Rooms that declare ops besides `verifier.kernel.ops`: loaded for an op that is not known yet."""


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


@dataclass
class Op:
    """An op, as the kernel knows it."""

    name: str
    kind: str
    """map, einsum, rows, reduce, view, index, create, collective, movement, control or
    composite."""
    signature: str
    types: TypeRule
    linear: tuple[frozenset[int], ...] = ()
    """Groups of operands in each of which, jointly, the op is linear (the others held fixed)."""
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Name -> default, `REQUIRED` where there is none."""
    traits: Traits = NO_TRAITS
    """What else is believed of it."""
    expand: Callable[..., Any] | None = None
    """Composites: builds the op from primitives, `expand(builder, *inputs, **attrs)`."""
    checked: str = ""
    """Of a reduction, the fold that split dims leave, as the checker reads it."""
    region: Callable[[AttrMap, Sequence[Where], Where, Mesh], Where] | None = None
    """Movements: (attrs, ranks of each operand, ranks it is limited to, mesh) -> ranks of the
    result. Raises Refused."""

    def with_defaults(self, attrs: AttrMap) -> dict[str, Any]:
        """The attributes with defaults filled in."""
        return {**self.defaults, **attrs}

    @property
    def room(self) -> str:
        """The package that says on which ranks it runs, what it is written out as, or its types."""
        rule: Callable[..., Any] = self.region or self.expand or self.types
        return rule.__module__.rpartition(".")[0]

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The attributes that need not be written."""
        return {k: v for k, v in self.attrs.items() if v is not REQUIRED}


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Raises IRError where the name is taken."""
    if op.name in REGISTRY:
        raise IRError(f"op {op.name} is registered twice")
    REGISTRY[op.name] = op
    return op


def lookup(name: str) -> Op:
    """Raises IRError for a name that no declaration has, with the nearest names."""
    found = REGISTRY.get(name)
    return _further(name) if found is None else found


def _further(name: str) -> Op:
    for room in FURTHER:
        import_module(room)
        if name in REGISTRY:
            return REGISTRY[name]
    import difflib

    near = difflib.get_close_matches(name, REGISTRY, 3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise IRError(f"unknown op {name!r}{hint}")


def traits(name: str) -> Traits:
    """What is believed of an op; nothing of what is none, as terms that no op is."""
    op = REGISTRY.get(name)
    return NO_TRAITS if op is None else op.traits


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
