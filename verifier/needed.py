"""Values without which an output has none, whichever way every choice goes.

`log(q)` below a `where` need not have a value where the other branch is taken. So what must be
defined because outputs are is found backward from them: only through ops that use every entry of
an operand. Through a choice nothing is said: `where`, a maximum, a comparison, a lookup, a slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verifier.ir.program import Node, Program
from verifier.ir.types import FLOATS, TensorType
from verifier.ops.control import scan_parts

STRICT = frozenset(
    {"neg", "mul_scalar", "add_scalar", "add", "sub", "mul", "div", "reciprocal", "pow", "round_to"}
    | {"exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "erf"}
    | {"abs", "floor", "silu", "silu_grad", "gelu", "gelu_grad", "gelu_tanh", "gelu_tanh_grad"}
    | {"softplus", "mm", "bmm", "sum", "cumsum"}
    | {"reshape", "permute", "expand", "concat", "pad", "flip"}
)
"""Ops of which a result that is not empty uses every entry of every operand."""

PARTIAL = frozenset({"log", "log1p", "sqrt", "rsqrt", "pow", "reciprocal", "div"})
"""Ops without a value everywhere."""


@dataclass(frozen=True)
class Needed:
    """Which outputs need every entry of a value, in a body at every step: a bit for each output."""

    every: int
    """The bits of all outputs."""
    masks: Mapping[int, Mapping[str, int]]
    """By the `id` of the program and of each body in it, by value."""


def needed(program: Program, outputs: Iterable[str] | None = None) -> Needed:
    """What the outputs need; `outputs` names some of the values returned, or all."""
    returned = (o.value for o in program.outputs) if outputs is None else outputs
    bits = {name: 1 << k for k, name in enumerate(dict.fromkeys(returned))}
    found: dict[int, dict[str, int]] = {}
    _backward(program, bits, found)
    return Needed((1 << len(bits)) - 1, found)


def runs_defined(node: Node, scope: Program, need: Needed) -> bool:
    """Whether all that a node does not have a value for, or its body, is needed by the outputs."""
    if node.body is not None:
        return all(runs_defined(inner, node.body, need) for inner in node.body.nodes)
    return node.op not in PARTIAL or need.masks[id(scope)][node.outputs[0]] == need.every


def _backward(
    program: Program, masks: Mapping[str, int], found: dict[int, dict[str, int]] | None
) -> dict[str, int]:
    """For each value the outputs that need all of it, a bit for each; `masks` are those known.

    Bodies are told to `found`, where it is given: what is needed at every step wherever they occur.
    """
    need = dict.fromkeys(program.types, 0) | dict(masks)
    for node in reversed(program.nodes):
        if node.op == "scan":
            through = _scan(node, [need[v] for v in node.outputs], found)
        else:
            (out,) = node.outputs
            mask = need[out] if _strict(node, program.types) else 0
            through = [mask] * len(node.inputs)
        for name, mask in zip(node.inputs, through, strict=True):
            need[name] |= mask
    if found is not None:
        before = found.get(id(program))
        found[id(program)] = (
            need if before is None else {v: need[v] & mask for v, mask in before.items()}
        )
    return need


def _strict(node: Node, types: Mapping[str, TensorType]) -> bool:
    if not types[node.outputs[0]].size:
        return False
    if node.op == "cast":
        return node.attrs["dtype"] in FLOATS
    return node.op in STRICT


def _scan(node: Node, outer: Sequence[int], found: dict[int, dict[str, int]] | None) -> list[int]:
    """What the operands of a scan are needed for, from what its results are.

    What a step makes of a carry is needed where the next step needs it, and at the last step where
    the result is.
    """
    body, carries = node.body, scan_parts(node.attrs, len(node.inputs))[0].stop
    assert body is not None
    ends = [o.value for o in body.outputs]
    masks = list(outer)
    while True:
        need = _backward(body, _joined(ends, masks), None)
        kept = [
            mask & need[body.inputs[k].name] if k < carries else mask
            for k, mask in enumerate(masks)
        ]
        if kept == masks:
            break
        masks = kept
    need = _backward(body, _joined(ends, masks), found)
    return [need[i.name] for i in body.inputs]


def _joined(names: Sequence[str], masks: Sequence[int]) -> dict[str, int]:
    out = dict.fromkeys(names, 0)
    for name, mask in zip(names, masks, strict=True):
        out[name] |= mask
    return out
