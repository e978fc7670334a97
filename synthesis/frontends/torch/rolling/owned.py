"""Blocks of the ranks' program as scans: what is done to a parameter before it is used belongs to
the module that has it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from shardproof.synthesis.frontends.torch.rolling.depth import Depth, roll_program
from shardproof.synthesis.frontends.torch.rolling.match import entry_of
from shardproof.synthesis.frontends.torch.rolling.recompute import VIEWS as MOVED
from shardproof.synthesis.frontends.torch.rolling.roll import Rolled
from shardproof.verifier.kernel.program.program import Node, Program

MOVES = frozenset(MOVED).union(
    ("slice", "concat", "pad", "cast", "mul_scalar"),
    ("all_gather", "reduce_scatter", "all_reduce", "shard_slice", "all_to_all"),
)
"""Ops that bring a parameter to where it is used, and its gradient back."""


def _owned(program: Program, backward: int, lists: Sequence[str]) -> Program:
    """The program with what is done to a parameter before it is used, and to its gradient last,
    in the module that has the parameter, whatever module ran it. What a block does to a parameter
    that is not its own stays in the block. A view between ops of one block is the block's too, and
    so is the addition of its share to the gradient of a value that other modules read as well. What
    several blocks take of a value from outside is made outside."""

    def block(path: str) -> tuple[str, int] | None:
        found = ((prefix, entry_of(path, prefix)) for prefix in lists)
        return next(((prefix, entry) for prefix, entry in found if entry is not None), None)

    owner = {i.name: i.path.rpartition(".")[0] for i in program.inputs if i.role == "param"}
    for node in program.nodes:
        found = {owner.get(v) for v in node.inputs}
        module = found.pop() if len(found) == 1 else None
        if module is None or block(node.source.module) not in (None, block(module)):
            continue
        if node.op in MOVES:
            owner |= dict.fromkeys(node.outputs, module)
    readers = Counter(v for n in program.nodes for v in n.inputs)
    last = {o.value: o.path.rpartition(".")[0] for o in program.outputs if o.role == "grad"}
    for node in reversed(program.nodes):
        module = last.get(node.outputs[0])
        if module is not None and node.op in MOVES:
            owner.setdefault(node.outputs[0], module)
            last |= {v: module for v in node.inputs if readers[v] == 1}
    maker, taken = program.producers(), dict[str, list[Node]]()
    for node in program.nodes:
        for value in node.inputs:
            taken.setdefault(value, []).append(node)

    def module_of(node: Node) -> str:
        found = owner.get(node.outputs[0])
        return node.source.module if found is None else found

    for node in program.nodes:
        made = maker.get(node.inputs[0]) if node.op in MOVED else None
        if made is None or block(module_of(node)) is not None:
            continue
        around = {block(module_of(n)) for n in (made, *taken.get(node.outputs[0], [node]))}
        if len(around) == 1 and None not in around:
            owner[node.outputs[0]] = module_of(made)
    outside = {i.name for i in program.inputs if i.name not in owner}
    for node in program.nodes[:backward]:
        taken_out = node.op in MOVES and outside.issuperset(node.inputs)
        if taken_out or block(module_of(node)) is None:
            outside.update(node.outputs)
    for node in reversed(program.nodes[:backward]):
        at, value = block(module_of(node)), node.outputs[0]
        around = {block(module_of(n)) for n in taken.get(value, [])} | {at}
        if at is not None and value in outside and len(around) > 1:
            owner[value] = at[0].rpartition(".")[0]
    place = {v: at for at, node in enumerate(program.nodes) for v in node.outputs}
    for node in program.nodes[backward:]:
        if node.op == "add" and block(module_of(node)) is None:
            added = max(node.inputs, key=lambda v: place.get(v, -1))
            if added in maker and block(module_of(maker[added])) is not None:
                owner[node.outputs[0]] = module_of(maker[added])
    nodes = tuple(
        replace(n, source=replace(n.source, module=owner[n.outputs[0]]))
        if n.outputs[0] in owner
        else n
        for n in program.nodes
    )
    return replace(program, nodes=nodes)


def rolled(program: Program, backward: int, lists: Sequence[str], depth: Depth | None) -> Rolled:
    """The program of the ranks, of which all from the node `backward` on is backward.

    Raises:
        NotRolledError: as `roll`.
    """
    later = frozenset(v for n in program.nodes[backward:] for v in n.outputs)
    return roll_program(_owned(program, backward, lists), later, list(lists), depth)
