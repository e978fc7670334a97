"""Rewrites that keep the meaning of a distributed program: none of them may be refuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from benchmarks.mutation_testing.edits import Site, rebuilt, sites, splice, with_attrs, with_scope
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program

Variant = list[Node]
Rule = Callable[[Site], Iterator[Variant]]
RULES: dict[str, Rule] = {}


def rule(kind: str) -> Callable[[Rule], Rule]:
    def declare(body: Rule) -> Rule:
        RULES[kind] = body
        return body

    return declare


def apply(
    program: Program, kind: str, contract: Contract, rng: np.random.Generator
) -> Program | None:
    """One rewrite of a kind at a random place; None where there is no place for it."""
    if kind == "reordered independent ops":
        return _shuffled(program, rng)
    layouts = contract.inputs.items()
    same = frozenset(
        (i, n) for i, lay in layouts for n in program.mesh.names if n not in lay.mentioned
    )
    places = sites(program, replicated=same)
    found: list[tuple[Site, Variant]] = [
        (site, nodes) for site in places for nodes in RULES[kind](site)
    ]
    for at in rng.permutation(len(found)):
        site, nodes = found[int(at)]
        made = splice(program, site, nodes)
        if made is not None:
            return made
    return None


KINDS = ("reordered independent ops",)


def kinds() -> tuple[str, ...]:
    return (*KINDS, *RULES)


def _shuffled(program: Program, rng: np.random.Generator) -> Program | None:
    """A random order of some scope that defines each value before it is read."""
    scopes = {site.path: site for site in sites(program)}
    site = list(scopes.values())[int(rng.integers(len(scopes)))]
    known, left, order = {i.name for i in site.scope.inputs}, list(site.scope.nodes), list[Node]()
    while left:
        ready = [n for n in left if all(v in known for v in n.inputs)]
        node = ready[int(rng.integers(len(ready)))]
        left.remove(node)
        order.append(node)
        known.update(node.outputs)
    return with_scope(program, site, rebuilt(site.scope, order, site.scope.outputs))


def _divides(site: Site, value: str, mesh_dim: str) -> list[int]:
    size = site.scope.mesh[mesh_dim]
    return [i for i, n in enumerate(site.types[value].shape) if n % size == 0]


@rule("reduce-scatter and all-gather for all-reduce")
def _scatter_gather(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op != "all_reduce" or node.attrs.get("reduce", "sum") not in ("sum", "avg"):
        return
    over, how = str(node.attrs["mesh_dim"]), str(node.attrs.get("reduce", "sum"))
    (piece,) = site.fresh()
    for dim in _divides(site, node.inputs[0], over):
        yield [
            Node(
                "reduce_scatter",
                node.inputs,
                (piece,),
                {"mesh_dim": over, "dim": dim, "reduce": how},
                node.source,
            ),
            Node("all_gather", (piece,), node.outputs, {"mesh_dim": over, "dim": dim}, node.source),
        ]


@rule("all-reduce and slice for reduce-scatter")
def _reduce_slice(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op == "reduce_scatter":
        (total,) = site.fresh()
        over = node.attrs["mesh_dim"]
        how = node.attrs.get("reduce", "sum")
        yield [
            Node(
                "all_reduce", node.inputs, (total,), {"mesh_dim": over, "reduce": how}, node.source
            ),
            Node(
                "shard_slice",
                (total,),
                node.outputs,
                {"mesh_dim": over, "dim": node.attrs["dim"]},
                node.source,
            ),
        ]


@rule("gather and slice for all-to-all")
def _gather_slice(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op == "all_to_all":
        (total,) = site.fresh()
        over = node.attrs["mesh_dim"]
        concat, split = node.attrs["concat_dim"], node.attrs["split_dim"]
        yield [
            Node(
                "all_gather", node.inputs, (total,), {"mesh_dim": over, "dim": concat}, node.source
            ),
            Node(
                "shard_slice", (total,), node.outputs, {"mesh_dim": over, "dim": split}, node.source
            ),
        ]


@rule("deferred reduction")
def _deferred(site: Site) -> Iterator[Variant]:
    """all_reduce(a) + all_reduce(b) = all_reduce(a + b)."""
    node = site.node
    if node.op not in ("add", "sub"):
        return
    parts = [site.producer(v) for v in node.inputs]
    first, second = parts
    if first is None or second is None or first.op != "all_reduce" or second.op != "all_reduce":
        return
    if first.attrs != second.attrs or first.attrs.get("reduce", "sum") not in ("sum", "avg"):
        return
    (total,) = site.fresh()
    yield [
        replace(node, inputs=(first.inputs[0], second.inputs[0]), outputs=(total,)),
        replace(first, inputs=(total,), outputs=node.outputs),
    ]


@rule("split reduction")
def _split(site: Site) -> Iterator[Variant]:
    """all_reduce(a + b) = all_reduce(a) + all_reduce(b)."""
    node = site.node
    before = site.producer(node.inputs[0]) if node.inputs else None
    if node.op != "all_reduce" or before is None or before.op not in ("add", "sub"):
        return
    if node.attrs.get("reduce", "sum") not in ("sum", "avg"):
        return
    shape = site.types[node.inputs[0]].shape
    if any(site.types[v].shape != shape for v in before.inputs):
        return
    left, right = site.fresh(2)
    yield [
        replace(node, inputs=(before.inputs[0],), outputs=(left,)),
        replace(node, inputs=(before.inputs[1],), outputs=(right,)),
        replace(before, inputs=(left, right), outputs=node.outputs),
    ]


@rule("bias on one rank")
def _bias(site: Site) -> Iterator[Variant]:
    """all_reduce(x) + b = all_reduce(x + on_coord(b)) where b is the same on every rank."""
    node = site.node
    if node.op != "add":
        return
    for k, value in enumerate(node.inputs):
        before = site.producer(value)
        other = node.inputs[1 - k]
        if before is None or before.op != "all_reduce" or before.attrs.get("reduce") != "sum":
            continue
        over = str(before.attrs["mesh_dim"])
        if not replicated(site, other, over):
            continue
        one, total = site.fresh(2)
        for index in range(site.scope.mesh[over]):
            yield [
                Node("on_coord", (other,), (one,), {"mesh_dim": over, "index": index}, node.source),
                replace(node, inputs=(before.inputs[0], one), outputs=(total,)),
                replace(before, inputs=(total,), outputs=node.outputs),
            ]


def replicated(site: Site, value: str, mesh_dim: str) -> bool:
    """Whether a value is the same along the mesh dim: gathered, reduced or a replicated input."""
    maker = site.producer(value)
    if maker is None:
        return not site.path and (value, mesh_dim) in site.replicated
    return maker.op in ("all_reduce", "all_gather") and maker.attrs["mesh_dim"] == mesh_dim


@rule("average of equal values")
def _average(site: Site) -> Iterator[Variant]:
    """A replicated value is its own average, and its own maximum."""
    node = site.node
    if node.op not in ("all_reduce", "all_gather"):
        return
    over = str(node.attrs["mesh_dim"])
    first, total = site.fresh(2)
    early = replace(node, outputs=(first,))
    for how in ("avg", "max"):
        again = Node(
            "all_reduce", (first,), node.outputs, {"mesh_dim": over, "reduce": how}, node.source
        )
        yield [early, again]
    share = Fraction(1, site.scope.mesh[over])
    yield [
        early,
        Node("all_reduce", (first,), (total,), {"mesh_dim": over, "reduce": "sum"}, node.source),
        Node("mul_scalar", (total,), node.outputs, {"value": share}, node.source),
    ]


@rule("sum times 1/n for average")
def _sum_for_avg(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op not in ("all_reduce", "reduce_scatter"):
        return
    how = node.attrs.get("reduce", "sum")
    n = site.scope.mesh[str(node.attrs["mesh_dim"])]
    (total,) = site.fresh()
    other, factor = ("sum", Fraction(1, n)) if how == "avg" else ("avg", Fraction(n))
    if how in ("sum", "avg"):
        yield [
            replace(with_attrs(node, reduce=other), outputs=(total,)),
            Node("mul_scalar", (total,), node.outputs, {"value": factor}, node.source),
        ]


@rule("linear op moved across an all-reduce")
def _moved(site: Site) -> Iterator[Variant]:
    node = site.node
    before = site.producer(node.inputs[0]) if node.inputs else None
    linear = ("mul_scalar", "neg", "reshape", "permute", "expand", "sum")
    if before is None or node.attrs.get("reduce", "sum") not in ("sum", "avg"):
        return
    pair = (before.op, node.op)
    movable = (pair[0] in linear and pair[1] == "all_reduce") or (
        pair[0] == "all_reduce" and pair[1] in linear and before.attrs.get("reduce") != "max"
    )
    if movable and before.attrs.get("reduce", "sum") in ("sum", "avg"):
        (early,) = site.fresh()
        yield [
            replace(node, inputs=before.inputs, outputs=(early,)),
            replace(before, inputs=(early,), outputs=node.outputs),
        ]


@rule("commuted operands")
def _commuted(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op in ("add", "mul", "maximum", "minimum", "eq", "ne"):
        yield [replace(node, inputs=node.inputs[::-1])]


@rule("transposed product")
def _transposed(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op == "mm":
        left, right, out = site.fresh(3)
        turn = {"dims": (1, 0)}
        yield [
            Node("permute", (node.inputs[1],), (left,), dict(turn), node.source),
            Node("permute", (node.inputs[0],), (right,), dict(turn), node.source),
            Node("mm", (left, right), (out,), {}, node.source),
            Node("permute", (out,), node.outputs, dict(turn), node.source),
        ]


@rule("subtraction as addition")
def _subtracted(site: Site) -> Iterator[Variant]:
    node = site.node
    if node.op == "sub":
        (minus,) = site.fresh()
        yield [
            Node("neg", (node.inputs[1],), (minus,), {}, node.source),
            replace(node, op="add", inputs=(node.inputs[0], minus)),
        ]


@rule("product distributed over a sum")
def _distributed(site: Site) -> Iterator[Variant]:
    """(a + b) @ w = a @ w + b @ w."""
    node = site.node
    before = site.producer(node.inputs[0]) if node.inputs else None
    if node.op != "mm" or before is None or before.op != "add":
        return
    shape = site.types[node.inputs[0]].shape
    if any(site.types[v].shape != shape for v in before.inputs):
        return
    left, right = site.fresh(2)
    yield [
        replace(node, inputs=(before.inputs[0], node.inputs[1]), outputs=(left,)),
        replace(node, inputs=(before.inputs[1], node.inputs[1]), outputs=(right,)),
        Node("add", (left, right), node.outputs, {}, node.source),
    ]


@rule("scale in two steps")
def _two_steps(site: Site) -> Iterator[Variant]:
    node = site.node
    out = node.outputs[0]
    if lookup(node.op).kind in ("map", "einsum") and site.types[out].is_float:
        half, early = site.fresh(2)
        yield [
            replace(node, outputs=(early,)),
            Node("mul_scalar", (early,), (half,), {"value": Fraction(1, 3)}, node.source),
            Node("mul_scalar", (half,), node.outputs, {"value": Fraction(3)}, node.source),
        ]
