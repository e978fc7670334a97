"""Values without which the outputs have none, whichever way every choice goes.

`log(q)` below a `where` need not have a value where the other branch is taken. So what must be
defined because outputs are is found backward from them: only through ops that use every entry of
an operand. Through a choice nothing is said: `where`, a maximum, a comparison, a lookup, a slice.
"""

from collections.abc import Iterable, Mapping, Sequence

from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.registry import traits
from shardproof.verifier.kernel.program.types import FLOATS, TensorType

Needed = Mapping[int, frozenset[str]]
"""By the `id` of a program and of each body in it: values of which every entry is needed, in a body
at every step."""


def in_scope(program: Program, gradients: bool) -> tuple[str, ...]:
    """Values returned that are all defined on inputs in scope.

    Outputs are judged where all outputs are defined, and gradients where these are too: behind a
    guard of the forward there may be no gradient, as 0 times infinity.
    """
    outputs = tuple(o.value for o in program.outputs if o.role != "grad")
    return tuple(o.value for o in program.outputs) if gradients or not outputs else outputs


def needed(program: Program, outputs: Iterable[str]) -> Needed:
    """What some of the outputs named, which are all defined, have no value without."""
    found: dict[int, frozenset[str]] = {}
    _backward(program, frozenset(outputs), found, {})
    return found


def runs_defined(node: Node, scope: Program, need: Needed) -> bool:
    """Whether all that may have no value in a node, or in its body, is needed."""
    if node.body is not None:
        return all(runs_defined(inner, node.body, need) for inner in node.body.nodes)
    return not traits(node.op).needs or node.outputs[0] in need[id(scope)]


Seen = dict[tuple[int, frozenset[str], bool], frozenset[str]]
"""What was worked out before, by program, outputs, and whether it was told."""


def _backward(
    program: Program,
    outputs: frozenset[str],
    found: dict[int, frozenset[str]] | None,
    seen: Seen,
) -> frozenset[str]:
    """The values needed for `outputs`.

    Bodies are told to `found`, where it is given: what is needed at every step wherever they occur.
    """
    key = id(program), outputs, found is not None
    if key in seen:
        return seen[key]
    need = set(outputs)
    for node in reversed(program.nodes):
        if node.op == "scan":
            need |= _scan(node, [v in need for v in node.outputs], found, seen)
        elif node.outputs[0] in need and _strict(node, program.types):
            need |= set(node.inputs)
    out = seen[key] = frozenset(need)
    if found is not None:
        found[id(program)] = found.get(id(program), out) & out
    return out


def _strict(node: Node, types: Mapping[str, TensorType]) -> bool:
    if not types[node.outputs[0]].size:
        return False
    if node.op == "cast":
        return node.attrs["dtype"] in FLOATS
    return traits(node.op).strict


def _scan(
    node: Node, outer: Sequence[bool], found: dict[int, frozenset[str]] | None, seen: Seen
) -> set[str]:
    """The operands of a scan that are needed, where these of its results are.

    What a step makes of a carry is needed where the next step needs it, and at the last step where
    the result is.
    """
    body, carries = node.block, scan_parts(node.attrs, len(node.inputs))[0].stop
    kept = list(outer)
    while True:
        before = list(kept)
        ends = frozenset(o.value for o, held in zip(body.outputs, kept, strict=True) if held)
        need = _backward(body, ends, None, seen)
        for k, item in enumerate(body.inputs[:carries]):
            kept[k] = kept[k] and item.name in need
        if kept == before:
            break
    need = _backward(body, ends, found, seen)
    return {v for i, v in zip(body.inputs, node.inputs, strict=True) if i.name in need}
