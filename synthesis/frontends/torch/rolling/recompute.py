"""Lets the backward make its own views of what it saves, and nothing else.

What the forward computed and the backward computes again (`torch.utils.checkpoint`) is the first.

A backward that reads a view (reshape, permute, expand) of a forward value reads the value instead
and views it again, so that a repeated block saves each value once, and no view of a parameter. A
value that the forward only reshapes, as what a linear layer multiplies out, is saved as reshaped:
ranks that add it up or gather it do so after, and what they come by is saved, no view of it. A
parameter is cut again, one that a rank gathered is gathered again, a part that ranks share is
taken again, and what
ranks exchanged is exchanged again: what is saved is then what one device saves.
"""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import takewhile

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import IN_ORDER, Node, Program
from shardproof.verifier.ops.classes import VIEWS


def recompute_views(program: Program, backward: frozenset[str]) -> tuple[Program, frozenset[str]]:
    """The same program with forward views repeated in the backward, and its backward values."""
    maker = program.producers()
    parts = _parts(program, maker)
    gathered = _gathered(program) | parts
    params = {i.name for i in program.inputs if i.role == "param"}
    cuts = {n.outputs[0] for n in program.nodes if n.op == "slice" and n.inputs[0] in params}
    shaped = _shaped(program, backward, maker, parts) - gathered
    types = dict(program.types)
    nodes: list[Node] = []
    more: set[str] = set(backward)
    copies: dict[tuple[str, str], str] = {}

    def copy(value: str, reader: Node) -> str:
        made = maker.get(value)
        again = made is not None and (made.op in (*VIEWS, "all_to_all") or value in gathered | cuts)
        if made is None or value in backward or value in shaped or not again:
            return value
        block = reader.source.module
        key = (value, block)
        if key not in copies:
            operands = tuple(copy(v, reader) for v in made.inputs)
            name = f"{value}.{len(copies)}b"
            source = replace(made.source, module=block)
            nodes.append(Node(made.op, operands, (name,), made.attrs, source))
            types[name] = types[value]
            more.add(name)
            copies[key] = name
        return copies[key]

    for node in program.nodes:
        if node.outputs[0] in backward:
            node = replace(node, inputs=tuple(copy(v, node) for v in node.inputs))
        nodes.append(node)
    return replace(program, nodes=tuple(nodes), types=types), frozenset(more)


def compute_once(program: Program, backward: frozenset[str]) -> Program:
    """The same program, in which the backward reads what the forward made where it makes that
    again: the same op on the same values, in the nearest module. What it reshapes to and fro of the
    forward it reads as it was: a gradient is reshaped by each module that takes it, the last of
    alike ones as the others. What then no node reads stays."""
    numbers: dict[object, int] = {}
    number = {i.name: numbers.setdefault(i.name, len(numbers)) for i in program.inputs}
    made: dict[int, list[Node]] = {}
    reshaped: dict[int, int] = {}
    before: dict[str, str] = {}
    known: dict[str, str] = {}
    nodes: list[Node] = []
    for given in program.nodes:
        node = replace(given, inputs=tuple(known.get(v, v) for v in given.inputs))
        operands = tuple(number[v] for v in node.inputs)
        if node.op == "reshape":
            operands = tuple(reshaped.get(n, n) for n in operands)
        plain = node.body is None and node.timing == IN_ORDER
        attrs = tuple(sorted((k, repr(v)) for k, v in node.attrs.items()))
        key = (node.op, operands, attrs, str(node.where)) if plain else node.outputs
        same = numbers.setdefault(key, len(numbers))
        for i, value in enumerate(node.outputs):
            number[value] = numbers.setdefault((same, i), len(numbers))
        if node.op == "reshape":
            reshaped[number[node.outputs[0]]] = operands[0]
            value, whole = node.outputs[0], before.get(node.inputs[0], node.inputs[0])
            before[value] = whole
            again = value in backward and whole not in backward
            if again and program.types[value] == program.types[whole]:
                known[value] = whole
        found = made.setdefault(same, [])
        if node.outputs[0] not in backward:
            found.append(node)
        elif found and node.inputs:
            first = max(found, key=partial(_near, node))
            known |= zip(node.outputs, first.outputs, strict=True)
        nodes.append(node)
    outputs = tuple(replace(o, value=known.get(o.value, o.value)) for o in program.outputs)
    return replace(program, nodes=tuple(nodes), outputs=outputs)


def _near(a: Node, b: Node) -> int:
    """How much of the paths of their modules two nodes have in common."""
    both = zip(a.source.module.split("."), b.source.module.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda names: names[0] == names[1], both))


def _shaped(
    program: Program, backward: frozenset[str], maker: dict[str, Node], parts: set[str]
) -> set[str]:
    """Reshaped values that no forward op reads as they were before."""
    forward = [n for n in program.nodes if n.outputs[0] not in backward]
    readers = Counter(value for node in forward for value in node.inputs)
    views = {v for v, node in maker.items() if node.op in VIEWS}
    for node in forward:
        if lookup(node.op).kind == "collective" and node.inputs[0] in views:
            views.update(node.outputs)
    bases = {v for v, n in readers.items() if n == 1 and v in maker} - views - parts
    return {n.outputs[0] for n in forward if n.op == "reshape" and n.inputs[0] in bases}


def _parts(program: Program, maker: dict[str, Node]) -> set[str]:
    """Chunks of tables, and of values that hold each part several times."""
    found: set[str] = set()
    tables = {i.name for i in program.inputs if i.role == "const"}
    for node in program.nodes:
        many = maker.get(node.inputs[0]) if node.op == "shard_slice" else None
        parts = maker.get(many.inputs[0]) if many is not None and many.op == "reshape" else None
        again = parts is not None and parts.op == "expand"
        again = again or (node.op == "shard_slice" and node.inputs[0] in tables)
        found.update(node.outputs if again else ())
    return found


def _gathered(program: Program) -> set[str]:
    """Values that a rank has of parameters by gathering them. What another module than the
    parameter's own takes from one is no part of it."""
    pieces = {i.name: i.path.rpartition(".")[0] for i in program.inputs if i.role == "param"}
    found: dict[str, str] = {}
    for node in program.nodes:
        first = node.inputs[0] if node.inputs else ""
        if node.op == "all_gather" and first in (held := pieces | found):
            found |= dict.fromkeys(node.outputs, held[first])
        elif node.op in VIEWS and first in pieces:
            pieces |= dict.fromkeys(node.outputs, pieces[first])
        elif lookup(node.op).kind != "view" and node.op != "shard_slice":
            continue
        elif {found.get(v) for v in node.inputs} == {node.source.module}:
            found |= dict.fromkeys(node.outputs, node.source.module)
    return set(found)
