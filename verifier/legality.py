"""Programs that some rank cannot run: refused before any value is looked at."""

from __future__ import annotations

from verifier.contract import Contract, output_key
from verifier.explain import show
from verifier.ir.program import Program
from verifier.ir.where import EVERYWHERE, within
from verifier.ir.where import show as ranks
from verifier.regions import regions
from verifier.verdict import Counterexample, Location, Trace


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
