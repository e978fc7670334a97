"""Calls of several ranks that have to fit: collectives, sends and receives."""

from collections.abc import Iterator

from shardproof.verifier.order.checks.base import Check
from shardproof.verifier.order.context import Context
from shardproof.verifier.order.violation import Violation


def _faults(ctx: Context) -> Iterator[Violation]:
    for fault in ctx.matching.faults:
        yield Violation(fault.check, fault.message, fault.places, ctx.stuck())


CALLS = (
    Check(
        "communicator",
        "Every rank that calls on a communicator is in it, and all members name the same ranks in "
        "the same order.",
        "A rank joins a group it is not in, or two members mean different groups: they wait for "
        "ranks that never come, or take each other's shards.",
        _faults,
    ),
    Check(
        "collective_order",
        "All members of a communicator make the same calls on it, in the same order.",
        "The k-th calls differ, or a member makes none: the others deadlock.",
        _faults,
    ),
    Check(
        "collective_size",
        "Members of a collective bring operands of one size, where sizes are stated.",
        "Operands differ in size: the call hangs or mixes up memory.",
        _faults,
    ),
    Check(
        "p2p_peer",
        "Peers of sends and receives are other ranks that run.",
        "A rank sends to itself or to nobody.",
        _faults,
    ),
    Check(
        "p2p_count",
        "On every channel there are as many sends as receives.",
        "A send or a receive is left over: it never ends, or its message goes to the next receive.",
        _faults,
    ),
    Check(
        "p2p_order",
        "The k-th send of a channel carries what the k-th receive expects, as labelled.",
        "A receive gets another micro-batch than it expects.",
        _faults,
    ),
    Check(
        "p2p_size",
        "A send and its receive have one size, where sizes are stated.",
        "A receive gets more or less than it has room for.",
        _faults,
    ),
)
