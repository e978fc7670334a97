"""A module of which few layers were traced: both programs with all layers, as scans, and the
contract of these."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from shardproof.synthesis.frontends.torch.ranks.result import RanksCaptured
from shardproof.synthesis.frontends.torch.rolling.depth import Depth
from shardproof.synthesis.frontends.torch.rolling.owned import rolled
from shardproof.synthesis.frontends.torch.rolling.paths import members
from shardproof.synthesis.frontends.torch.rolling.roll import NotRolledError, Rolled
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.problem import Problem

T = TypeVar("T")


def in_depth(captured: RanksCaptured, question: Problem) -> Problem | None:
    """The question about all layers that one about those traced stands for; None where their
    programs are no scans, or the layers are laid out in different ways."""
    depth = captured.one.depth
    assert depth is not None
    lists = captured.one.lists
    try:
        one = _all_layers(question.sequential, lists, depth)
        many = _all_layers(question.distributed, lists, depth)
    except NotRolledError:
        return None
    contract = _contract(question, one, depth)
    if contract is None or {output_key(o) for o in one.program.outputs} != {
        output_key(o) for o in many.program.outputs
    }:
        return None
    return Problem(one.program, many.program, contract, question.consts)


def _all_layers(program: Program, lists: tuple[str, ...], depth: Depth) -> Rolled:
    results = {o.value for o in program.outputs if o.role != "grad"}
    made = [i for i, n in enumerate(program.nodes) if results.intersection(n.outputs)]
    return rolled(program, max(made, default=-1) + 1, lists, depth)


def _contract(question: Problem, one: Rolled, depth: Depth) -> Contract | None:
    """The contract of the traced layers for what each stands for: layers of one kind in one way."""
    stated, before = question.contract, question.sequential
    if stated.balanced:
        return None
    names = {depth.whole_path(i.path): i.name for i in before.inputs}
    keys = {depth.whole_path(o.path): output_key(o) for o in before.outputs if o.role == "grad"}
    inputs: dict[str, Layout] = {}
    outputs: dict[str, Layout] = {}
    held, wanted = dict(stated.held), dict(stated.wanted)
    for item in one.program.inputs:
        traced = [names[p] for p in members(item.path, one.groups) if p in names]
        layout, where = _same(stated.inputs, traced), _same(stated.held, traced)
        if layout is None or (where is None and any(n in stated.held for n in traced)):
            return None
        inputs[item.name] = _stacked(layout, item.type.shape)
        if where is not None:
            held[item.name] = where
    for out in one.program.outputs:
        key = output_key(out)
        paths = members(out.path, one.groups) if out.role == "grad" else ()
        traced = [keys[p] for p in paths if p in keys] or [key]
        layout, where = _same(stated.outputs, traced), _same(stated.wanted, traced)
        if layout is None or (where is None and any(k in stated.wanted for k in traced)):
            return None
        outputs[key] = _stacked(layout, one.program.types[out.value].shape)
        if where is not None:
            wanted[key] = where
    held = {name: where for name, where in held.items() if name in inputs}
    wanted = {key: where for key, where in wanted.items() if key in outputs}
    return replace(stated, inputs=inputs, outputs=outputs, held=held, wanted=wanted)


def _same(table: Mapping[str, T], names: list[str]) -> T | None:
    """What all of the names have in a table; None where they have different things, or nothing."""
    found = [table[name] for name in names if name in table]
    return (
        found[0] if len(found) == len(names) > 0 and found.count(found[0]) == len(found) else None
    )


def _stacked(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout of one layer's tensor for those of all, with a dim of layers before its own."""
    more = shape[: len(shape) - len(layout.dims)]
    return replace(layout, dims=(*map(whole, more), *layout.dims))
