"""Tables that are no parameters: what ranks hold of them must be what one device holds."""

from collections.abc import Mapping

import numpy as np

from shardproof.agent.run.errors import InputError
from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured


def same_tables(captured: RanksCaptured) -> Mapping[str, str]:
    """For each table of which every rank holds its chunk, the placement: `S(0)@tp`.

    Tables are named after what is in them, so equal ones have one name; a chunk has the name of
    the whole.

    Raises:
        InputError: a rank reads a table that one device does not have, or ranks hold chunks of
            different kinds.
    """
    ours = captured.one.consts
    known = {i.name for i in captured.one.program.inputs}
    placed: dict[str, str] = {}
    for number, side in captured.numbered:
        for item in side.program.inputs:
            if item.role != "const":
                continue
            table = side.consts.get(item.name)
            reader = next((n for n in side.program.nodes if item.name in n.inputs), None)
            where = str(reader.source) if reader is not None else ""
            if item.name not in known:
                raise InputError(
                    f"rank {number} reads a table of shape {list(item.type.shape)} that one device "
                    "does not have; nor has it a table of which that is the rank's chunk",
                    where=where,
                    hint="make it in forward, by arithmetic on torch.arange and the like, or from "
                    "a parameter",
                )
            if table is not None and not np.array_equal(table, ours[item.name]):
                raise InputError(f"two tables have the name {item.name}", where=where)
            found = side.tables.get(item.name, "R")
            if placed.setdefault(item.name, found) != found:
                raise InputError(
                    f"ranks hold different chunks of a table: {placed[item.name]} and {found}",
                    where=where,
                    hint="let every rank hold its chunk along the same dim",
                )
    return placed
