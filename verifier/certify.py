"""Writes the certificate of a proof by relations, for the checker to replay.

Facts that no output rests on are left out. What repeats is said once and named by its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardproof.verifier.checker.certificate import VERSION, Prepared, header, sealed
from shardproof.verifier.kernel.contract import layout_to_json, output_key
from shardproof.verifier.kernel.layout import Layout
from shardproof.verifier.kernel.peeling import Peel
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.registry import ONE
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, within
from shardproof.verifier.terms import Ref
from shardproof.verifier.text.digest import digest

if TYPE_CHECKING:
    from shardproof.verifier.provers.relate.facts import Fact, Related
    from shardproof.verifier.provers.sequential import Sequential


def certificate(
    given: Prepared,
    one: Sequential,
    related: Related,
    peels: Sequence[Peel] = (),
    equal: Mapping[str, int] | None = None,
    opened: Program | None = None,
    order: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The certificate of a proof.

    `peels` say which steps of repeated blocks of the one-device program are written out in `one`,
    `equal` which facts are equal to what is asked of an output in index notation. `opened` is the
    program of `one` where its cross entropies are opened up. `order` shows that events are in
    order.
    """
    equal, distributed, contract = equal or {}, given.problem.distributed, given.problem.contract
    used = {name: set[int]() for name in distributed.types}
    proved: dict[str, tuple[str, int]] = {}
    values = {output_key(o): o.value for o in distributed.outputs}
    for out in one.program.outputs:
        key = output_key(out)
        facts = related.facts[values[key]]
        wanted, layout = one.values[out.value], contract.outputs[key]
        where = contract.wanted.get(key, EVERYWHERE)
        if key in equal:
            index = equal[key]
        else:
            index = next(i for i, f in enumerate(facts) if _proves(f, wanted, layout, where))
        used[values[key]].add(index)
        proved[key] = (values[key], index)
    said = _Said()
    claims, kept = said.claims(distributed, one, related, used)
    document: dict[str, Any] = {
        "version": VERSION,
        **header(given),
        "layouts": [layout_to_json(layout) for layout in said.layouts],
        "ranks": [[[name, list(at)] for name, at in where] for where in said.ranks],
        "blocks": said.blocks,
        "claims": claims,
        "outputs": {key: kept[name].index(i) for key, (name, i) in proved.items()},
    }
    if peels:
        document["peels"] = [[p.block, [list(run) for run in p.kept]] for p in peels]
    if opened is not None:
        document["opened"] = digest(opened)
    return sealed(document, order)


def _proves(fact: Fact, wanted: Ref, layout: Layout, where: Where) -> bool:
    if not within(where, fact.where):
        return False
    zero = fact.ref.coef == wanted.coef == 0 and not fact.layout.partial
    return zero or (fact.ref == wanted and fact.layout == layout)


class _Said:
    """What a certificate says once."""

    def __init__(self) -> None:
        self.layouts: dict[Layout, int] = {}
        self.ranks: dict[Where, int] = {}
        self.blocks: list[dict[str, Any]] = []
        self._of: dict[int, int] = {}
        """By the `id` of facts that were found once for several nodes: their place in `blocks`."""

    def claims(
        self, program: Program, one: Sequential, related: Related, used: dict[str, set[int]]
    ) -> tuple[dict[str, Any], dict[str, list[int]]]:
        """Claims of one program, and by value the facts among `related` that they are."""
        bodies: dict[str, Any] = {}
        for node in reversed(program.nodes):
            if not any(used[name] for name in node.outputs):
                continue
            if node.body is None:
                (name,) = node.outputs
                _reach(related.facts[name], used[name])
                for fact in (related.facts[name][index] for index in used[name]):
                    if fact.rule.startswith("joined"):
                        continue
                    for value, premise in zip(node.inputs, fact.premises, strict=True):
                        if premise >= 0:
                            used[value].add(premise)
                continue
            scan, inner = related.bodies[node.outputs[0]]
            inside = self._block(node.body, scan.inner, inner)
            bodies[node.outputs[0]] = {"block": scan.node.outputs[0], "claims": inside}
            for value in node.inputs:
                used[value] = set(range(len(related.facts[value])))
        for item in program.inputs:
            _reach(related.facts.get(item.name, []), used[item.name])
        kept = {name: sorted(indices) for name, indices in used.items() if indices}
        operands = {out: node.inputs for node in program.nodes for out in node.outputs}
        values: dict[str, Any] = {}
        for name, indices in kept.items():
            values[name] = []
            for fact in (related.facts[name][i] for i in indices):
                premises: list[int] = []
                if fact.rule.startswith("joined"):
                    premises = [indices.index(index) for index in fact.premises]
                elif fact.premises and fact.rule != "scan":
                    pairs = zip(operands[name], fact.premises, strict=True)
                    premises = [kept[value].index(i) if i >= 0 else -1 for value, i in pairs]
                values[name].append(self._row(one, fact, premises))
        return {"values": values, "bodies": bodies}, kept

    def _block(self, body: Program, one: Sequential, related: Related) -> int:
        """The place in `blocks` of the claims inside a repeated block."""
        if id(related) not in self._of:
            used = {name: set[int]() for name in body.types}
            for name in (*(i.name for i in body.inputs), *(o.value for o in body.outputs)):
                used[name] = set(range(len(related.facts[name])))
            found, _ = self.claims(body, one, related, used)
            self.blocks.append(found)
            self._of[id(related)] = len(self.blocks) - 1
        return self._of[id(related)]

    def _row(self, one: Sequential, fact: Fact, premises: list[int]) -> dict[str, Any]:
        ref, term = fact.ref, one.terms[fact.ref.id]
        cut: tuple[int, ...] | None = None
        if term.op == "slice" and ref.id not in one.known and term.attrs[3] == 1:
            (inner,) = term.args
            ref, cut = Ref(ref.coef * inner.coef, inner.id), term.attrs[:3]
        name, factor = one.known.get(ref.id), None
        if name is not None:
            base = one.values[name].coef
            if base:
                factor = ref.coef if base is ONE else ref.coef / base
            elif not ref.coef:
                factor = base + 1
        row: dict[str, Any] = {
            "of": None if factor is None else name,
            "factor": None if factor is None else f"{factor.numerator}/{factor.denominator}",
            "layout": self.layouts.setdefault(fact.layout, len(self.layouts)),
            "from": premises,
            "rule": fact.rule,
        }
        if cut is not None and factor is not None:
            row["cut"] = list(cut)
        if fact.where:
            row["on"] = self.ranks.setdefault(fact.where, len(self.ranks))
        return row


def _reach(facts: list[Fact], used: set[int]) -> None:
    """Add the facts of the same value that joined facts rest on."""
    todo = list(used)
    while todo:
        fact = facts[todo.pop()]
        if fact.rule.startswith("joined"):
            todo += [i for i in fact.premises if i not in used]
            used.update(fact.premises)
