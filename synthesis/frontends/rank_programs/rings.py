"""Messages by which all ranks along a mesh dim pass a value on, written as one collective.

Each rank sends what it has so many places on, and receives from as many places before: that is a
`ring_shift`. So ranks whose peers differ have one text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import process_groups

_VALUE = r'(?P<value>%(?:"(?:[^"\\]|\\.)*"|[^ "]+))'
_SEND = re.compile(rf"send {_VALUE} \{{to=(?P<peer>\d+)\}}")
_RECV = re.compile(rf"{_VALUE} = recv \{{from=(?P<peer>\d+)\}} (?P<rest>: .*)")


@dataclass
class _Rank:
    lines: list[str]
    sent: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
    """Line, value and receiver of each message that it sends."""
    received: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])


def with_rings(texts: Sequence[str], mesh: Mesh) -> list[str]:
    """The texts of all ranks, whose messages have no tags, with rings as `ring_shift`.

    The n-th message from one rank to another is the n-th that this one receives from it. A ring
    stands where its values are received; they were sent on every rank before.
    """
    ranks = [_read(text) for text in texts]
    source: dict[tuple[int, int], tuple[int, int]] = {}
    """(receiver, number of its recv) -> (sender, number of its send)."""
    for receiver, there in enumerate(ranks):
        for sender, here in enumerate(ranks):
            sent = [i for i, (_, _, to) in enumerate(here.sent) if to == receiver]
            got = [j for j, (_, _, by) in enumerate(there.received) if by == sender]
            source |= {(receiver, j): (sender, i) for i, j in zip(sent, got, strict=False)}
    for name in mesh.names:
        for group in process_groups(mesh, (name,)):
            for j in range(min(len(ranks[r].received) for r in group)):
                _turn(ranks, group, j, [source.get((r, j)) for r in group])
    return ["\n".join(line for line in rank.lines if line) + "\n" for rank in ranks]


def _read(text: str) -> _Rank:
    out = _Rank(text.splitlines())
    for at, line in enumerate(out.lines):
        for pattern, found in ((_SEND, out.sent), (_RECV, out.received)):
            if said := pattern.match(line):
                found.append((at, said["value"], int(said["peer"])))
    return out


def _turn(
    ranks: Sequence[_Rank], group: Sequence[int], j: int, found: list[tuple[int, int] | None]
) -> None:
    """Write the j-th messages that the ranks of a group receive as a ring, where they are one."""
    known = [pair for pair in found if pair is not None and pair[0] in group]
    if len(known) < len(group) or len({i for _, i in known}) > 1:
        return
    size, i = len(group), known[0][1]
    shifts = {(at - group.index(sender)) % size for at, (sender, _) in enumerate(known)}
    ahead = all(ranks[r].sent[i][0] < ranks[r].received[j][0] for r in group)
    if len(shifts) > 1 or not ahead:
        return
    kinds = {
        ranks[r].lines[ranks[r].received[j][0]].partition("}")[2].partition("@")[0] for r in group
    }
    if len(kinds) > 1:
        return
    members = ", ".join(map(str, group))
    for rank in (ranks[r] for r in group):
        (start, value, _), (end, name, _) = rank.sent[i], rank.received[j]
        said = _RECV.match(rank.lines[end])
        assert said is not None
        shift = f"{{ranks=[{members}], shift={next(iter(shifts))}}}"
        rank.lines[start] = ""
        rank.lines[end] = f"{name} = ring_shift {value} {shift} {said['rest']}"
