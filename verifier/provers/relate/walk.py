"""Walks a distributed program and finds facts for every value from those of its operands."""

import math
from collections.abc import Iterator
from itertools import chain, islice, product

from shardproof.verifier.analysis.garbage import no_collection
from shardproof.verifier.analysis.replication import alike, positive
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.ops import Refused, lookup
from shardproof.verifier.kernel.peeling import Peel, PeelError, peeled
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Mesh, mesh_dims
from shardproof.verifier.kernel.program.where import Where, common
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.ops.classes import REARRANGING
from shardproof.verifier.provers.relate.facts import MAX_FACTS, Break, Fact, Related
from shardproof.verifier.provers.relate.joining import joined
from shardproof.verifier.provers.relate.moving import PIECE, moved_facts
from shardproof.verifier.provers.relate.peeling import want_peel
from shardproof.verifier.provers.relate.recognition import slice_of_known
from shardproof.verifier.provers.relate.relayout import totals
from shardproof.verifier.provers.relate.rules import Rules, initial
from shardproof.verifier.provers.relate.scans import relate_scan
from shardproof.verifier.provers.relate.strategies import Wide, plainest, recognised, share
from shardproof.verifier.provers.sequential import Sequential, as_terms
from shardproof.verifier.terms import Ref, Terms, times

MAX_COMBINATIONS = 48
MAX_READINGS = 8
"""Facts of a number that is the same at every place: as many as three mesh dims may split one dim.
"""
MAX_PEELS = 64
MAX_WIDE = 700
"""Combinations of facts, where single ranks are told apart."""


@no_collection()
def relate_peeled(
    sequential: Program, distributed: Program, contract: Contract, rules: Rules
) -> tuple[Sequential, Related, tuple[Peel, ...]]:
    """The one-device program as terms, cut as the distributed one is, and the facts found.

    The peels say how it was cut: none where the distributed program repeats what it repeats.
    """
    bodies: dict[int, Sequential] = {}
    peels: list[Peel] = []
    program, rules.peeling = sequential, True
    while True:
        one = as_terms(program, bodies=bodies)
        related = relate(one, distributed, initial(contract, one, distributed), contract, rules)
        if not related.wanted or not rules.peeling:
            return one, related, tuple(peels)
        try:
            program = peeled(program, related.wanted)
            peels += related.wanted
            rules.peeling = len(peels) < MAX_PEELS
        except PeelError:
            rules.peeling = False


def relate(
    sequential: Sequential,
    distributed: Program,
    inputs: dict[str, list[Fact]],
    contract: Contract,
    rules: Rules,
    path: str = "",
    places: Regions | None = None,
) -> Related:
    """Derive facts for every value of the distributed program from facts for its inputs."""
    out = Related(dict(inputs), [])
    places = places or regions(distributed)

    def step(node: Node) -> list[Fact]:
        held = [out.facts.get(v, []) for v in node.inputs]
        return _step(sequential, distributed, node, held, rules, path, out, places)

    wide = None
    if rules.wide and not path:
        same = alike(distributed, contract, places), positive(distributed)
        wide = Wide(sequential, rules.mesh, *same, out, distributed, step, rules.pieces)
    for node in distributed.nodes:
        if out.wanted and rules.peeling and node.op not in ("scan", "slice"):
            continue
        operands = [out.facts.get(v, []) for v in node.inputs]
        if not all(operands):
            for name in node.outputs:
                out.facts[name] = []
            if node.op == "scan":
                want_peel(sequential, distributed, node, operands, out)
            continue
        if node.op == "scan" and out.wanted and rules.peeling:
            want_peel(sequential, distributed, node, operands, out)
            continue
        if node.op == "scan":
            relate_scan(sequential, distributed, node, operands, rules, path, out, places)
            continue
        region = places.values[node.outputs[0]]
        if wide:
            wide.split(node, region)
        if lookup(node.op).kind == "movement":
            facts = moved_facts(sequential.terms, node, operands, region, rules, path, out)
            out.rules[node.op] = out.rules.get(node.op, 0) + 1
        else:
            facts = step(node)
        if not facts and share(out, rules, node):
            facts = step(node)
        if wide and not facts and wide.apart(node):
            facts = step(node)
        local = distributed.types[node.outputs[0]].shape
        if wide and not facts and node.op != "concat":
            facts = wide.cut(node, region, local)
        if wide and not facts and lookup(node.op).kind != "movement":
            facts = wide.again(node, lambda node=node: step(node))
        if wide and not facts:
            facts = wide.cut(node, region, local)
        if wide and facts and wide.otherwise(node, facts):
            facts = step(node)
        if rules.wide:
            facts = recognised(sequential, plainest(facts))
        facts = keep(sequential, facts)
        if any(f.where != facts[0].where for f in facts):
            facts = joined(facts, sequential.terms, rules.mesh, sequential.known)
        if node.op in REARRANGING and len(local) < len(distributed.types[node.inputs[0]].shape):
            facts = totals(sequential.terms, facts, sequential.known)
        if wide:
            facts = wide.at_home(node, wide.whole(recognised(sequential, facts)))
        if contract.balanced and node.op == "sum":
            facts = _assume(sequential, contract, rules.mesh, facts, operands[0])
        out.facts[node.outputs[0]] = facts
    if wide:
        wide.asked(distributed, contract)
    return out


def _step(
    sequential: Sequential,
    program: Program,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    path: str,
    out: Related,
    places: Regions,
) -> list[Fact]:
    terms = sequential.terms
    dtypes = [program.types[v].dtype for v in node.inputs]
    local = program.types[node.outputs[0]].shape
    found: dict[tuple[Ref, Layout, Where], Fact] = {}
    region = places.values[node.outputs[0]]
    op = lookup(node.op)
    collective = op.kind == "collective"
    whole = mesh_dims(op.with_defaults(node.attrs)["mesh_dim"]) if collective else ()
    refused: tuple[Refused, tuple[Fact, ...]] | None = None
    most = MAX_WIDE if rules.wide else MAX_COMBINATIONS
    choices = [list(range(len(f))) for f in operands]
    many = math.prod(map(len, choices)) > most
    if many:
        for order, held in zip(choices, operands, strict=True):
            order.sort(key=lambda i, held=held: len(held[i].where))
    first = _alike(operands) if many else ()
    for picks in islice(chain(first, product(*choices)), most):
        chosen = tuple(facts[i] for facts, i in zip(operands, picks, strict=True))
        where = common(region, *(f.where for f in chosen))
        if where is None:
            continue
        limited = dict(where)
        if any(name in limited for name in whole):
            name = next(n for n in whole if n in limited)
            why = Refused(f"the ranks along {name} hold different values", name, 0)
            refused = refused or (why, chosen)
            continue
        zeros = frozenset(
            i for i, f in enumerate(chosen) if f.ref.coef == 0 and not f.layout.partial
        )
        try:
            placed = rules.place(node, tuple(f.layout for f in chosen), zeros, sequential.shapes)
        except Refused as refusal:
            refused = refused or (refusal, chosen)
            continue
        for option in placed:
            (layout,) = option.layouts
            if layout.local_shape != local or any(n in limited for n in layout.pending):
                continue
            if option.moves:
                ref = chosen[0].ref
            else:
                refs, attrs = [f.ref for f in chosen], dict(option.attrs)
                ref = terms.apply(node.op, refs, attrs, dtypes)
                if rules.wide:
                    ref = slice_of_known(sequential, node.op, refs, attrs, dtypes, ref)
            ref = Ref(times(ref.coef, option.scale), ref.id)
            if terms.shape(ref) != layout.global_shape:
                continue
            found.setdefault((ref, layout, where), Fact(ref, layout, picks, node.op, where))
    if not found and refused is not None:
        out.breaks.append(Break(node, refused[0], refused[1], path))
    out.rules[node.op] = out.rules.get(node.op, 0) + 1
    return list(found.values())


def _alike(operands: list[list[Fact]]) -> Iterator[tuple[int, ...]]:
    """One fact of each operand, all of them waiting for the same sums."""
    for partial in dict.fromkeys(f.layout.partial for facts in operands for f in facts):
        picks = [
            next((i for i, f in enumerate(facts) if f.layout.partial == partial), None)
            for facts in operands
        ]
        known = tuple(i for i in picks if i is not None)
        if len(known) == len(operands) > 1:
            yield known


def keep(sequential: Sequential, facts: list[Fact]) -> list[Fact]:
    """Prefer facts about terms that the one-device program computes, then those of shapes that it
    has; cap the rest. Of a number that is the same at every place all are kept: which pieces it is
    of, others say. So is the piece that one rank is left with: others may hold the same."""
    out: list[Fact] = []
    for where in dict.fromkeys(f.where for f in facts):
        here = [f for f in facts if f.where == where]
        known = [f for f in here if f.ref.id in sequential.known]
        if known:
            rest = [f for f in here if f not in known]
            here = known + [
                f for f in rest if _is_piece(sequential.terms, f) or _uniform(sequential, f)
            ]
        most = MAX_READINGS if all(_uniform(sequential, f) for f in here) else MAX_FACTS
        if len(here) > most:
            here.sort(key=lambda f: sequential.terms.shape(f.ref) not in sequential.shapes)
        out += here[:most]
    return out


def _is_piece(terms: Terms, fact: Fact) -> bool:
    """Whether a fact says which slice of a known value a rank was left with."""
    if fact.rule == "merge":
        return terms[fact.ref.id].op == "slice" and not fact.layout.mentioned
    return fact.rule.startswith(PIECE)


def _uniform(sequential: Sequential, fact: Fact) -> bool:
    """Whether a fact says of a value that it is one number but 0, everywhere."""
    return sequential.terms[fact.ref.id].op == "ones" and fact.ref.coef != 0


def _assume(
    sequential: Sequential, contract: Contract, mesh: Mesh, facts: list[Fact], summed: list[Fact]
) -> list[Fact]:
    """Facts that an assumption of the contract adds to a sum over a batch split in blocks."""
    out = list(facts)
    for item in contract.balanced:
        target, over = sequential.values.get(item.value), item.mesh_dims
        for fact in facts:
            if not dict(fact.where).keys().isdisjoint(over) or fact.rule.startswith("joined"):
                continue
            blocks = summed[fact.premises[0]].layout.dims[:1]
            if not blocks or tuple(a.mesh_dim for a in blocks[0][: len(over)]) != over:
                continue
            pending = all(fact.layout.fold(name) == "sum" for name in over)
            if target and fact.ref.id == target.id and pending:
                rest = (p for p in fact.layout.partial if p[0] not in over)
                ref = Ref(fact.ref.coef / math.prod(mesh[name] for name in over), fact.ref.id)
                layout = fact.layout.with_partial(rest)
                rule = f"balanced:{item.mesh_dim}"
                out.append(Fact(ref, layout, fact.premises, rule, fact.where))
    return out
