"""Walks a distributed program and finds, for every value, how it relates to the one-device program.

A fact says: the whole that the pieces of this value make up, read by `layout`, is `ref`, an exact
multiple of a global term. Facts follow from facts by the placement rule of each op, so a fact
holds for all inputs. A value may have several facts, each true; none means no rule applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any

from verifier.contract import Contract, output_key
from verifier.ir.program import Node, Program
from verifier.ir.types import Mesh
from verifier.layout import Layout, whole
from verifier.ops import Operands, Placed, Refused, lookup
from verifier.ops.control import scan_parts
from verifier.terms import Ref, Terms

MAX_FACTS = 6
MAX_COMBINATIONS = 48
NOTHING = Contract({}, {})


@dataclass(frozen=True, slots=True)
class Fact:
    ref: Ref
    layout: Layout
    premises: tuple[int, ...] = ()
    """Which fact of each operand it was derived from."""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Break:
    """An op whose result has no relation, though its operands have."""

    node: Node
    refused: Refused
    operands: tuple[Fact, ...]
    path: str


@dataclass
class Scan:
    """A scan of the one-device program: its operands as refs, its body as terms."""

    node: Node
    operands: list[Ref]
    key: tuple[Any, ...]
    inner: Sequential


@dataclass
class Sequential:
    """The one-device program as terms."""

    program: Program
    terms: Terms
    values: dict[str, Ref]
    scans: list[Scan]

    def __post_init__(self) -> None:
        self.known = {ref.id: name for name, ref in reversed(self.values.items())}


def as_terms(program: Program, terms: Terms | None = None) -> Sequential:
    """Evaluate a one-device program (primitives only) to terms."""
    terms = terms or Terms()
    values = {i.name: terms.var(i.name, i.type.shape) for i in program.inputs}
    scans: list[Scan] = []
    for node in program.nodes:
        args = [values[v] for v in node.inputs]
        if node.op == "scan":
            assert node.body is not None
            inner = as_terms(node.body)
            key = ("scan", len(scans), tuple(sorted(node.attrs.items())))
            scan = Scan(node, args, key, inner)
            scans.append(scan)
            for k, name in enumerate(node.outputs):
                values[name] = scan_output(terms, scan, k, program.types[name].shape)
            continue
        attrs = lookup(node.op).with_defaults(node.attrs)
        dtypes = [program.types[v].dtype for v in node.inputs]
        values[node.outputs[0]] = terms.apply(node.op, args, attrs, dtypes)
    return Sequential(program, terms, values, scans)


def scan_output(terms: Terms, scan: Scan, index: int, shape: tuple[int, ...]) -> Ref:
    return terms.intern("scan", scan.operands, (*scan.key, index), shape)


@dataclass
class Related:
    """The outcome of a walk."""

    facts: dict[str, list[Fact]]
    breaks: list[Break]
    bodies: dict[str, tuple[Scan, Related]] = field(
        default_factory=dict[str, "tuple[Scan, Related]"]
    )
    """By the first output of each scan: the block it repeats, and the facts of one step."""
    rules: dict[str, int] = field(default_factory=dict[str, int])


class Rules:
    """Placement rules with their results remembered: equal layers cost one application each."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._memo: dict[Any, list[Placed] | Refused] = {}
        self.applied = 0
        self.reused = 0

    def place(self, node: Node, layouts: tuple[Layout, ...], zeros: frozenset[int]) -> list[Placed]:
        attrs = tuple(sorted(lookup(node.op).with_defaults(node.attrs).items()))
        key = (node.op, attrs, layouts, zeros)
        found = self._memo.get(key)
        if found is None:
            self.applied += 1
            op = lookup(node.op)
            try:
                found = op.place(op, Operands(layouts, attrs, self.mesh, zeros))
            except Refused as refusal:
                found = refusal
            self._memo[key] = found
        else:
            self.reused += 1
        if isinstance(found, Refused):
            raise found
        return found


def relate(
    sequential: Sequential,
    distributed: Program,
    inputs: dict[str, list[Fact]],
    contract: Contract,
    rules: Rules,
    path: str = "",
) -> Related:
    """Derive facts for every value of the distributed program from facts for its inputs."""
    out = Related(dict(inputs), [])
    for node in distributed.nodes:
        operands = [out.facts.get(v, []) for v in node.inputs]
        if not all(operands):
            for name in node.outputs:
                out.facts[name] = []
            continue
        if node.op == "scan":
            _relate_scan(sequential, node, operands, rules, path, out)
            continue
        facts = _step(sequential, distributed, node, operands, rules, path, out)
        if contract.balanced and node.op == "sum":
            facts = _assume(sequential, contract, rules.mesh, facts, operands[0])
        out.facts[node.outputs[0]] = facts
    return out


def _step(
    sequential: Sequential,
    program: Program,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    path: str,
    out: Related,
) -> list[Fact]:
    terms = sequential.terms
    dtypes = [program.types[v].dtype for v in node.inputs]
    local = program.types[node.outputs[0]].shape
    found: dict[tuple[Ref, Layout], Fact] = {}
    refused: tuple[Refused, tuple[Fact, ...]] | None = None
    choices = product(*(range(len(f)) for f in operands))
    for count, picks in enumerate(choices):
        if count == MAX_COMBINATIONS:
            break
        chosen = tuple(facts[i] for facts, i in zip(operands, picks, strict=True))
        zeros = frozenset(
            i for i, f in enumerate(chosen) if f.ref.coef == 0 and not f.layout.partial
        )
        try:
            placed = rules.place(node, tuple(f.layout for f in chosen), zeros)
        except Refused as refusal:
            refused = refused or (refusal, chosen)
            continue
        for option in placed:
            (layout,) = option.layouts
            if layout.local_shape != local:
                continue
            if option.moves:
                ref = chosen[0].ref
            else:
                ref = terms.apply(node.op, [f.ref for f in chosen], dict(option.attrs), dtypes)
            ref = Ref(ref.coef * option.scale, ref.id)
            if terms.shape(ref) != layout.global_shape:
                continue
            found.setdefault((ref, layout), Fact(ref, layout, picks, node.op))
    if not found and refused is not None:
        out.breaks.append(Break(node, refused[0], refused[1], path))
    out.rules[node.op] = out.rules.get(node.op, 0) + 1
    return _keep(sequential, list(found.values()))


def _keep(sequential: Sequential, facts: list[Fact]) -> list[Fact]:
    """Prefer facts about terms that the one-device program computes; cap the rest."""
    known = [f for f in facts if f.ref.id in sequential.known]
    return (known or facts)[:MAX_FACTS]


def _assume(
    sequential: Sequential, contract: Contract, mesh: Mesh, facts: list[Fact], summed: list[Fact]
) -> list[Fact]:
    """Facts that an assumption of the contract adds to a sum over a batch split in blocks."""
    out = list(facts)
    for item in contract.balanced:
        target = sequential.values.get(item.value)
        for fact in facts:
            blocks = summed[fact.premises[0]].layout.dims[:1]
            if not (blocks and blocks[0] and blocks[0][0].mesh_dim == item.mesh_dim):
                continue
            if target and fact.ref.id == target.id and fact.layout.fold(item.mesh_dim) == "sum":
                rest = (p for p in fact.layout.partial if p[0] != item.mesh_dim)
                ref = Ref(fact.ref.coef / mesh[item.mesh_dim], fact.ref.id)
                layout = fact.layout.with_partial(rest)
                out.append(Fact(ref, layout, fact.premises, f"balanced:{item.mesh_dim}"))
    return out


def _relate_scan(
    sequential: Sequential,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    path: str,
    out: Related,
) -> None:
    """Relate a scan by induction: facts about the carries that one step keeps."""
    assert node.body is not None
    label = f"{path}{node.outputs[0]}/"
    best: tuple[Scan, Related, list[list[Fact]]] | None = None
    for scan in sequential.scans:
        same = ("length", "reverse")
        if any(scan.node.attrs.get(k, False) != node.attrs.get(k, False) for k in same):
            continue
        tried = (scan, *_induct(sequential, scan, node, operands, rules, label))
        if best is None or _worth(tried[1], tried[2]) > _worth(best[1], best[2]):
            best = tried
        if all(best[2]):
            break
    for name in node.outputs:
        out.facts[name] = []
    if best is not None:
        scan, related, results = best
        out.bodies[node.outputs[0]] = (scan, related)
        out.breaks += related.breaks
        for name, facts in zip(node.outputs, results, strict=True):
            out.facts[name] = _keep(sequential, facts)
    if best is None or not (best[1].breaks or any(best[2])):
        reason = Refused("no repeated block of the one-device program has these operands")
        out.breaks.append(Break(node, reason, tuple(f[0] for f in operands), path))


def _worth(related: Related, results: list[list[Fact]]) -> tuple[int, int]:
    """How far an induction came: outputs related, then ops reached."""
    return sum(map(bool, results)), len(related.breaks)


def _induct(
    sequential: Sequential,
    scan: Scan,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    label: str,
) -> tuple[Related, list[list[Fact]]]:
    body, inner = node.body, scan.inner
    assert body is not None
    assert scan.node.body is not None
    theirs = scan.node.body
    d_parts = scan_parts(node.attrs, len(node.inputs))
    s_parts = scan_parts(scan.node.attrs, len(scan.operands))
    carries = node.attrs["carry"]
    assert isinstance(carries, int)
    entry: list[list[Fact]] = []
    for kind in range(3):
        s_range = range(len(scan.operands))[s_parts[kind]]
        for facts in operands[d_parts[kind]]:
            entry.append(_enter(sequential, scan, facts, s_range, sliced=kind == 1))
    _guess_zero_starts(inner, theirs, body, entry, operands, rules, label, carries)
    related = Related({}, [])
    for _ in range(len(entry) + 4):
        given = {i.name: f for i, f in zip(body.inputs, entry, strict=True)}
        if not all(entry):
            missing = next(i.name for i, f in zip(body.inputs, entry, strict=True) if not f)
            reason = Refused(f"no operand of the one-device block matches %{missing} of this one")
            related.breaks.append(Break(node, reason, (), label))
            return related, [[] for _ in node.outputs]
        related = relate(inner, body, given, NOTHING, rules, label)
        kept = _invariant(inner, theirs, body, related, entry, operands, carries)
        if kept == entry[:carries]:
            break
        entry[:carries] = kept
    else:
        return related, [[] for _ in node.outputs]
    results: list[list[Fact]] = []
    shapes = [sequential.values[name] for name in scan.node.outputs]
    s_carries = scan.node.attrs["carry"]
    assert isinstance(s_carries, int)
    length = node.attrs["length"]
    assert isinstance(length, int)
    targets = [inner.values[o.value] for o in theirs.outputs]
    for k in range(len(node.outputs)):
        facts: list[Fact] = []
        if k < carries:
            for fact in entry[k]:
                for p in range(s_carries):
                    if fact.ref.id == inner.values[theirs.inputs[p].name].id:
                        whole_ref = shapes[p]
                        ref = Ref(fact.ref.coef * whole_ref.coef, whole_ref.id)
                        facts.append(Fact(ref, fact.layout, (), "scan"))
        else:
            for i, fact in enumerate(related.facts.get(body.outputs[k].value, [])):
                for p in range(s_carries, len(targets)):
                    if targets[p].id == fact.ref.id and targets[p].coef:
                        whole_ref = shapes[p]
                        ratio = fact.ref.coef / targets[p].coef
                        ref = Ref(ratio * whole_ref.coef, whole_ref.id)
                        layout = Layout((whole(length), *fact.layout.dims), fact.layout.partial)
                        facts.append(Fact(ref, layout, (i,), "scan"))
        results.append(facts)
    return related, results


def _guess_zero_starts(
    inner: Sequential,
    theirs: Program,
    body: Program,
    entry: list[list[Fact]],
    operands: list[list[Fact]],
    rules: Rules,
    label: str,
    carries: int,
) -> None:
    """Guess the layouts of carries that start at zero from one step taken from zero.

    Zero has every layout, so any guess holds at the start; the induction step then decides.
    """
    zero = [k for k in range(carries) if _starts_at_zero(operands[k])]
    if not zero or not all(entry):
        return
    given = {i.name: f for i, f in zip(body.inputs, entry, strict=True)}
    for k in zero:
        zeros = [inner.terms.full(inner.terms.shape(f.ref), Fraction(0)) for f in entry[k]]
        facts = [Fact(z, f.layout) for z, f in zip(zeros, entry[k], strict=True)]
        given[body.inputs[k].name] = facts
    related = relate(inner, body, given, NOTHING, rules, label)
    slot = _slots(inner, theirs)
    for k in zero:
        guesses: list[Fact] = []
        for fact in entry[k]:
            target = inner.values[theirs.outputs[slot[fact.ref.id]].value]
            weights = {a.id: a.coef for a in inner.terms[target.id].args}
            for found in related.facts.get(body.outputs[k].value, []):
                part = weights.get(found.ref.id, Fraction(0)) * target.coef
                ratio = found.ref.coef / part if part else Fraction(1)
                if ratio and _same_shape(found.layout, fact.layout):
                    guesses.append(Fact(Ref(ratio, fact.ref.id), found.layout, (), "enter"))
        entry[k] = (guesses or entry[k])[:MAX_FACTS]


def _slots(inner: Sequential, theirs: Program) -> dict[int, int]:
    """Term of each input of the one-device block -> its position."""
    return {inner.values[item.name].id: p for p, item in enumerate(theirs.inputs)}


def _same_shape(a: Layout, b: Layout) -> bool:
    return a.local_shape == b.local_shape and a.global_shape == b.global_shape


def _starts_at_zero(facts: list[Fact]) -> bool:
    return any(f.ref.coef == 0 and not f.layout.partial for f in facts)


def _enter(
    sequential: Sequential, scan: Scan, facts: list[Fact], positions: range, sliced: bool
) -> list[Fact]:
    """Facts about a body input from facts about the operand passed for it."""
    out: list[Fact] = []
    body = scan.node.body
    assert body is not None
    for fact in facts:
        layout = fact.layout
        if sliced:
            if layout.dims and any(a.mesh_dim for a in layout.dims[0]):
                continue
            layout = Layout(layout.dims[1:], layout.partial)
        for p in positions:
            mine = scan.operands[p]
            if mine.id != fact.ref.id:
                continue
            var = scan.inner.values[body.inputs[p].name]
            if (mine.coef == 0) != (fact.ref.coef == 0):
                continue
            ratio = fact.ref.coef / mine.coef if mine.coef else Fraction(1)
            out.append(Fact(Ref(ratio, var.id), layout, (), "enter"))
    return out


def _invariant(
    inner: Sequential,
    theirs: Program,
    body: Program,
    related: Related,
    entry: list[list[Fact]],
    operands: list[list[Fact]],
    carries: int,
) -> list[list[Fact]]:
    """The facts about carries that the body keeps. A zero start takes the layout the body gives."""
    kept: list[list[Fact]] = []
    slot = _slots(inner, theirs)
    for k in range(carries):
        results = related.facts.get(body.outputs[k].value, [])
        good: list[Fact] = []
        for fact in entry[k]:
            p = slot.get(fact.ref.id)
            if p is None:
                continue
            target = inner.values[theirs.outputs[p].value]
            want = Ref(fact.ref.coef * target.coef, target.id)
            if any(r.ref == want and r.layout == fact.layout for r in results):
                good.append(fact)
                continue
            if _starts_at_zero(operands[k]):
                for r in results:
                    if r.ref.id == target.id and target.coef:
                        ref = Ref(r.ref.coef / target.coef, fact.ref.id)
                        same = ref.coef and _same_shape(r.layout, fact.layout)
                        if same and (ref, r.layout) != (fact.ref, fact.layout):
                            good.append(Fact(ref, r.layout, (), "enter"))
        kept.append(good[:MAX_FACTS])
    return kept


def initial(contract: Contract, sequential: Sequential) -> dict[str, list[Fact]]:
    """The facts the contract gives about the inputs."""
    return {
        name: [Fact(sequential.values[name], layout, (), "contract")]
        for name, layout in contract.inputs.items()
    }


def satisfied(
    sequential: Sequential, distributed: Program, related: Related, contract: Contract
) -> dict[str, list[Fact]]:
    """For each output key that is not as the contract asks, the facts that were found."""
    wanted = {output_key(o): sequential.values[o.value] for o in sequential.program.outputs}
    wrong: dict[str, list[Fact]] = {}
    for out in distributed.outputs:
        key = output_key(out)
        if key not in wanted:
            continue
        facts = related.facts.get(out.value, [])
        layout = contract.outputs[key]
        if not any(_meets(f, wanted[key], layout) for f in facts):
            wrong[key] = facts
    return wrong


def _meets(fact: Fact, ref: Ref, layout: Layout) -> bool:
    if ref.coef == 0:
        whole_zero = fact.ref.coef == 0 and not fact.layout.partial
        return whole_zero and fact.layout.local_shape == layout.local_shape
    return fact.ref == ref and fact.layout == layout


def describe(sequential: Sequential, fact: Fact) -> str:
    """A fact in words: `2 * %h as [2@tp, 4]`."""
    name = sequential.known.get(fact.ref.id)
    shown = f"%{name}" if name else sequential.terms[fact.ref.id].op + "(...)"
    scale = "" if fact.ref.coef == 1 else f"{fact.ref.coef} * "
    return f"{scale}{shown} as {fact.layout}"


def assumptions(facts: Sequence[Fact]) -> set[str]:
    """Mesh dims whose balance assumption some fact used."""
    return {f.rule.partition(":")[2] for f in facts if f.rule.startswith("balanced:")}
