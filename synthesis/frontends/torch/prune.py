"""Drops what no output needs."""

from dataclasses import replace

from shardproof.verifier.kernel.program.program import Program, live

KEPT = ("param", "input", "cotangent")


def prune(program: Program) -> Program:
    """The program without nodes and constant inputs that reach no output."""
    kept = live(program)
    read = {v for n in kept.nodes for v in n.inputs} | {o.value for o in program.outputs}
    gone = {i.name for i in program.inputs if i.role not in KEPT and i.name not in read}
    inputs = tuple(i for i in program.inputs if i.name not in gone)
    types = {name: t for name, t in kept.types.items() if name not in gone}
    return replace(kept, inputs=inputs, types=types)
