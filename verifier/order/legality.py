"""Programs that some rank cannot run: refused before any value is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shardproof.verifier.explain import show
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Program, in_order
from shardproof.verifier.kernel.program.types import NOWHERE
from shardproof.verifier.kernel.program.where import EVERYWHERE, show as ranks, within
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.verdict import Counterexample, Location, Trace, Unknown

if TYPE_CHECKING:
    from shardproof.verifier.order.events import TimeProgram


def illegal(distributed: Program, contract: Contract) -> Counterexample | None:
    """The first node that a rank waits in for ever, or an output that is not where it is asked."""
    places = regions(distributed)
    for fault in places.faults():
        node = fault.node
        steps = tuple(
            f"%{v} lives on {ranks(places.values[v]) or 'all ranks'}"
            for v in node.inputs
            if v in places.values
        )
        return Counterexample(
            str(distributed.mesh),
            Trace("communication legality", f"{node.op} {fault.reason}", steps),
            Location(node.op, show(node), fault.reason, node.source, steps, fault.mesh_dim),
        )
    producers = distributed.producers()
    for out in distributed.outputs:
        key = output_key(out)
        wanted, held = contract.wanted.get(key, EVERYWHERE), places.values[out.value]
        if key in contract.outputs and not within(wanted, held):
            reason = (
                f"{key} is asked for on {ranks(wanted) or 'all ranks'}, but lives on "
                f"{ranks(held)} only"
            )
            node = producers.get(out.value)
            location = None
            if node is not None:
                location = Location(node.op, show(node), reason, node.source)
            return Counterexample(
                str(distributed.mesh), Trace("placement consistency", reason), location, (key,)
            )
    return None


def ordered(
    distributed: Program, events: Callable[[], TimeProgram]
) -> Counterexample | Unknown | list[dict[str, Any]]:
    """A run of the ranks that reads too early or never ends; where every run is in order, what
    shows it to the checker.

    A program without messages that says nothing about time runs in the order of its text, and
    needs no check. A `send` without `async` waits for its `recv`. `events` are the program's.
    """
    if in_order(distributed):
        return []
    from shardproof.verifier.order.verify import shown, verify_time
    from shardproof.verifier.order.witness import witness

    try:
        program = events()
        found = verify_time(program)
    except IRError as error:
        return Unknown(f"the order of its events was not judged: {error}")
    if not found:
        return witness(program)
    first = found[0]
    told = tuple(map(str, first.events))
    if not shown(first):
        return Unknown(f"{first.check}: {first.message}, but no run was found that shows it")
    steps = tuple(first.trace.lines()[-8:]) if first.trace is not None else told
    place = first.events[0] if first.events else None
    source = place.source if place is not None else NOWHERE
    text = str(place) if place is not None else ""
    return Counterexample(
        str(distributed.mesh),
        Trace(first.check.replace("_", " "), first.message, steps),
        Location(first.check, text, first.message, source, told),
    )
