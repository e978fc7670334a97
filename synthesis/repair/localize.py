"""Rules for the op from which on the numbers are wrong.

The first op without a relation may be innocent: a padded tensor, a part of a fused one or the
share of one micro-batch are values that one device never has, in right programs too. On numbers
it shows whether what follows is right again. A value is *accounted for* where every entry on
every rank, or the sum of these entries over ranks, is a number that one device computes somewhere,
or 0. Followed back from a wrong output through values that are not, the ops at which they begin
are to blame. What only arranges numbers is accounted for wherever it puts them, so an op that no
rule admits is still named where nothing between it and the first wrong number is right again.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from time import process_time

import numpy as np

from shardproof.synthesis.repair.agreement import NEAR, Differing, agreement, differing
from shardproof.synthesis.repair.attempts import attempts
from shardproof.synthesis.repair.edits import CHANGES, LARGER, Edit, apply, node_of
from shardproof.synthesis.repair.fault import Fault
from shardproof.synthesis.repair.near import attributes
from shardproof.verifier.domains.base import Array
from shardproof.verifier.explain import show
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program, leading_to
from shardproof.verifier.kernel.program.where import process_groups
from shardproof.verifier.ops.classes import CUTS
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import Ranks, Values, elements
from shardproof.verifier.refute.search import held_elements
from shardproof.verifier.verdict import Location

MAX_ELEMENTS = 400_000
MAX_TRIED = 60
SECONDS = 1.0
"""Of the processor, that attributes of one program may be tried."""
REASON = (
    "its operands hold numbers that one device computes too, or shares of them; its result does not"
)
SHARE = "ranks hold shares of a number of one device, and go on without their sum"
RIGHT_WITH = "all numbers that were tried are right with"
NUMBERS = ("value", "exponent")
TOLD = (
    *("offset", "q_offset", "k_offset", "reduce", "mesh_dim", "shift", "index"),
    *("dim", "split_dim", "concat_dim", "exclusive", "reverse", "causal"),
)
"""Attributes that are changed, besides numbers."""


@dataclass(frozen=True)
class OnNumbers:
    """Programs in primitive ops that differ, and where the verdict says that they do."""

    problem: Problem
    found: Location
    broken: bool = False
    """Whether no rule admits the op that was found, or one before it."""
    certain: bool = False
    """Whether only an op that another attribute makes right is named instead."""

    @cached_property
    def run(self) -> Differing | None:
        """Both programs where they differ; none where they are too large to be run."""
        p = self.problem
        few = elements(p.sequential) + held_elements(p.distributed) <= MAX_ELEMENTS
        return differing(p) if few else None

    @cached_property
    def lost(self) -> "_Lost":
        assert self.run is not None
        return _Lost(self.problem.distributed, self.run.whole, self.run.ranks)

    @cached_property
    def ends(self) -> list[str]:
        """The values of wrong outputs."""
        wrong = self.run.outputs if self.run is not None else ()
        return [o.value for o in self.problem.distributed.outputs if output_key(o) in wrong]

    @cached_property
    def path(self) -> list[Node]:
        """What makes the values on the way to wrong outputs that are not accounted for."""
        on = self.lost.path(self.ends)
        return [n for n in self.problem.distributed.nodes if on & set(n.outputs)]

    @cached_property
    def old(self) -> Node | None:
        """The op that was found."""
        shown = self.found.text.split(" = ")[0]
        nodes = self.problem.distributed.nodes
        return next((n for n in nodes if show(n).split(" = ")[0] == shown), None)

    @cached_property
    def first(self) -> Node | None:
        """The op at which these values begin, where it is one that can be named."""
        made = {v for n in self.path for v in n.outputs}
        node = next((n for n in self.path if n.inputs and not made & set(n.inputs)), None)
        return None if node is None or node.body is not None or _stated(node) else node


def attribute(on: OnNumbers) -> Iterator[Fault]:
    """The one op that one changed attribute makes right: a number, an offset or a group of it.

    A value that one device never has may be innocent, as the product of two weights is that are
    merged. What is found is a place, and no repair that is offered.
    """
    if on.run is None:
        return
    rest = [n for n in leading_to(on.ends, on.problem.distributed.nodes) if n not in on.path]
    among = [n for n in (*on.path, *reversed(rest)) if not _stated(n) and n.body is None]
    rather = _fixed_alone(on.problem, on.run, among[:MAX_TRIED])
    if len(rather) == 1 and rather[0][0] is not on.old:
        ((node, edit),) = rather
        attrs = ", ".join(f"{k}={v}" for k, v in edit.attrs)
        yield Fault(node, node.source, f"{RIGHT_WITH} {attrs}")


def stands(on: OnNumbers) -> Iterator[Fault]:
    """The op that was found, where the numbers agree that it may be to blame."""
    if on.run is None or on.certain or on.old in on.path or on.first is None:
        yield Fault(None, on.found.source, on.found.reason)
    elif on.old is not None:
        arranged = _stated(on.old) or (not on.broken and _arranges(on.old))
        if not arranged and on.lost.leads(on.old, on.first):
            yield Fault(None, on.found.source, on.found.reason)


def unsummed(on: OnNumbers) -> Iterator[Fault]:
    """What makes shares of which the sum is not taken."""
    for node in map(on.lost.share, on.first.inputs if on.first is not None else ()):
        if node is not None:
            yield Fault(node, node.source, SHARE)


def lost(on: OnNumbers) -> Iterator[Fault]:
    """Where numbers begin that one device does not have."""
    if on.first is not None:
        yield Fault(on.first, on.first.source, REASON)


@dataclass(frozen=True)
class Edits:
    """Edits after which a program is proved that the verdict finds wrong at a place."""

    program: Program
    place: Location
    edits: Sequence[Edit]


def edited(asked: Edits) -> Iterator[Fault]:
    """The line whose ops a proved repair changes: a wrong factor or a wrong group goes along with
    all that follows, and is seen late."""
    nodes = [node_of(asked.program, edit) for edit in asked.edits]
    node = nodes[0] if nodes else None
    if node is None or not node.source.file:
        return
    if any(n is None or n.source != node.source for n in nodes):
        return
    late = " must be " in asked.place.reason
    if all(e.kind in CHANGES or (late and e.kind in LARGER) for e in asked.edits):
        shown = "; ".join(map(str, asked.edits))
        yield Fault(node, node.source, f"after `{shown}` all outputs are proved")


def begins(problem: Problem, run: Differing, place: Location) -> Node | None:
    """Where the shares begin that the op of a place reads without their sum."""
    lost = _Lost(problem.distributed, run.whole, run.ranks)
    held = [text.partition(":")[0].lstrip("%") for text in place.operands if " partial(" in text]
    node = next(filter(None, map(lost.share, held)), None)
    while node is not None:
        before = next(filter(None, map(lost.share, node.inputs)), None)
        if before is None:
            return node
        node = before
    return None


def _arranges(node: Node) -> bool:
    """Whether fused weights, padding, micro-batches and stages need an op where one device has
    none."""
    return node.op in CUTS or lookup(node.op).traits.alias


def _stated(node: Node) -> bool:
    """Whether a node belongs to a program of the contract, which is given."""
    return node.outputs[0].startswith(("given.", "taken."))


def _fixed_alone(
    problem: Problem, run: Differing, among: Sequence[Node]
) -> list[tuple[Node, Edit]]:
    """The ops of some that one changed attribute makes right, those of the likeliest kind alone.

    Likeliest is a number that one device has in the place of one that it has not; then an offset or
    a group; then such a number that is off by the number of ranks, unless it stands behind that
    group: what all ranks hold is divided by what one of them counts. Then any other.
    """
    program, right = problem.distributed, agreement(problem, run.inputs)
    theirs = set(_numbers(problem.sequential))
    counts = [n for _, n in program.mesh.dims]
    sizes = {Fraction(math.prod(some)) for k in (1, 2, 3) for some in combinations(counts, k)}
    end = process_time() + SECONDS
    found: dict[int, list[tuple[Node, Edit]]] = {}
    for node in among:
        for edit, works in attempts(
            _changed(program, node, theirs),
            lambda edit: right(apply(program, edit)) or None,
            lambda: process_time() > end,
        ):
            if works:
                found.setdefault(_rank(node, edit, theirs, sizes), []).append((node, edit))
    if not found:
        return []
    order = {n.outputs: k for k, n in enumerate(program.nodes)}
    ends = [order[found[k][0][0].outputs] for k in (1, 2) if k in found]
    behind = len(ends) == 2 and ends[1] > ends[0] and 0 not in found
    return found[2 if behind else min(found)]


def _numbers(program: Program) -> Iterator[Fraction]:
    for _, node in program.walk():
        for name in NUMBERS:
            value = node.attrs.get(name)
            if isinstance(value, int | Fraction) and not isinstance(value, bool):
                yield Fraction(value)


def _changed(program: Program, node: Node, theirs: set[Fraction]) -> Iterator[Edit]:
    for name in NUMBERS:
        now = node.attrs.get(name)
        if isinstance(now, int | Fraction) and not isinstance(now, bool):
            for other in sorted(theirs - {Fraction(now)}):
                yield Edit("set", node.outputs[0], attrs=((name, other),))
    if lookup(node.op).kind == "view" or node.body is not None:
        return
    for edit in attributes(program, node):
        if all(name in (*TOLD, *NUMBERS) for name, _ in edit.attrs):
            yield edit


def _rank(node: Node, edit: Edit, theirs: set[Fraction], sizes: set[Fraction]) -> int:
    ((name, other), *_) = edit.attrs
    if name not in NUMBERS:
        return 1
    now = node.attrs[name]
    assert isinstance(now, int | Fraction)
    assert isinstance(other, int | Fraction)
    if Fraction(now) in theirs or Fraction(other) not in theirs:
        return 3
    ratio = Fraction(other) / Fraction(now) if now else Fraction(0)
    return 2 if ratio in sizes or (ratio and 1 / ratio in sizes) else 0


class _Lost:
    """Which values of the distributed program one device does not account for."""

    def __init__(self, program: Program, whole: Values, ranks: Ranks) -> None:
        self.program, self.ranks, self.whole = program, ranks, whole
        numbers = [a.reshape(-1) for a in whole.values() if a.dtype.kind == "f"]
        known = np.unique(np.concatenate([*numbers, np.zeros(1)]))
        self.known = known[np.isfinite(known)]

    def path(self, wrong: list[str]) -> set[str]:
        """The values on the way to wrong outputs that are not accounted for, back to the first."""
        producers: dict[str, Node] = self.program.producers()
        out: set[str] = set()
        todo = list(wrong)
        while todo:
            value = todo.pop()
            if value not in out and not self._accounted(value):
                out.add(value)
                if value in producers:
                    todo += producers[value].inputs
        return out

    def leads(self, start: Node, end: Node) -> bool:
        """Whether `end` depends on `start` through values that are no value of one device."""
        reached = set(start.outputs)
        for node in self.program.nodes:
            if not reached & set(node.inputs):
                continue
            if node is end:
                return True
            reached |= {v for v in node.outputs if not self._restored(v)}
        return False

    def _restored(self, value: str) -> bool:
        """Whether all ranks hold a value that one device has, whole."""
        held = [local[value] for local in self.ranks if value in local]
        alike = [a for a in self.whole.values() if held and a.shape == held[0].shape]
        return any(all(np.allclose(h, a, NEAR, NEAR) for h in held) for a in alike)

    def _accounted(self, value: str) -> bool:
        held = [local[value] for local in self.ranks if value in local]
        if not held or held[0].dtype.kind != "f":
            return True
        return all(map(self._known, held)) or any(
            all(map(self._known, sums)) for sums in self._sums(value)
        )

    def share(self, value: str) -> Node | None:
        """What makes a value whose sum over ranks one device has, and not its shares."""
        node = self.program.producers().get(value)
        while node is not None and lookup(node.op).kind == "view" and node.inputs:
            value, node = node.inputs[0], self.program.producers().get(node.inputs[0])
        held = [local[value] for local in self.ranks if value in local]
        if node is None or not held or held[0].dtype.kind != "f" or all(map(self._known, held)):
            return None
        return node if any(all(map(self._known, sums)) for sums in self._sums(value)) else None

    def _known(self, array: Array) -> bool:
        entries = array.reshape(-1)
        at = np.searchsorted(self.known, entries)
        near = np.minimum(
            np.abs(entries - self.known[np.minimum(at, len(self.known) - 1)]),
            np.abs(entries - self.known[np.maximum(at - 1, 0)]),
        )
        return bool(np.all(near <= NEAR * np.maximum(np.abs(entries), 1e-3)))

    def _sums(self, value: str) -> Iterator[list[Array]]:
        """The sums of the pieces over the ranks along some mesh dims."""
        names = self.program.mesh.names
        for count in range(1, len(names) + 1):
            for along in combinations(names, count):
                sums, differ = list[Array](), False
                for group in process_groups(self.program.mesh, along):
                    held = [self.ranks[r][value] for r in group if value in self.ranks[r]]
                    if held:
                        sums.append(np.sum(held, axis=0))
                        differ = differ or any(not np.array_equal(h, held[0]) for h in held)
                if differ:
                    yield sums
