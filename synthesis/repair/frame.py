"""What no edit may touch: inputs, the names of outputs, and the programs of a contract.

The one-device program and the contract are no part of an edit at all. Where a contract prepares
inputs or reads outputs by programs of its own, these are composed with the distributed program, and
the ops that they put there stay as they are.
"""

from collections.abc import Collection
from dataclasses import replace

from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.program.program import Node, Program, unused

PREFIXES = ("given.", "taken.")
"""How the values are named that the programs of a contract make (`verifier.text.contract`)."""


def contract_values(program: Program) -> frozenset[str]:
    """Values that the `given` and `taken` programs of a contract make."""
    made = (v for n in program.nodes for v in n.outputs)
    return frozenset(v for v in made if v.startswith(PREFIXES))


def keeps(before: Program, after: Program, fixed: Collection[str] = frozenset()) -> bool:
    """Whether an edited program has the frame that it had.

    Of the fixed ops, only what they read from ops that are not fixed may be another value; what
    they alone could read, no other op may come to read.
    """
    if after.inputs != before.inputs or after.mesh != before.mesh:
        return False
    if list(map(output_key, after.outputs)) != list(map(output_key, before.outputs)):
        return False
    if not fixed:
        return True
    fixed = frozenset(fixed)
    now, made = after.producers(), before.producers()
    for name in fixed:
        node, old = now.get(name), made[name]
        if node is None or replace(node, inputs=old.inputs) != old:
            return False
        if len(node.inputs) != len(old.inputs):
            return False
        for a, b in zip(old.inputs, node.inputs, strict=True):
            if a != b and (a in fixed or b in fixed or a not in made):
                return False
    hidden = _hidden(before, fixed)
    reads = (v for n in after.nodes if fixed.isdisjoint(n.outputs) for v in n.inputs)
    if not hidden.isdisjoint(reads):
        return False
    ends = zip(before.outputs, after.outputs, strict=True)
    return all(a == b for a, b in ends if a.value in fixed)


def _hidden(program: Program, fixed: frozenset[str]) -> set[str]:
    """Values that stand between a program of a contract and its own inputs or results."""
    seen = {v for n in program.nodes if fixed.isdisjoint(n.outputs) for v in n.inputs}
    mine = {v for n in program.nodes if not fixed.isdisjoint(n.outputs) for v in n.inputs}
    inputs = {i.name for i in program.inputs}
    return ((mine & inputs) | fixed) - seen


def own_part(own: Program, composed: Program, edited: Program) -> Program | None:
    """The distributed program of its owner within an edited composition.

    `own` is that program before, `composed` it between the programs of the contract. None where
    the edits are not to be said of the owner's program alone.
    """
    fixed = contract_values(composed)
    if not fixed or own == composed:
        return edited
    names = _back(own, composed)
    outputs = _own_outputs(own, composed, edited, fixed, names)
    if outputs is None:
        return None
    taken = {v for n in own.nodes for v in n.outputs} | {i.name for i in own.inputs}
    nodes: list[Node] = []
    types = {i.name: i.type for i in own.inputs}
    for node in edited.nodes:
        if fixed.issuperset(node.outputs):
            continue
        for name in node.outputs:
            if name not in names:
                names[name] = _unused(name, taken)
                taken.add(names[name])
            types[names[name]] = edited.types[name]
        if any(v not in names for v in node.inputs):
            return None
        mine = tuple(names[v] for v in node.inputs)
        nodes.append(replace(node, inputs=mine, outputs=tuple(names[v] for v in node.outputs)))
    if any(names.get(name) not in types for name in outputs):
        return None
    pairs = zip(own.outputs, outputs, strict=True)
    ends = tuple(replace(out, value=names[name]) for out, name in pairs)
    return replace(own, nodes=tuple(nodes), outputs=ends, types=types)


def _back(own: Program, composed: Program) -> dict[str, str]:
    """For each value of the composition that is one of the owner's, its name there."""
    theirs = [n for n in composed.nodes if not n.outputs[0].startswith(PREFIXES)]
    names: dict[str, str] = {}
    for mine, node in zip(own.nodes, theirs, strict=True):
        pairs = zip((*node.inputs, *node.outputs), (*mine.inputs, *mine.outputs), strict=True)
        names |= dict(pairs)
    inputs = {i.name for i in composed.inputs}
    return {i.name: i.name for i in own.inputs if i.name in inputs} | names


def _own_outputs(
    own: Program,
    composed: Program,
    edited: Program,
    fixed: frozenset[str],
    names: dict[str, str],
) -> list[str] | None:
    """What the owner's program returns now, by the names of the composition."""
    there = {mine: name for name, mine in names.items()}
    moved: dict[str, str] = {}
    now, before = edited.producers(), composed.producers()
    pairs = [
        (a, b)
        for v in fixed & now.keys()
        for a, b in zip(before[v].inputs, now[v].inputs, strict=True)
        if a not in fixed
    ]
    ends = zip(composed.outputs, edited.outputs, strict=True)
    pairs += [(a.value, b.value) for a, b in ends if a.value not in fixed]
    for a, b in pairs:
        if moved.setdefault(a, b) != b:
            return None
    here = (there.get(out.value, out.value) for out in own.outputs)
    return [moved.get(name, name) for name in here]


def _unused(name: str, taken: set[str]) -> str:
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return unused(name, taken)
