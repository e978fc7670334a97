"""Repeated blocks that some ranks run otherwise: their bodies, united step by step."""

from collections.abc import Sequence
from dataclasses import replace

from shardproof.synthesis.frontends.rank_programs.symbolic import (
    ClassProgram,
    LineError,
    Step,
    block_lines,
    step_of,
)
from shardproof.verifier.kernel.program.errors import MalformedError
from shardproof.verifier.kernel.program.program import Node, Output
from shardproof.verifier.kernel.program.types import NOWHERE


def bodies(programs: Sequence[ClassProgram], steps: Sequence[Step]) -> list[ClassProgram]:
    """One step of each class, a repeated block, as the programs of its bodies.

    Outputs are told apart by their place. Nodes say on which line they stand.

    Raises:
        LineError: a merge in a body.
    """
    return [_body(owner, step) for owner, step in zip(programs, steps, strict=True)]


def _body(owner: ClassProgram, step: Step) -> ClassProgram:
    node = step.node
    assert node is not None
    body = node.block
    out = ClassProgram(owner.owner, body, file=owner.file, first=owner.first)
    at = step.line + 1 + len(body.inputs)
    for child in body.nodes:
        if child.op == "merge":
            error = MalformedError("a merge in a repeated block that differs between ranks")
            raise LineError(at, error, "unsupported")
        out.steps.append(step_of(at, _placed(child, owner, at)))
        at += 1 + block_lines(child)
    outputs = tuple(replace(o, path=str(k)) for k, o in enumerate(body.outputs))
    out.steps.append(Step("return", min(at, len(owner.owner.lines) - 1), outputs=outputs))
    return out


def _placed(node: Node, owner: ClassProgram, line: int) -> Node:
    return replace(node, source=owner.place(line)) if node.source == NOWHERE else node


def in_order(outputs: Sequence[Output], named: Sequence[Output]) -> tuple[Output, ...]:
    """Outputs of a united body in the order of their places, with the paths of a body."""
    by_place = {int(o.path): o for o in outputs}
    return tuple(replace(by_place[k], path=named[k].path) for k in range(len(named)))
