"""Replaces composite ops by their primitives."""

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Program


def inline(
    program: Program,
    bodies: dict[int, Program] | None = None,
    names: dict[int, dict[str, str]] | None = None,
) -> Program:
    """The same program in primitive ops. Value names are kept; new ones are fresh.

    A body that several nodes share is rewritten once, and shared again. `names` is told, by `id` of
    each program, what results of composite ops are called now.

    Raises:
        IRError: a composite op that says of its time what its primitives cannot say.
    """
    bodies = {} if bodies is None else bodies
    if all(lookup(n.op).expand is None for _, n in program.distinct()):
        return program
    from shardproof.verifier.kernel.composites.expansion import written_out

    return written_out(program, bodies, names)
