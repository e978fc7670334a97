"""Names the op from which on the numbers are wrong.

The first op without a relation may be innocent: a padded tensor, a part of a fused one or the
share of one micro-batch are values that one device never has, in right programs too. On numbers
it shows whether what follows is right again. A value is *accounted for* where every entry on
every rank, or the sum of these entries over ranks, is a number that one device computes somewhere,
or 0. Followed back from a wrong output through values that are not, the ops at which they begin
are to blame. What only arranges numbers is accounted for wherever it puts them, so an op that no
rule admits is still named where nothing between it and the first wrong number is right again.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from shardproof.synthesis.repair.agreement import NEAR, agreement, differing
from shardproof.synthesis.repair.attribute_fault import fixed_alone
from shardproof.synthesis.repair.edits import Edit
from shardproof.verifier.domains.base import Array
from shardproof.verifier.explain import place, show
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.live import leading_to
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.groups import process_groups
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import CUTS
from shardproof.verifier.problem import Problem
from shardproof.verifier.refute.evaluate import Ranks, Values, elements
from shardproof.verifier.refute.search import held_elements
from shardproof.verifier.verdict import Location

MAX_ELEMENTS = 400_000
REASON = (
    "its operands hold numbers that one device computes too, or shares of them; its result does not"
)

SHARE = "ranks hold shares of a number of one device, and go on without their sum"


def blame(
    problem: Problem,
    found: Location | None,
    broken: bool,
    given: Program | None = None,
    certain: bool = False,
) -> Location | None:
    """The place of a difference: `found` where the numbers agree that it may be to blame.

    Where `found` is `certain`, only an op that another attribute makes right is named instead.
    `broken` says that no rule admits the op that was found, or one before it.

    The programs are in primitive ops, and differ. Where they are small ones in the place of others,
    the place is named in the distributed program that was `given`.
    """

    def named(node: Node, reason: str) -> Location:
        made = given.producers().get(node.outputs[0], node) if given is not None else node
        return place(made if made.op == node.op else node, reason)

    sequential, distributed = problem.sequential, problem.distributed
    if found is None or elements(sequential) + held_elements(distributed) > MAX_ELEMENTS:
        return found
    run = differing(problem)
    if run is None:
        return found
    lost = _Lost(distributed, run.whole, run.ranks)
    ends = [o.value for o in distributed.outputs if output_key(o) in run.outputs]
    path = lost.path(ends)
    nodes = [n for n in distributed.nodes if path & set(n.outputs)]
    old = next((n for n in distributed.nodes if _shown(n) == found.text.split(" = ")[0]), None)
    rather = _fixed_alone(problem, run.inputs, nodes, ends)
    if rather and all(n is not old for n, _ in rather) and len(rather) == 1:
        (node, edit), *_ = rather
        return named(node, f"{RIGHT_WITH} {', '.join(f'{k}={v}' for k, v in edit.attrs)}")
    if old in nodes or certain:
        return found
    first = next((n for n in nodes if n.inputs and not path & set(n.inputs)), None)
    if first is None or first.body is not None or _stated(first):
        return found
    arranged = old is None or _stated(old) or (not broken and _arranges(old))
    if old is not None and not arranged and lost.leads(old, first):
        return found
    share = next((n for n in map(lost.share, first.inputs) if n is not None), None)
    return named(first, REASON) if share is None else named(share, SHARE)


def _shown(node: Node) -> str:
    return show(node).split(" = ")[0]


def _fixed_alone(
    problem: Problem, inputs: Mapping[str, Array], path: list[Node], wrong: list[str]
) -> list[tuple[Node, Edit]]:
    """Ops that wrong outputs depend on and that one changed attribute makes right."""
    sequential, distributed = problem.sequential, problem.distributed
    rest = [n for n in leading_to(wrong, distributed.nodes) if n not in path]
    among = [*path, *reversed(rest)]
    given = [n for n in among if not _stated(n) and n.body is None]
    return fixed_alone(sequential, distributed, given[:MAX_TRIED], agreement(problem, inputs))


MAX_TRIED = 60
RIGHT_WITH = "all numbers that were tried are right with"


def _arranges(node: Node) -> bool:
    """Whether fused weights, padding, micro-batches and stages need an op where one device has
    none."""
    return node.op in CUTS or lookup(node.op).traits.alias


def _stated(node: Node) -> bool:
    """Whether a node belongs to a program of the contract, which is given."""
    return node.outputs[0].startswith(("given.", "taken."))


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
