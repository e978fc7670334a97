"""Where the sequence-parallel region begins and ends: at the repeated blocks.

Code before the first block (positions, masks) reads the sequence length off the activation, so the
embedding stays whole and the first block takes its slice. The last norm returns a DTensor, so that
code after it sees the whole shape.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardproof.synthesis.emit.facts import ModelFacts
from shardproof.synthesis.emit.groups import Prepared, layouts
from shardproof.synthesis.emit.patch import EmitError
from shardproof.synthesis.planner.plan import ModulePlan, Plan

SEQUENCE = "S(1)"


def region(
    plan: Plan, facts: ModelFacts, modules: Sequence[ModulePlan]
) -> tuple[list[Prepared], list[ModulePlan]]:
    """Input conversions of the first blocks, and the modules with the placements they then have.

    Raises:
        EmitError: the model has no repeated blocks that pass an activation on.
    """
    if not plan.sequence_parallel:
        return [], list(modules)
    inside = [m for m in modules if SEQUENCE in (m.input, m.output) and ".*." in m.path]
    prepared: list[Prepared] = []
    for path in dict.fromkeys(m.path.split(".*.")[0] for m in inside):
        first = facts.find(f"{path}.0")
        arguments = layouts(first, "R", SEQUENCE) if first else None
        if arguments is None:
            raise EmitError(f"{path}.0 takes no activation that a sequence could be split of")
        prepared.append(Prepared(f"{path}.0", (*arguments, "use_local_output=True")))
    if not prepared:
        raise EmitError("sequence parallelism needs repeated blocks; plan without it")
    return prepared, [_outside(m) for m in modules]


def _outside(m: ModulePlan) -> ModulePlan:
    if ".*." in m.path:
        return m
    if m.style in ("vocab", "replicate") and m.input == "R" and m.output == SEQUENCE:
        return replace(m, output="R")
    if m.style == "sequence" and m.input == m.output == SEQUENCE:
        return replace(m, output="DTensor")
    return m
