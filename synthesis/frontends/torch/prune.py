"""Drops what no output needs and what has no entries, and refuses programs that say nothing: whose
outputs are the same whatever they are given."""

from dataclasses import replace

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.ranks.pairing import STATE
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program, live

KEPT = ("param", "input", "cotangent")


def prune(program: Program) -> Program:
    """The program without nodes and constant inputs that reach no output."""
    kept = live(program)
    read = {v for n in kept.nodes for v in n.inputs} | {o.value for o in program.outputs}
    gone = {i.name for i in program.inputs if i.role not in KEPT and i.name not in read}
    inputs = tuple(i for i in program.inputs if i.name not in gone)
    types = {name: t for name, t in kept.types.items() if name not in gone}
    return replace(kept, inputs=inputs, types=types)


def without_empties(program: Program) -> Program:
    """The program without parameters that have no entries, their gradients, and such operands of
    joins."""
    types = program.types
    empty = {v for v, t in types.items() if t.size == 0}
    if not empty:
        return program
    same: dict[str, str] = {}
    nodes: list[Node] = []
    for node in program.nodes:
        operands = tuple(same.get(v, v) for v in node.inputs)
        if node.op == "concat" and node.outputs[0] not in empty:
            operands = tuple(v for v in operands if v not in empty)
            if len(operands) == 1:
                same[node.outputs[0]] = operands[0]
                continue
        nodes.append(replace(node, inputs=operands))
    kept = [o for o in program.outputs if o.role != "grad" or o.value not in empty]
    outputs = tuple(replace(o, value=same.get(o.value, o.value)) for o in kept)
    read, kept_nodes = {o.value for o in outputs}, list[Node]()
    for node in reversed(nodes):  # what ranks send stays, though no output depends on it
        if not empty.issuperset(node.outputs) or not read.isdisjoint(node.outputs):
            kept_nodes.append(node)
            read.update(node.inputs)
    inputs = tuple(i for i in program.inputs if i.role != "param" or i.name not in empty - read)
    names = {i.name for i in inputs} | {v for n in kept_nodes for v in n.outputs}
    return replace(
        program,
        inputs=inputs,
        nodes=tuple(reversed(kept_nodes)),
        outputs=outputs,
        types={v: t for v, t in types.items() if v in names},
    )


def refuse_constant(program: Program, name: str, step: bool = False) -> None:
    """Raises CaptureError where a model has parameters, or inputs alone, and no output depends on
    any: a proof of two such programs would be one of nothing. Rows of a table that are known
    depend on no input, and on the table. Of a `step`, something that it leaves must
    depend on an input."""
    roles = (("param", "parameter"), ("input", "input"))
    for role, what in roles[1:] if step else roles:
        given = [i.path or i.name for i in program.inputs if i.role == role]
        if not given:
            continue
        if _reached(program, role, step):
            return
        listed = ", ".join(given[:3]) + (", ..." if len(given) > 3 else "")
        raise CaptureError(
            f"no output of {name} depends on any {what} ({listed}): both programs would be "
            "constant, and a proof would say nothing",
            hint="does a buffer or a constant of zeros take the place of a weight? fill it, or "
            "make it a parameter",
        )


def _reached(program: Program, role: str, step: bool) -> bool:
    """Whether an output depends on an input of a role; of a `step`, what it leaves in parameters is
    an output."""
    found = {i.name for i in program.inputs if i.role == role}
    zeros = set[str]()
    for node in program.nodes:
        if _is_zero(node, zeros):
            zeros.update(node.outputs)
        elif not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    outputs = [
        o for o in program.outputs if o.role != "grad" and (step or not o.path.startswith(STATE))
    ]
    return not outputs or any(o.value in found for o in outputs)


def _is_zero(node: Node, zeros: set[str]) -> bool:
    """Whether a node gives zeros, whatever its other operands are."""
    if node.op in ("full", "mul_scalar") and node.attrs["value"] == 0:
        return True
    known = [i for i, value in enumerate(node.inputs) if value in zeros]
    return bool(known) and any(group and group.issubset(known) for group in lookup(node.op).linear)
