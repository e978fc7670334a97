"""The nodes of a program that something depends on."""

from collections.abc import Collection, Sequence

from shardproof.verifier.kernel.program.program import Node, Program


def live(program: Program) -> Program:
    """The program without the nodes that no output depends on. Bodies are left as they are."""
    kept = leading_to({o.value for o in program.outputs}, program.nodes)
    names = {i.name for i in program.inputs} | {v for n in kept for v in n.outputs}
    types = {v: t for v, t in program.types.items() if v in names}
    return program.with_nodes(kept, types)


def leading_to(values: Collection[str], nodes: Sequence[Node]) -> list[Node]:
    """Those nodes, in their order, that some of the values depend on."""
    needed, kept = set(values), list[Node]()
    for node in reversed(nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return kept[::-1]
