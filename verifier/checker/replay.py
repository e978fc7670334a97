"""Replays a certificate: every claim against the claims it comes from, every output at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, cast

from shardproof.verifier.analysis.garbage import no_collection
from shardproof.verifier.checker.certificate import (
    ELEMENTWISE,
    VERSION,
    Prepared,
    header,
    prepare,
    seal,
)
from shardproof.verifier.checker.claims import (
    Claim,
    Named,
    NotShownError,
    Row,
    fits,
    meant,
    need,
    same,
    stands,
)
from shardproof.verifier.checker.induction import enters, follows, kept, likewise
from shardproof.verifier.checker.joins import JOINS, join
from shardproof.verifier.checker.rules import Steps, real
from shardproof.verifier.kernel.contract import (
    Contract,
    ContractError,
    check as check_contract,
    output_key,
)
from shardproof.verifier.kernel.instance import JOINED
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.errors import IRError, MalformedError
from shardproof.verifier.kernel.program.jsondata import Cursor
from shardproof.verifier.kernel.program.program import Node, Program, in_order
from shardproof.verifier.kernel.program.types import mesh_dims
from shardproof.verifier.kernel.program.where import EVERYWHERE, show, within
from shardproof.verifier.kernel.rank_sets import Regions, regions
from shardproof.verifier.problem import Problem
from shardproof.verifier.proof import scope_of
from shardproof.verifier.provers.sequential import Scan, Sequential, as_terms
from shardproof.verifier.terms import Ref, Terms

if TYPE_CHECKING:
    from shardproof.verifier.checker.parts import Part
    from shardproof.verifier.smt.answers import Answers, Summary


@dataclass(frozen=True, slots=True)
class Accepted:
    """Every claim follows, and every output is as the contract asks."""

    claims: int
    scope: tuple[str, ...] = ()
    """What was shown, worked out from the programs and not read from the certificate."""
    assumptions: tuple[str, ...] = ()
    """All that it rests on: what the contract assumes, and what the steps assume besides."""
    steps: Summary | None = None
    """How far Z3 shows the steps, where it was asked."""
    engine: str = ""
    """What entries were compared as, where there are no claims."""
    rests: tuple[str, ...] = ()
    """What it rests on besides the rules for claims, of `PARTS`: each a room that nothing else
    of the checker reaches."""

    def __str__(self) -> str:
        steps = f"; {self.steps}" if self.steps is not None else ""
        engine = f"; engine: {self.engine}" if self.engine else ""
        rests = f"; with {', '.join(self.rests)}" if self.rests and not self.engine else ""
        return f"certificate accepted: {self.claims} claims{steps}{engine}{rests}"


@dataclass(frozen=True, slots=True)
class Rejected:
    """The first thing in the certificate that does not follow."""

    reason: str
    where: str
    """A value of the distributed program, an output, or a path in the certificate."""


Result = Accepted | Rejected
Known = dict[str, list[Claim]]
Shown = Callable[[Row, Ref], bool]
Stated = tuple[list[tuple[Row, Claim, str]], list[Claim]]
"""Rows that something has to give, each with its claim and its place; and all claims."""


PARTS = {
    "composite ops": "shardproof.verifier.kernel.composites",
    "further ops": "shardproof.verifier.ops",
    "index notation": "shardproof.verifier.provers.canonical",
    "cross entropies opened": "shardproof.verifier.provers.cross_entropy",
    "loop peeling": "shardproof.verifier.kernel.peeling",
    "further relations": "shardproof.verifier.checker.parts",
    "values that change ranks": "shardproof.verifier.kernel.movements",
    "order in time": "shardproof.verifier.checker.order",
    "entries as polynomials": "shardproof.verifier.checker.identities",
}
"""What programs or a certificate may ask for besides rules for claims, and the room that is loaded
for it."""


OTHER_VERSION = (
    "a certificate of version {}, where this checker reads version "
    f"{VERSION}: prove the programs again to get one"
)


class BrokenError(Exception):
    """What is rejected, and where."""

    def __init__(self, reason: str, where: str) -> None:
        super().__init__(reason)
        self.rejected = Rejected(reason, where)


@no_collection()
def check(
    certificate: Mapping[str, Any],
    problem: Problem | Prepared,
    discharge: Answers | None = None,
) -> Result:
    """Whether the certificate shows that the distributed program meets the contract.

    With `discharge`, Z3 is asked about every distinct step that it rests on and about equal terms,
    where no answer is kept yet; equal terms are computed besides, and small programs are run on
    numbers. What is refuted in one of these ways is a fault of the verifier, and nothing is
    accepted: `discharge` can reject, and show nothing.
    """
    try:
        given = prepare(problem) if isinstance(problem, Problem) else problem
        sequential, distributed = given.problem.sequential, given.problem.distributed
        contract = given.problem.contract
        _readable(given.problem)
        if discharge is not None and (why := discharge.differ(given.about, given.problem)):
            raise BrokenError("the programs differ on numbers", why)
        at = Cursor(certificate, "certificate")
        if at["version"].value != VERSION:
            raise BrokenError(OTHER_VERSION.format(at["version"].value), "version")
        if _by_elements(certificate):
            _timely(at["order"], given)
            _runnable(regions(distributed))
            need(not contract.balanced, "what the contract assumes has no part in a comparison")
            from shardproof.verifier.checker.identities import again

            found = again(certificate, given, _assumed(contract), _used(at, given, None))
            if discharge is None or isinstance(found, Rejected):
                return found
            from shardproof.verifier.checker.entries import shown

            wrong, said = shown(given, discharge)
            if wrong:
                return Rejected(wrong, "the entries")
            return replace(found, engine=f"{found.engine}; {said}")
        _header(at, given)
        _timely(at["order"], given)
        opened, labels = _rewritten(at, sequential)
        one = as_terms(opened, Terms() if discharge is None else discharge.table())
        walk = _Walk(distributed, contract, at)
        known = walk.top(one, at["claims"])
        _outputs(at["outputs"], one, distributed, contract, known)
        assumed = *_assumed(contract), *labels
        steps = _settled(discharge, walk.told, one) if discharge is not None else None
        if steps is not None and steps.faults:
            return Rejected(steps.faults[0], "the rules of the checker")
        if steps is not None and steps.terms.wrong:
            return Rejected(steps.terms.wrong, "the terms")
        used = _used(at, given, one, walk.parts)
        return Accepted(walk.count, scope_of(sequential, distributed), assumed, steps, rests=used)
    except BrokenError as broken:
        return broken.rejected
    except NotShownError as error:
        return Rejected(str(error), "the programs")
    except ContractError as error:
        return Rejected(str(error), "the contract")
    except MalformedError as error:
        return Rejected(error.what, error.where or "the programs")
    except IRError as error:
        return Rejected(str(error), "the programs")
    except RecursionError:
        return Rejected("nested too deeply", "certificate")


def _used(
    at: Cursor, given: Prepared, one: Sequential | None, parts: Collection[str] = ()
) -> tuple[str, ...]:
    """Which of `PARTS` was needed, some of which the walk knows."""
    rooms = {lookup(op).room for op in given.others}
    declared = [PARTS[name] for name in ("composite ops", "values that change ranks")]
    said = {
        "composite ops": declared[0] in rooms,
        "values that change ranks": declared[1] in rooms,
        "further ops": not rooms.issubset(declared),
        "index notation": one is not None and _keyed(one),
        "cross entropies opened": "opened" in at,
        "loop peeling": "peels" in at,
        "order in time": bool(at["order"].items()),
        "entries as polynomials": one is None,
    }
    return tuple(name for name in PARTS if name in parts or said.get(name))


def _keyed(one: Sequential) -> bool:
    """Whether terms of a program, or of a repeated block of it, were compared in index notation."""
    return "keys" in vars(one) or any(_keyed(scan.inner) for scan in one.scans)


def _settled(discharge: Answers, told: Steps, one: Sequential) -> Summary:
    """What is answered about the steps that were told, and about equal terms."""
    from shardproof.verifier.checker.conclusion import conclude

    told.tables = list(_tables(one))
    return discharge.settle(told, conclude)


def _tables(one: Sequential) -> Iterator[Terms]:
    """The terms of a program, and of the bodies of its repeated blocks."""
    yield one.terms
    for inner in {id(scan.inner): scan.inner for scan in one.scans}.values():
        yield from _tables(inner)


def _timely(at: Cursor, given: Prepared) -> None:
    if in_order(given.problem.distributed):
        if at.items():
            raise BrokenError("events of a program that has none", "order")
        return
    from shardproof.verifier.checker.order import in_time

    try:
        in_time(at, given)
    except NotShownError as error:
        raise BrokenError(str(error), "order") from None


def _runnable(places: Regions) -> Regions:
    """No rank waits in a collective for ranks that are not there."""
    for fault in places.faults():
        raise NotShownError(f"{fault.node.op} {fault.reason}")
    return places


def _assumed(contract: Contract) -> tuple[str, ...]:
    return *contract.assumptions, *map(str, contract.balanced)


def _by_elements(certificate: object) -> bool:
    if not isinstance(certificate, dict):
        return False
    return cast(dict[str, Any], certificate).get("kind") == ELEMENTWISE


def _readable(problem: Problem) -> None:
    """The contract fits the programs, whose ops mean over numbers what their terms say; the
    one-device program sends nothing, and inputs hold numbers of one kind on both sides."""
    sequential, distributed = problem.sequential, problem.distributed
    real(sequential)
    real(distributed)
    check_contract(sequential, distributed, problem.contract)
    for _, node in sequential.distinct():
        sends = lookup(node.op).kind in ("collective", "movement")
        need(not sends, f"the one-device program calls {node.op}")
    theirs = {i.name: i.type for i in sequential.inputs}
    for item in distributed.inputs:
        both = item.type, theirs[item.name]
        kinds = [(t.is_float, t.dtype == "bool", t.dtype == "u8") for t in both]
        need(kinds[0] == kinds[1], f"input %{item.name} holds other numbers than on one device")


def _header(at: Cursor, given: Prepared) -> None:
    keys = ("sequential", "distributed", "mesh", "contract", "layouts", "ranks", "blocks", "claims")
    at.only("version", *keys, "outputs", "peels", "opened", "order", "seal")
    for key, value in header(given).items():
        if json.dumps(at[key].value, sort_keys=True) != json.dumps(value, sort_keys=True):
            raise BrokenError(f"the certificate is about another {key}", key)
    if at["seal"].value != seal(at.object()):
        raise BrokenError("the certificate was changed after it was written", "seal")


def _rewritten(at: Cursor, sequential: Program) -> tuple[Program, tuple[str, ...]]:
    """The one-device program that the claims are about, and what that assumes of labels."""
    if "opened" not in at and "peels" not in at:
        return sequential, ()
    from shardproof.verifier.checker.rewritten import cut, opened

    found, labels = opened(at, sequential)
    return cut(at, found), labels


def _outputs(
    at: Cursor,
    one: Sequential,
    program: Program,
    contract: Contract,
    known: Known,
) -> None:
    """Each output of the one-device program is there, as the contract asks."""
    keys = [output_key(o) for o in one.program.outputs]
    values = {output_key(o): o.value for o in program.outputs}
    at.only(*keys)
    for out in one.program.outputs:
        key, ref = output_key(out), one.values[out.value]
        layout = contract.outputs[key]
        where = f"output {key}"
        if keys.count(key) > 1:
            raise BrokenError("two outputs of the one-device program share a name", where)
        claims, chosen = known.get(values[key], []), at[key].integer()
        if not 0 <= chosen < len(claims):
            raise at[key].fail("no such claim")
        claim = claims[chosen]
        if not same(one.terms, claim.ref, ref):
            if not one.keys.same(claim.ref, ref) and not one.equal_over_known(claim.ref, ref):
                raise BrokenError(f"%{values[key]} is another value than %{out.value}", where)
            one.terms.same(ref, claim.ref)
        zero = claim.is_zero and claim.layout.local_shape == layout.local_shape
        if not within(contract.wanted.get(key, EVERYWHERE), claim.where):
            raise BrokenError(f"%{values[key]} is shown on {show(claim.where)} only", where)
        if claim.layout != layout and not zero:
            shown = f"laid out as {claim.layout}, the contract asks {layout}"
            raise BrokenError(shown, where)


class _Walk:
    """Goes through the distributed program once, bodies of scans included."""

    def __init__(self, program: Program, contract: Contract, at: Cursor) -> None:
        self.program, self.contract, self.mesh = program, contract, program.mesh
        self.told = Steps(program.mesh)
        self.count = 0
        self.named = Named.read(at)
        self.blocks = at["blocks"].items()
        self.steps: dict[tuple[int, int, int, int, int], tuple[list[Stated], Known]] = {}
        """Claims inside repeated blocks that were shown once: by block, body, how many of its
        inputs are carries, ranks and place in `blocks`."""
        self.places = _runnable(regions(program))
        self.further: Part | None = None
        self.parts: set[str] = set()
        """Which of `PARTS` was needed."""

    def top(self, one: Sequential, at: Cursor) -> Known:
        """Claims about the inputs are the contract's; the rest follows from them."""
        known: Known = {}
        for item in self.program.inputs:

            def given(row: Row, ref: Ref, name: str = item.name) -> bool:
                return ref == one.values[name] and row.layout == self.contract.inputs[name]

            stated = self._stated(one, self.program, item.name, at, "contract", self.places)
            known[item.name] = self._shown(stated, given)
        at.only("values", "bodies")
        self._body(one, self.program, at, known, self.places)
        if self.named.spare or {key[-1] for key in self.steps} != {*range(len(self.blocks))}:
            raise BrokenError("something is listed that no claim names", "layouts, ranks, blocks")
        return known

    def _rows(self, at: Cursor, name: str) -> list[Cursor]:
        values = at["values"]
        return values[name].items() if name in values else []

    def _once(self, name: str, claims: list[Claim]) -> list[Claim]:
        if len(claims) > 1 and len(set(claims)) != len(claims):
            raise BrokenError("a claim is made twice", f"%{name}")
        self.count += len(claims)
        return claims

    def _stated(
        self, one: Sequential, program: Program, name: str, at: Cursor, rule: str, places: Regions
    ) -> Stated:
        """Claims that name their term outright; what gives them is not looked at yet."""
        rows: list[tuple[Row, Claim, str]] = []
        out: list[Claim] = []
        for item in self._rows(at, name):
            row = self.named.row(item)
            try:
                stands(row.where, row.layout, self.mesh, places.values[name])
                if row.rule.startswith("joined"):
                    out.append(self._joined(one, program, name, row, out))
                    continue
                need(row.rule == rule and not row.premises, f"expected rule {rule}, no premises")
                ref = meant(row, one.values, one.terms)
                if ref is None:
                    raise NotShownError(f"a claim by {rule} names a value")
                fits(row.layout, self.mesh, program.types[name].shape)
                need(one.terms.shape(ref) == row.layout.global_shape, "another whole shape")
            except NotShownError as error:
                raise BrokenError(str(error), f"%{name} ({item.path})") from None
            out.append(Claim(ref, row.layout, row.where))
            rows.append((row, out[-1], f"%{name} ({item.path})"))
        return rows, self._once(name, out)

    def _shown(self, stated: Stated, shown: Shown) -> list[Claim]:
        """All claims that were stated, where `shown` admits each that none joins."""
        rows, claims = stated
        for row, claim, place in rows:
            if not shown(row, claim.ref):
                reason = f"nothing gives {row.factor} * %{row.of} as {row.layout}"
                raise BrokenError(reason, place)
        return claims

    def _body(
        self, one: Sequential, program: Program, at: Cursor, known: Known, places: Regions
    ) -> None:
        at["values"].only(*program.types)
        at["bodies"].only(*(n.outputs[0] for n in program.nodes if n.op == "scan"))
        for node in program.nodes:
            if node.op == "scan":
                self._scan(one, program, node, at, known, places)
            else:
                (name,) = node.outputs
                steps: list[Claim] = []
                for row in self._rows(at, name):
                    steps.append(self._step(one, program, node, row, known, places, steps))
                known[name] = self._once(name, steps)

    def _step(
        self,
        one: Sequential,
        program: Program,
        node: Node,
        at: Cursor,
        known: Known,
        places: Regions,
        earlier: list[Claim],
    ) -> Claim:
        """A claim about the result of an op, from one claim of each operand.

        A joined claim rests on `earlier` claims about the same value instead.
        """
        row = self.named.row(at)
        (name,) = node.outputs
        local = program.types[name].shape
        try:
            stands(row.where, row.layout, self.mesh, places.values[name])
            if row.rule.startswith("joined"):
                return self._joined(one, program, name, row, earlier)
            need(len(row.premises) == len(node.inputs), "another number of premises than operands")
            attrs = lookup(node.op).with_defaults(node.attrs)
            if lookup(node.op).kind == "movement":
                return self._moved(one, program, node, row, known)
            args: list[Claim] = []
            for value, index in zip(node.inputs, row.premises, strict=True):
                need(0 <= index < len(known[value]), f"%{value} has no claim {index}")
                args.append(known[value][index])
                need(within(row.where, args[-1].where), f"%{value} is another value elsewhere")
            if lookup(node.op).kind == "collective":
                across = set(mesh_dims(attrs["mesh_dim"])) & set(dict(row.where))
                need(not across, "a collective of values that are known on some ranks only")
            dtypes = tuple(program.types[v].dtype for v in node.inputs)
            over, layout = tuple[str, ...](), row.layout
            fits(layout, self.mesh, local)
            if row.rule == f"blocks:{node.op}":
                from shardproof.verifier.checker.parts import blocks

                self.parts.add("further relations")
                ref = blocks(node.op, attrs, args, row.layout, one.terms)
                self.told.add(node.op, attrs, args, dtypes, row.rule, row)
                return self._named(one, row, ref)
            if row.rule != node.op:
                over = self._balanced(program, node, row.rule, args)
                layout = layout.with_partial((*layout.partial, *((n, "sum") for n in over)))
                fits(layout, self.mesh, local)
            made = self.told.derived(node.op, attrs, args, dtypes, row, layout)
            ref = made.of([claim.ref for claim in args], one.terms)
            need(one.terms.shape(ref) == layout.global_shape, "another whole shape")
            if over:
                assumed = [b.value for b in self.contract.balanced if b.mesh_dims == over]
                limited = not dict(row.where).keys().isdisjoint(over)
                need(not limited, f"an assumption about some ranks along {','.join(over)} only")
                about = [one.values[v].id for v in assumed if v in one.values]
                need(ref.id in about, "no assumption is about this value")
                ref = Ref(ref.coef / prod(self.mesh[name] for name in over), ref.id)
            ref = self._meant(one, row, ref)
        except NotShownError as error:
            raise BrokenError(str(error), f"%{name} ({at.path})") from None
        return Claim(ref, row.layout, row.where)

    def _joined(
        self, one: Sequential, program: Program, name: str, row: Row, earlier: list[Claim]
    ) -> Claim:
        """A claim from claims about the same value on other ranks."""
        parts: list[Claim] = []
        for index in row.premises:
            need(0 <= index < len(earlier), f"no earlier claim {index}")
            parts.append(earlier[index])
        fits(row.layout, self.mesh, program.types[name].shape)
        self.told.add(JOINED, {}, parts, (), row.rule, row)
        if not JOINS.isdisjoint(row.rule.split(":")[1:2]):
            return self._named(one, row, join(row, parts, one.terms, self.mesh))
        share = row.rule.startswith("joined:share:")
        need(share or program is self.program, "parts of a value inside a repeated block")
        return self._named(one, row, self._part()(row, parts, name, one.terms, self.mesh))

    def _part(self) -> Part:
        """What claims of further kinds come to."""
        from shardproof.verifier.checker.parts import known_part

        self.parts.add("further relations")
        if self.further is None:
            self.further = known_part(self.program, self.contract, self.places)
        return self.further

    def _moved(
        self, one: Sequential, program: Program, node: Node, row: Row, known: Known
    ) -> Claim:
        """A claim about a value that changes ranks, from the one claim that it rests on."""
        (name,) = node.outputs
        used = [(v, i) for v, i in zip(node.inputs, row.premises, strict=True) if i >= 0]
        need(len(used) == 1, "a movement rests on one claim")
        ((value, index),) = used
        need(0 <= index < len(known[value]), f"%{value} has no claim {index}")
        fits(row.layout, self.mesh, program.types[name].shape)
        attrs = lookup(node.op).with_defaults(node.attrs)
        given = known[value][index]
        self.told.add(node.op, attrs, [given], (), row.rule, row)
        from shardproof.verifier.checker.moves import move

        return self._named(one, row, move(node.op, attrs, row, given, one.terms, self.mesh))

    def _named(self, one: Sequential, row: Row, ref: Ref) -> Claim:
        need(one.terms.shape(ref) == row.layout.global_shape, "another whole shape")
        return Claim(self._meant(one, row, ref), row.layout, row.where)

    def _meant(self, one: Sequential, row: Row, ref: Ref) -> Ref:
        """The term that a row names, which must be the one that was derived, or equal to it."""
        named = meant(row, one.values, one.terms)
        if named is None or same(one.terms, named, ref):
            return ref
        equal = one.keys.same(named, ref) or one.equal_over_known(named, ref)
        need(equal, f"the value is not {row.factor} * %{row.of}")
        one.terms.same(named, ref)
        return named

    def _balanced(
        self, program: Program, node: Node, rule: str, args: list[Claim]
    ) -> tuple[str, ...]:
        """The mesh dims along which the contract assumes a sum over the batch to be balanced."""
        kind, _, named = rule.partition(":")
        over = tuple(named.split(","))
        need(kind == "balanced" and node.op == "sum", f"rule {rule} for {node.op}")
        need(program is self.program, "an assumption inside a repeated block")
        need(all(name in self.mesh for name in over), f"no mesh dim {named}")
        lead = args[0].layout.dims[:1]
        split = tuple(atom.mesh_dim for dim in lead for atom in dim[: len(over)])
        need(split == over, "not a split batch")
        return over

    def _scan(
        self,
        one: Sequential,
        program: Program,
        node: Node,
        at: Cursor,
        known: Known,
        places: Regions,
    ) -> None:
        """By induction over the steps: claims about carries hold at the start and are kept."""
        body, label = node.block, node.outputs[0]
        known.update((name, []) for name in node.outputs)
        if label not in at["bodies"]:
            if any(self._rows(at, name) for name in node.outputs):
                raise BrokenError("claims about a scan without claims about its body", f"%{label}")
            return
        said = at["bodies"][label]
        said.only("block", "claims")
        block, place = said["block"].text(), said["claims"].integer()
        if not 0 <= place < len(self.blocks):
            raise said["claims"].fail("no such block")
        inside = self.blocks[place]
        inside.only("values", "bodies")
        scan = next((s for s in one.scans if s.node.outputs[0] == block), None)
        if scan is None or not likewise(scan.node, node):
            raise BrokenError(f"%{block} is not a repeated block of this length", f"%{label}")
        held = places.inside(node)
        carries = scan_parts(node.attrs, len(node.inputs))[0].stop
        key = (id(scan.inner), id(body), carries, id(held), place)
        if key not in self.steps:
            self.steps[key] = self._inside(scan, body, inside, carries, held)
        entered, inner = self.steps[key]
        for k, (stated, value) in enumerate(zip(entered, node.inputs, strict=True)):
            self._shown(stated, enters(one, scan, node, k, known[value]))
        for k, name in enumerate(node.outputs):
            claims = entered[k][1] if k < carries else inner[body.outputs[k].value]
            stated = self._stated(one, program, name, at, "scan", places)
            known[name] = self._shown(stated, follows(one, scan, node, k < carries, claims))

    def _inside(
        self, scan: Scan, body: Program, at: Cursor, carries: int, held: Regions
    ) -> tuple[list[Stated], Known]:
        """What is stated of the inputs of a step, and what follows from it; carries are kept."""
        entered = [
            self._stated(scan.inner, body, item.name, at, "enter", held) for item in body.inputs
        ]
        inner = {i.name: stated[1] for i, stated in zip(body.inputs, entered, strict=True)}
        self._body(scan.inner, body, at, inner, held)
        for item, end, (_, claims) in zip(
            body.inputs[:carries], body.outputs, entered, strict=False
        ):
            if not all(kept(scan, c, inner[end.value]) for c in claims):
                raise BrokenError("a step does not keep a claim about a carry", f"%{item.name}")
        return entered, inner
