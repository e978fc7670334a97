"""Proves an edited program by the nodes that changed and those that their results reach.

What an edit left alone keeps its facts: a fact follows from the facts of the operands and from the
op alone, so it holds in every program in which both are the same. The changed nodes are related
anew, as a small program whose inputs have the facts that the proof found for them. A node that
reads one of their results is related anew too, unless the result has the same type, lives on the
same ranks and has all the facts that it had. In a repeated block the same is done with the facts of
one step; where every result of the step has its facts again, the induction is the one it was.
Nothing is decided here but that the edited program is proved too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from verifier.kernel.contract import Contract
from verifier.kernel.inline import inline
from verifier.kernel.ops import lookup
from verifier.kernel.program.errors import IRError
from verifier.kernel.program.program import IN_ORDER, Input, Node, Output, Program
from verifier.kernel.program.residency import region_of
from verifier.kernel.program.types import TensorType
from verifier.kernel.program.where import EVERYWHERE, Where
from verifier.kernel.rank_sets import Regions, regions
from verifier.order.meetings import meets
from verifier.provers.relate import Fact, Related, Rules, relate, satisfied
from verifier.provers.sequential import Sequential
from verifier.reuse.align import Alignment, align
from verifier.reuse.base import Base, Names
from verifier.text.wellformed import well_formed

MOST = 400
"""More nodes than these to prove again, and the whole program is proved anew."""
NOTHING = Contract({}, {})


@dataclass(frozen=True)
class Carried:
    """What a kept proof says of an edited program. It is none itself: no checker looked at it."""

    scope: tuple[str, ...]
    assumptions: tuple[str, ...]
    again: int
    """Nodes that were related again, of all `nodes`."""
    nodes: int


@dataclass(frozen=True)
class Made:
    """What is known about a result of the nodes proved again."""

    type: TensorType
    facts: list[Fact]
    where: Where


@dataclass
class _Level:
    """The program, or the body of a repeated block, with what the proof found for it."""

    old: Program
    plain: Program
    names: Names
    one: Sequential
    related: Related
    places: Regions
    contract: Contract
    region: Where = EVERYWHERE

    def made(self, value: str) -> Made:
        plain = self.names(value)
        return Made(self.old[value], self.related.facts.get(plain, []), self.places.values[plain])


@dataclass
class _Walk:
    base: Base
    rules: Rules
    alike: dict[tuple[int, int], bool] = field(default_factory=dict[tuple[int, int], bool])
    again: int = 0
    """Nodes proved again."""


class _NotHere(Exception):  # noqa: N818  (no error: the whole program is proved instead)
    """What changed reaches too far."""


def proved_again(base: Base, distributed: Program) -> Carried | None:
    """What holds of an edited program by the proof of the one it was edited from.

    None says nothing about the program: prove it as a whole.
    """
    walk = _Walk(base, Rules(base.plain.mesh))
    level = _Level(
        base.written,
        base.plain,
        base.names,
        base.one,
        base.related,
        base.places,
        base.contract,
    )
    try:
        made = _redo(walk, level, distributed)
        _outputs(level, distributed, made)
    except (_NotHere, IRError):
        return None
    return Carried(base.scope, base.assumptions, walk.again, base.nodes)


def _redo(walk: _Walk, level: _Level, new: Program) -> dict[str, Made]:
    """What is known about every output of the new program, by value.

    Raises:
        _NotHere: the change reaches too far, or is not of a kind that is followed.
    """
    found = align(level.old, new, walk.alike)
    if found is None or not found.in_order:
        raise _NotHere
    _well_ordered(new)
    for node in (*(new.nodes[i] for i in found.changed), *(level.old.nodes[i] for i in found.gone)):
        _timeless(walk.base, node)
    for at, before in found.blocks.items():
        _block(walk, level, level.old.nodes[before], new.nodes[at])
    changed = set(found.changed)
    made: dict[str, Made] = {}
    while changed:
        if len(changed) > MOST:
            raise _NotHere
        made = _related(walk, level, new, sorted(changed), found)
        lost = {v for v, m in made.items() if not _as_before(level, found, v, m)}
        reached = {
            i for i, n in enumerate(new.nodes) if i not in changed and lost.intersection(n.inputs)
        }
        if not reached:
            break
        if any(_other_type(level, found, v, made[v]) for v in lost):
            raise _NotHere
        moved = {v for v in lost if _elsewhere(level, found, v, made[v])}
        for node in (new.nodes[i] for i in reached):
            if moved.intersection(node.inputs):
                _silent(walk.base, node)
        changed |= reached
    walk.again += len(changed)
    outputs: dict[str, Made] = {}
    for item in new.outputs:
        if item.value in made:
            outputs[item.value] = made[item.value]
        else:
            outputs[item.value] = level.made(found.twins[item.value])
    return outputs


def _well_ordered(program: Program) -> None:
    """Raises _NotHere: a value defined twice, or read before it is defined."""
    seen = {item.name for item in program.inputs}
    if len(seen) != len(program.inputs):
        raise _NotHere
    for node in program.nodes:
        if not seen.issuperset(node.inputs):
            raise _NotHere
        before = len(seen)
        seen.update(node.outputs)
        if len(seen) != before + len(node.outputs):
            raise _NotHere
    if not all(item.value in seen for item in program.outputs):
        raise _NotHere


def _timeless(base: Base, node: Node) -> None:
    """Raises _NotHere: the node may have to do with the order of events, or with messages."""
    if node.body is not None or node.timing != IN_ORDER or lookup(node.op).kind == "movement":
        raise _NotHere
    if base.meeting is None:
        return
    if not base.quiet or meets(node, base.meeting):
        raise _NotHere


def _silent(base: Base, node: Node) -> None:
    """Raises _NotHere: on other ranks than before, the node may meet others out of their order."""
    if base.meeting is not None:
        _timeless(base, node)


def _block(walk: _Walk, level: _Level, old: Node, new: Node) -> None:
    """A repeated block whose body changed: its step keeps all facts of its results.

    Raises:
        _NotHere: some are not found again.
    """
    assert old.body is not None
    assert new.body is not None
    name = old.outputs[0]
    if level.names(name) not in level.related.bodies:
        raise _NotHere
    scan, related = level.related.bodies[level.names(name)]
    wheres = [level.places.values[level.names(v)] for v in old.inputs]
    apart = any(item.where for item in old.body.inputs)
    held = [EVERYWHERE] * len(wheres) if apart else wheres
    region = region_of(old, held, level.old.mesh, level.region)
    plain = next(n for n in level.plain.nodes if n.outputs[0] == level.names(name))
    assert plain.body is not None
    inner = _Level(
        old.body,
        plain.body,
        level.names.blocks[name],
        scan.inner,
        related,
        level.places.inside(plain),
        NOTHING,
        region,
    )
    ends = [(o.role, o.path) for o in old.body.outputs]
    if ends != [(o.role, o.path) for o in new.body.outputs]:
        raise _NotHere
    made = _redo(walk, inner, new.body)
    for before, after in zip(old.body.outputs, new.body.outputs, strict=True):
        if not _holds(inner.made(before.value), made[after.value]):
            raise _NotHere


def _related(
    walk: _Walk, level: _Level, new: Program, positions: Sequence[int], found: Alignment
) -> dict[str, Made]:
    """The nodes at some positions, related as a program of their own.

    Raises:
        _NotHere: some rank cannot run one of them.
        IRError: one of them is not well formed.
    """
    nodes = [new.nodes[i] for i in positions]
    results = [v for n in nodes for v in n.outputs]
    inside = set(results)
    given = list(dict.fromkeys(v for n in nodes for v in n.inputs if v not in inside))
    operands: dict[str, Made] = {v: level.made(found.twins[v]) for v in given}
    inputs = [Input(v, m.type, "input", v, m.where) for v, m in operands.items()]
    part = Program(
        new.name,
        tuple(inputs),
        tuple(nodes),
        tuple(Output(v, "output", v) for v in results),
        {},
        new.mesh,
    )
    renamed: dict[int, dict[str, str]] = {}
    written = well_formed(part)
    plain = inline(written, names=renamed)
    names = Names(renamed.get(id(written), {}))
    places = regions(plain, level.region)
    if places.faults():
        raise _NotHere
    _same_ranks(walk.base, plain, places)
    facts = {v: m.facts for v, m in operands.items()}
    related = relate(level.one, plain, facts, level.contract, walk.rules, "", places)
    return {v: Made(written[v], related.facts[names(v)], places.values[names(v)]) for v in results}


def _same_ranks(base: Base, program: Program, places: Regions) -> None:
    """Raises _NotHere: a collective tells ranks apart that were judged in time as one."""
    if base.meeting is None:
        return
    kept = {name for name, size in base.meeting.dims if size == base.plain.mesh[name]}
    for node in program.nodes:
        if lookup(node.op).kind != "collective":
            continue
        for value in (*node.inputs, *node.outputs):
            if not kept.issuperset(name for name, _ in places.values[value]):
                raise _NotHere


def _as_before(level: _Level, found: Alignment, value: str, made: Made) -> bool:
    twin = found.twins.get(value)
    return twin is not None and _holds(level.made(twin), made)


def _other_type(level: _Level, found: Alignment, value: str, made: Made) -> bool:
    twin = found.twins.get(value)
    return twin is not None and level.old[twin] != made.type


def _elsewhere(level: _Level, found: Alignment, value: str, made: Made) -> bool:
    twin = found.twins.get(value)
    return twin is not None and level.made(twin).where != made.where


def _holds(old: Made, new: Made) -> bool:
    """Whether all that was known holds again."""
    if old.type != new.type or old.where != new.where:
        return False
    known = {(f.ref, f.layout, f.where) for f in new.facts}
    return all((f.ref, f.layout, f.where) in known for f in old.facts)


def _outputs(level: _Level, new: Program, made: dict[str, Made]) -> None:
    """Raises _NotHere: an output is not, or not where, the contract asks."""
    old = level.old
    if [(o.role, o.path) for o in old.outputs] != [(o.role, o.path) for o in new.outputs]:
        raise _NotHere
    for before, after in zip(old.outputs, new.outputs, strict=True):
        was, now = level.made(before.value), made[after.value]
        if was.type != now.type or was.where != now.where:
            raise _NotHere
    related = replace(level.related, facts={v: m.facts for v, m in made.items()})
    if satisfied(level.one, new, related, level.contract):
        raise _NotHere
