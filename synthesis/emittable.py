"""Whether a candidate can be written as module styles: collectives of the forward pass only where
a module begins or ends, since the owner's code between modules runs on local tensors."""

from collections.abc import Mapping, Sequence

from synthesis.forward import forward_values
from synthesis.roles import Module, heads
from verifier.kernel.program.program import Node, Program

MOVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shard_slice"})


def obstacle(
    program: Program, modules: Sequence[Module], kinds: Mapping[str, str], tp: str, size: int
) -> str | None:
    """The first collective over tp that no module style can stand for, in words, if any."""
    if not any(n.source.module for _, n in program.walk()):
        return None
    parents = {path.rpartition(".")[0] for path in kinds}
    leaves = {m.path for m in modules} | {path for path in kinds if path not in parents}
    few_heads = {m.path.rpartition(".")[0] for m in modules if 0 < m.heads < size}
    whole = heads(list(modules))
    plain = {m.path for m in modules if m.use == "other"}
    bodies = {n.outputs[0]: n.body for n in program.nodes if n.body is not None}
    forward = forward_values(program)
    for scope, node in _scoped(program):
        if node.op not in MOVES or node.attrs["mesh_dim"] != tp:
            continue
        if (scope, node.outputs[0]) not in forward:
            continue
        module = node.source.module
        if node.op == "shard_slice" and module in few_heads:
            continue
        if not module and node.op == "all_reduce":
            continue
        if module in leaves and node.op != "shard_slice":
            holder = bodies.get(scope, program)
            if module in plain and _within(holder, node):
                return f"needs {node.op} over {tp} in the middle of {node.source}"
            if module in whole or not _gathers_product(holder, node):
                continue
        where = str(node.source) or f"the model itself, on %{node.inputs[0]}"
        return f"needs {node.op} over {tp} inside {where}"
    return None


def _gathers_product(program: Program, node: Node) -> bool:
    """Whether a gather joins what a product of the same module made: between two column layers
    the styles have no word for it."""
    if node.op != "all_gather":
        return False
    producers = program.producers()
    made = producers.get(node.inputs[0])
    while made is not None and made.op in ("reshape", "permute", "add", "all_reduce"):
        made = producers.get(made.inputs[0])
    return made is not None and made.op == "mm" and made.source.module == node.source.module


def _within(program: Program, node: Node) -> bool:
    """Whether a collective's operand and its readers all belong to its own module."""
    made = program.producers().get(node.inputs[0])
    readers = [n for n in program.nodes if node.outputs[0] in n.inputs]
    around = [made.source.module if made else "", *(n.source.module for n in readers)]
    return all(module == node.source.module for module in around)


def _scoped(program: Program) -> list[tuple[str, Node]]:
    out: list[tuple[str, Node]] = []
    for node in program.nodes:
        out.append(("", node))
        if node.body is not None:
            out += [(node.outputs[0], inner) for inner in node.body.nodes]
    return out
