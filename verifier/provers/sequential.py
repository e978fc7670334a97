"""The one-device program as terms: what facts and claims are about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardproof.verifier.analysis.definedness import Needed, in_scope, needed
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.terms import Ref, Terms

if TYPE_CHECKING:
    from shardproof.verifier.provers.canonical.keys import Keys
    from shardproof.verifier.provers.canonical.rearranged import View


@dataclass
class Scan:
    """A scan of the one-device program: its operands as refs, its body as terms."""

    node: Node
    operands: list[Ref]
    key: tuple[Any, ...]
    inner: Sequential

    def __post_init__(self) -> None:
        self.reads = frozenset(ref.id for ref in self.operands)


@dataclass
class Sequential:
    """The one-device program as terms."""

    program: Program
    terms: Terms
    values: dict[str, Ref]
    scans: list[Scan]

    def __post_init__(self) -> None:
        self.known = {ref.id: name for name, ref in reversed(self.values.items())}
        self.named: dict[str, Ref] | None = None
        """By what terms come to in index notation, where a prover has asked for it."""
        self.viewed: dict[tuple[tuple[int, ...], View], int] = {}
        """By what they are a rearrangement of, where a prover has asked for it."""
        self.addends: dict[int, Ref] = {}
        """By a term that an op makes of slices: the value that it makes of the wholes, which a
        prover takes it to be a part of."""
        self.shapes = frozenset(self.terms.shape(ref) for ref in self.values.values())

    @cached_property
    def keys(self) -> Keys:
        """What terms come to in index notation."""
        from shardproof.verifier.provers.canonical.keys import Keys

        return Keys(self.terms)

    def equal_over_known(self, a: Ref, b: Ref) -> bool:
        """Whether two terms are seen to be equal, in index notation, by the few ops between them
        and values of the program."""
        from shardproof.verifier.provers.canonical.relative import equal_over_known

        return equal_over_known(self.keys.terms, self.known, a, b)


def as_terms(
    program: Program,
    terms: Terms | None = None,
    bodies: dict[int, Sequential] | None = None,
    need: Needed | None = None,
) -> Sequential:
    """Evaluate a one-device program (primitives only) to terms.

    A body that several nodes share is evaluated once. `need` says what outputs need, of this
    program and of its bodies, where this is a body of another.
    """
    terms = terms or Terms()
    bodies = {} if bodies is None else bodies
    need = needed(program, in_scope(program, gradients=False)) if need is None else need
    values = {i.name: terms.var(i.name, i.type.shape) for i in program.inputs}
    scans: list[Scan] = []
    for node in program.nodes:
        args = [values[v] for v in node.inputs]
        if node.op == "scan":
            body = node.block
            inner = bodies.get(id(body)) or as_terms(body, type(terms)(), bodies, need)
            bodies[id(body)] = inner
            key = ("scan", len(scans), tuple(sorted(node.attrs.items())))
            scan = Scan(node, args, key, inner)
            scans.append(scan)
            for k, name in enumerate(node.outputs):
                values[name] = scan_output(terms, scan, k, program.types[name].shape)
            continue
        attrs = lookup(node.op).with_defaults(node.attrs)
        dtypes = [program.types[v].dtype for v in node.inputs]
        values[node.outputs[0]] = terms.apply(node.op, args, attrs, dtypes)
    terms.need(values[v].id for v in need[id(program)])
    return Sequential(program, terms, values, scans)


def scan_output(terms: Terms, scan: Scan, index: int, shape: tuple[int, ...]) -> Ref:
    return terms.intern("scan", scan.operands, (*scan.key, index), shape)
