"""Merges what a one-device program computes twice, so that it is moved between ranks once.

A gradient reads values of the forward pass through views of its own, and repeated blocks save one
value under several names. Only what is lowered is rewritten; the program that a proof speaks of
stays as it was captured.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Output, Program

Names = dict[str, str]


def share(program: Program) -> Program:
    """The program with equal nodes merged, in repeated blocks too, and without dead nodes."""
    merged, _ = _merge(program, {})
    return _prune(merged, frozenset(o.value for o in merged.outputs))


def _merge(program: Program, given: Mapping[str, str]) -> tuple[Program, Names]:
    """Equal nodes merged; `given` maps inputs to the input they are equal to."""
    names: Names = dict(given)
    seen: dict[tuple[Any, ...], tuple[str, ...]] = {}
    nodes: list[Node] = []
    for node in program.nodes:
        inputs = tuple(names.get(v, v) for v in node.inputs)
        if node.body is not None:
            nodes.append(_merge_scan(node, inputs, names))
            continue
        attrs = tuple(sorted(lookup(node.op).with_defaults(node.attrs).items()))
        key = (node.op, inputs, attrs)
        first = seen.setdefault(key, node.outputs)
        if first is node.outputs:
            nodes.append(replace(node, inputs=inputs))
        else:
            names |= zip(node.outputs, first, strict=True)
    outputs = tuple(replace(o, value=names.get(o.value, o.value)) for o in program.outputs)
    return replace(program, nodes=tuple(nodes), outputs=outputs), names


def _merge_scan(node: Node, inputs: tuple[str, ...], names: Names) -> Node:
    """One scan with equal operands merged in its body; equal results are added to `names`."""
    body = node.block
    carry, *others = scan_parts(node.attrs, len(inputs))
    same: Names = {}
    for part in others:
        first: Names = {}
        for value, item in zip(inputs[part], body.inputs[part], strict=True):
            kept = first.setdefault(value, item.name)
            if kept != item.name:
                same[item.name] = kept
    body, _ = _merge(body, same)
    results: Names = {}
    stacked = slice(carry.stop, None)
    for name, out in zip(node.outputs[stacked], body.outputs[stacked], strict=True):
        kept = results.setdefault(out.value, name)
        if kept != name:
            names[name] = kept
    return replace(node, inputs=inputs, body=body)


def _prune(program: Program, needed: frozenset[str]) -> Program:
    """The program without nodes, stacked results and operands that no needed value depends on."""
    wanted = set(needed)
    kept: list[Node] = []
    for node in reversed(program.nodes):
        if not wanted & set(node.outputs):
            continue
        lean = _prune_scan(node, wanted) if node.body is not None else node
        wanted |= set(lean.inputs)
        kept.append(lean)
    names = {i.name for i in program.inputs} | {v for n in kept for v in n.outputs}
    types = {v: t for v, t in program.types.items() if v in names}
    return program.with_nodes(kept[::-1], types)


def _prune_scan(node: Node, wanted: set[str]) -> Node:
    body = node.block
    carry, stacked, _ = scan_parts(node.attrs, len(node.inputs))
    carries = carry.stop
    returned: list[tuple[str, Output]] = [
        (name, out)
        for k, (name, out) in enumerate(zip(node.outputs, body.outputs, strict=True))
        if k < carries or name in wanted
    ]
    outputs = tuple(out for _, out in returned)
    lean = _prune(replace(body, outputs=outputs), frozenset(o.value for o in outputs))
    read = {v for n in lean.nodes for v in n.inputs} | {o.value for o in outputs}
    taken = [k for k, item in enumerate(body.inputs) if k < carries or item.name in read]
    xs = sum(stacked.start <= k < stacked.stop for k in taken)
    items = tuple(body.inputs[k] for k in taken)
    gone = {i.name for i in body.inputs} - {i.name for i in items}
    types = {v: t for v, t in lean.types.items() if v not in gone}
    return replace(
        node,
        inputs=tuple(node.inputs[k] for k in taken),
        outputs=tuple(name for name, _ in returned),
        attrs={**node.attrs, "xs": xs},
        body=replace(lean, inputs=items, types=types),
    )
