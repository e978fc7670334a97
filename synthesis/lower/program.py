"""Lowers a one-device program to a distributed one, given where its inputs live.

Walks the program in order. Every value keeps the layouts it is available in; each op takes the
layouts its rule accepts at the least cost, and collectives are inserted where a layout has to
change. The result is a candidate: only the verifier decides whether it is right.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from synthesis.cost import Prices
from synthesis.forward import forward_values
from synthesis.lower.availability import get, primary
from synthesis.lower.blocks import compute, run
from synthesis.lower.emission import rescale
from synthesis.lower.layouts import without
from synthesis.lower.state import (
    Choices,
    Lowered,
    LoweringError,
    Move,
    Setting,
    State,
    Value,
    scope_state,
    sources,
)
from verifier.kernel.contract import Balanced, Contract, output_key
from verifier.kernel.layout import Layout
from verifier.kernel.ops.control import scan_parts
from verifier.kernel.program.program import Program
from verifier.kernel.program.types import Mesh


def lower(
    program: Program,
    mesh: Mesh,
    choices: Choices,
    prices: Prices,
    memo: dict[Any, Any] | None = None,
    paid: frozenset[Move] = frozenset(),
    admit: Callable[[Lowered], None] | None = None,
) -> Lowered:
    """Lower a one-device program (primitives only).

    `memo` may be shared between lowerings of one program at the same prices. `paid` are the
    moves of an earlier lowering at the same choices: each op then reckons that they are made.
    `admit` is shown the forward pass alone, and may raise to have no more of it lowered.

    Raises:
        LoweringError: an op for which no distribution was found.
    """
    forward = frozenset(forward_values(program))
    setting = Setting(mesh, choices, prices, memo if memo is not None else {}, forward, paid=paid)
    top = scope_state(setting, program)
    stacked = {
        v
        for node in program.nodes
        if node.op == "scan"
        for v in node.inputs[scan_parts(node.attrs, len(node.inputs))[1]]
    }
    for item in program.inputs:
        value = Value(item.name, choices.inputs[item.name])
        if item.role == "param":
            top.weights.add(item.name)
        top.enter(item.name, value, item.type.dtype, item.role, item.path)
        computed = choices.compute.get(item.name)
        if computed is not None and item.name not in stacked:
            compute(top, item.name, computed)
    split = {
        out.value
        for out in program.outputs
        if out.role == "grad" and _is_split(choices, output_key(out))
    }
    top.gradients = sources(program, split)
    places = (k for k, node in enumerate(program.nodes) if ("", node.outputs[0]) in forward)
    end = 1 + max(places, default=-1)
    run(top, program.nodes[:end])
    if admit is not None:
        admit(_forward(top))
    run(top, program.nodes[end:])
    outputs: dict[str, Layout] = {}
    for out in program.outputs:
        key = output_key(out)
        natural = primary(top, out.value).layout
        target = choices.outputs.get(key) or _result(natural, out.role, choices)
        found = get(top, out.value, target)
        if found is None:
            raise LoweringError(top.producer[out.value], f"{key} is not to be had as {target}")
        value = rescale(top, out.value, found)
        top.builder.output(value.name, out.role, out.path)
        outputs[key] = value.layout
    balanced = tuple(
        Balanced(name, choices.dp or "", "the number of labels that count")
        for name in sorted(setting.balanced)
    )
    contract = Contract(dict(choices.inputs), outputs, balanced)
    return Lowered(top.builder.build(), contract, tuple(setting.pairs), frozenset(setting.moved))


def _forward(top: State) -> Lowered:
    """What stands after the last op of the forward pass: its values as they were made."""
    made = [
        replace(out, value=top.values[out.value][0].name)
        for out in top.program.outputs
        if out.role in ("output", "loss") and out.value in top.values
    ]
    program = replace(top.builder.build(), outputs=tuple(made))
    return Lowered(program, Contract({}, {}), tuple(top.setting.pairs))


def _is_split(choices: Choices, key: str) -> bool:
    layout = choices.outputs.get(key)
    return layout is not None and choices.tp in layout.sharded


def _result(natural: Layout, role: str, choices: Choices) -> Layout:
    """Losses are whole everywhere; other outputs keep their batch split."""
    names = natural.mentioned if role == "loss" else natural.pending
    if choices.tp and choices.gather_outputs:
        names = names | {choices.tp}
    return without(natural, names)
