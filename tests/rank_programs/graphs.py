"""Programs compared as graphs: the same values on the same ranks, whatever their names are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

import numpy as np

from shardproof.verifier.domains.base import Array
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.rank_sets import regions
from shardproof.verifier.refute.evaluate import simulate


def graph(program: Program) -> tuple[Hashable, ...]:
    """Inputs, nodes and outputs; every value is what computes it, and where it lives."""
    places = regions(program).values
    known: dict[str, int] = {}
    table: dict[Hashable, int] = {}

    def number(key: Hashable) -> int:
        return table.setdefault(key, hash(key))

    inputs = frozenset((i.name, i.type, i.role, i.path, places[i.name]) for i in program.inputs)
    for item in program.inputs:
        known[item.name] = number(("input", item.name, places[item.name]))
    nodes: Counter[int] = Counter()
    for node in program.nodes:
        attrs = lookup(node.op).with_defaults(node.attrs)
        given = tuple(known[v] for v in node.inputs)
        if node.op == "merge":
            given = tuple(sorted(given))
        body = None if node.body is None else graph(node.body)
        where = places[node.outputs[0]]
        key = (node.op, given, tuple(sorted(attrs.items())), where, node.timing, body)
        nodes[number(key)] += 1
        for i, name in enumerate(node.outputs):
            known[name] = number((key, i))
    outputs = frozenset((output_key(o), known[o.value]) for o in program.outputs)
    return inputs, frozenset(nodes.items()), outputs


def results(
    program: Program, ranks: list[Mapping[str, Array]]
) -> list[dict[str, tuple[float, ...]]]:
    """What every rank returns."""
    values = simulate(program, ranks)
    return [
        {
            output_key(o): tuple(np.ravel(local[o.value]).tolist())
            for o in program.outputs
            if o.value in local
        }
        for local in values
    ]
