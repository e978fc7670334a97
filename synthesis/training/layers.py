"""Where the layers of a captured model are cut into pipeline stages.

Layers are the steps of the repeated blocks whose xs are stacked parameters. They are numbered
through all blocks and dealt to the stages in equal runs; a block that several stages share is cut
where they meet. A block of the backward pass is cut as the one that it is the gradient of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shardproof.synthesis.training.step import TrainingError
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program


@dataclass(frozen=True)
class Run:
    """Layers of one block that lie on one stage."""

    stage: int
    start: int
    stop: int


@dataclass(frozen=True)
class Layers:
    """The runs of every block, and of every stacked parameter."""

    blocks: Mapping[str, tuple[Run, ...]]
    """By the first output of a scan, forward or backward."""
    params: Mapping[str, tuple[Run, ...]]


def layers(program: Program, stages: int) -> Layers:
    """The cut of a pass, forward and backward, into a number of stages.

    Raises:
        TrainingError: no repeated layers, fewer of them than stages, or a stacked parameter that is
            used otherwise than by its layers.
    """
    forward = [n for n in _scans(program) if not n.attrs.get("reverse") and _params(program, n)]
    total = sum(n.number("length") for n in forward)
    if total < stages:
        raise TrainingError(f"{total} repeated layers cannot be cut into {stages} stages")
    blocks: dict[str, tuple[Run, ...]] = {}
    params: dict[str, tuple[Run, ...]] = {}
    made: dict[str, tuple[Run, ...]] = {}
    first = 0
    for node in forward:
        runs = tuple(_runs(first, node.number("length"), total, stages))
        first += node.number("length")
        blocks[node.outputs[0]] = runs
        made |= dict.fromkeys(node.outputs, runs)
        for name in _params(program, node):
            if params.setdefault(name, runs) != runs:
                raise TrainingError(f"{name} is shared by blocks that are cut otherwise")
    for node in _scans(program):
        if node.outputs[0] in blocks:
            continue
        _, xs, _ = scan_parts(node.attrs, len(node.inputs))
        found = {r for v in node.inputs[xs] if (r := params.get(v) or made.get(v)) is not None}
        if len(found) > 1 or any(r[-1].stop != node.number("length") for r in found):
            raise TrainingError(f"the block %{node.outputs[0]} reads from blocks that are cut")
        for runs in found:
            blocks[node.outputs[0]] = runs
    for node in program.nodes:
        for value in node.inputs if node.body is None else ():
            if len(params.get(value, ())) > 1:
                raise TrainingError(f"{value} is read outside of its layers, by {node.op}")
    return Layers(blocks, params)


def _runs(first: int, length: int, total: int, stages: int) -> Iterator[Run]:
    for stage in range(stages):
        start = max(0, -(-stage * total // stages) - first)
        stop = min(length, -(-(stage + 1) * total // stages) - first)
        if start < stop:
            yield Run(stage, start, stop)


def _scans(program: Program) -> list[Node]:
    return [n for n in program.nodes if n.body is not None]


def _params(program: Program, node: Node) -> list[str]:
    _, xs, _ = scan_parts(node.attrs, len(node.inputs))
    roles = {i.name: i.role for i in program.inputs}
    return [v for v in node.inputs[xs] if roles.get(v) == "param"]
