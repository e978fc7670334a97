"""Tables that are no parameters: what ranks hold of them must be what one device holds."""

from __future__ import annotations

from collections.abc import Mapping

from agent.errors import InputError
from verifier.domains.base import Array
from verifier.frontend.ranks import RanksCaptured
from verifier.ir.program import Program


def same_constants(
    captured: RanksCaptured, many: Program
) -> tuple[Program, Program, Mapping[str, Array]]:
    """Both programs, and the values of the tables that they read.

    Tables are named after what is in them, so equal ones have one name.

    Raises:
        InputError: a rank reads a table that one device does not have.
    """
    one = captured.one.program
    consts: dict[str, Array] = dict(captured.one.consts)
    known = {i.name for i in one.inputs}
    for item in many.inputs:
        if item.role == "const" and item.name not in known:
            reader = next((n for n in many.nodes if item.name in n.inputs), None)
            raise InputError(
                f"ranks read a table of shape {list(item.type.shape)} that one device does not "
                "have",
                where=str(reader.source) if reader is not None else "",
                hint="make it in forward, by arithmetic on torch.arange and the like, or from a "
                "parameter",
            )
    return one, many, consts
