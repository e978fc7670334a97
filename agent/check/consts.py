"""Tables that are no parameters: what ranks hold of them must be what one device holds."""

from __future__ import annotations

from collections.abc import Mapping

from agent.errors import InputError
from verifier.frontend.ranks import RanksCaptured
from verifier.ir.program import Program


def same_tables(captured: RanksCaptured, many: Program) -> Mapping[str, str]:
    """For each table of which every rank holds its chunk, the placement: `S(0)@tp`.

    Tables are named after what is in them, so equal ones have one name; a chunk has the name of
    the whole.

    Raises:
        InputError: a rank reads a table that one device does not have, or ranks hold chunks of
            different kinds.
    """
    known = {i.name for i in captured.one.program.inputs}
    placed: dict[str, str] = {}
    for item in many.inputs:
        if item.role != "const":
            continue
        reader = next((n for n in many.nodes if item.name in n.inputs), None)
        where = str(reader.source) if reader is not None else ""
        shape = list(item.type.shape)
        if item.name not in known:
            raise InputError(
                f"ranks read a table of shape {shape} that one device does not have, nor a chunk "
                "of one",
                where=where,
                hint="make it in forward, by arithmetic on torch.arange and the like, or from a "
                "parameter",
            )
        found = {r.tables.get(item.name, "R") for r in captured.ranks}
        if len(found) > 1:
            raise InputError(
                f"ranks hold different chunks of a table: {' and '.join(sorted(found))}",
                where=where,
                hint="let every rank hold its chunk along the same dim",
            )
        placed[item.name] = found.pop()
    return placed
