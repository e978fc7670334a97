"""Which nodes of an edited program are those of the program it was edited from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from verifier.kernel.program.program import Node, Program


@dataclass
class Alignment:
    """What an edit left alone. Positions and names are within one program, not its blocks."""

    twins: dict[str, str]
    """Value of the new program -> the value of the old one that stands in its place."""
    kept: dict[int, int]
    """Position of a node that says what it said -> its old position."""
    blocks: dict[int, int]
    """The same for repeated blocks of which nothing but the body changed."""
    changed: list[int]
    """Positions of the other nodes."""
    gone: list[int] = field(default_factory=list[int])
    """Old positions without a node that says the same."""

    @property
    def in_order(self) -> bool:
        """Whether what was left alone stands in the order in which it stood."""
        old = [o for _, o in sorted({**self.kept, **self.blocks}.items())]
        return all(a < b for a, b in pairwise(old))


def align(old: Program, new: Program, alike: dict[tuple[int, int], bool]) -> Alignment | None:
    """The two programs side by side; None where their inputs or mesh differ.

    Values may have new names: nodes are matched from the front and from the back, and between
    by the names of their results. `alike` remembers which bodies are equal.
    """
    if new.mesh != old.mesh or new.inputs != old.inputs:
        return None
    pairs = _pairs(old, new, alike)
    twins = {item.name: item.name for item in old.inputs}
    for at, before in pairs.items():
        ours, theirs = new.nodes[at].outputs, old.nodes[before].outputs
        if len(ours) == len(theirs):
            twins.update(zip(ours, theirs, strict=True))
    found = Alignment(twins, {}, {}, [])
    for at, node in enumerate(new.nodes):
        before = pairs.get(at)
        if before is None or not _same_call(old.nodes[before], node, twins):
            found.changed.append(at)
        elif equal_bodies(old.nodes[before].body, node.body, alike):
            found.kept[at] = before
        elif node.body is not None and old.nodes[before].body is not None:
            found.blocks[at] = before
        else:
            found.changed.append(at)
    left = {*found.kept.values(), *found.blocks.values()}
    found.gone = [i for i in range(len(old.nodes)) if i not in left]
    return found


def _pairs(old: Program, new: Program, alike: dict[tuple[int, int], bool]) -> dict[int, int]:
    """Position in the new program -> position in the old one, each at most once."""
    shorter = min(len(old.nodes), len(new.nodes))
    first = 0
    while first < shorter and _said(old.nodes[first]) == _said(new.nodes[first]):
        if not equal_bodies(old.nodes[first].body, new.nodes[first].body, alike):
            break
        first += 1
    last = 0
    while last < shorter - first:
        a, b = old.nodes[-1 - last], new.nodes[-1 - last]
        if _said(a) != _said(b) or not equal_bodies(a.body, b.body, alike):
            break
        last += 1
    pairs = {i: i for i in range(first)}
    shift = len(old.nodes) - len(new.nodes)
    pairs |= {i: i + shift for i in range(len(new.nodes) - last, len(new.nodes))}
    names = {old.nodes[i].outputs: i for i in range(first, len(old.nodes) - last)}
    for at in range(first, len(new.nodes) - last):
        before = names.get(new.nodes[at].outputs)
        if before is not None:
            pairs[at] = before
    return pairs


def _said(node: Node) -> tuple[object, ...]:
    """What a node says, but for names and for its body."""
    return node.op, len(node.inputs), len(node.outputs), node.attrs, node.where, node.timing


def _same_call(old: Node, new: Node, twins: Mapping[str, str]) -> bool:
    if old is not new and _said(old) != _said(new):
        return False
    return tuple(twins.get(v) for v in (*new.inputs, *new.outputs)) == (*old.inputs, *old.outputs)


def equal_bodies(
    old: Program | None, new: Program | None, alike: dict[tuple[int, int], bool]
) -> bool:
    """Whether two bodies say the same, name for name."""
    if old is None or new is None or old is new:
        return old is new
    key = id(old), id(new)
    if key not in alike:
        alike[key] = (
            old.mesh == new.mesh
            and old.inputs == new.inputs
            and old.outputs == new.outputs
            and len(old.nodes) == len(new.nodes)
            and all(
                a is b
                or (
                    _said(a) == _said(b)
                    and a.inputs == b.inputs
                    and a.outputs == b.outputs
                    and equal_bodies(a.body, b.body, alike)
                )
                for a, b in zip(old.nodes, new.nodes, strict=True)
            )
        )
    return alike[key]
