"""Relates repeated blocks by induction over their steps."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from fractions import Fraction

from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout, whole
from shardproof.verifier.kernel.ops import Refused
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.where import Where, common, within
from shardproof.verifier.kernel.rank_sets import Regions
from shardproof.verifier.provers.relate.facts import MAX_FACTS, Break, Fact, Related
from shardproof.verifier.provers.relate.peeling import want_peel
from shardproof.verifier.provers.relate.rules import Rules
from shardproof.verifier.provers.sequential import Scan, Sequential
from shardproof.verifier.terms import Ref

NOTHING = Contract({}, {})


def relate_scan(
    sequential: Sequential,
    scope: Program,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    path: str,
    out: Related,
    places: Regions,
) -> None:
    """Relate a scan by induction: facts about the carries that one step keeps."""
    from shardproof.verifier.provers.relate.walk import keep

    label = f"{path}{node.outputs[0]}/"
    best: tuple[Scan, Related, list[list[Fact]]] | None = None
    given = [{f.ref.id for f in facts} for facts in operands if not _starts_at_zero(facts)]
    for scan in sequential.scans:
        same = ("length", "reverse")
        if any(scan.node.attrs.get(k, False) != node.attrs.get(k, False) for k in same):
            continue
        if any(ids.isdisjoint(scan.reads) for ids in given):
            continue
        induction = _Induction(scan, node, operands, rules, label, places.inside(node))
        tried = (scan, *induction.run(sequential))
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
            out.facts[name] = keep(sequential, facts)
        if not out.wanted:
            label = scan.node.outputs[0]
            out.wanted = [replace(p, block=f"{label}/{p.block}") for p in related.wanted]
    else:
        want_peel(sequential, scope, node, operands, out)
    if best is None or not (best[1].breaks or any(best[2])):
        reason = Refused("no repeated block of the one-device program has these operands")
        out.breaks.append(Break(node, reason, tuple(f[0] for f in operands), path))


def _worth(related: Related, results: list[list[Fact]]) -> tuple[int, int]:
    """How far an induction came: outputs related, then ops reached."""
    return sum(map(bool, results)), len(related.breaks)


@dataclass
class _Induction:
    """A scan of the ranks, taken to be one of the one-device program."""

    scan: Scan
    node: Node
    operands: list[list[Fact]]
    rules: Rules
    label: str
    inside: Regions

    def __post_init__(self) -> None:
        self.body, self.theirs = self.node.block, self.scan.node.block
        self.inner = self.scan.inner
        self.carries = self.node.number("carry")
        self.slot = {
            self.inner.values[item.name].id: p for p, item in enumerate(self.theirs.inputs)
        }
        """Term of each input of the one-device block -> its position."""
        self.entry: list[list[Fact]] = []
        """What is known of each input of a step."""

    def run(self, sequential: Sequential) -> tuple[Related, list[list[Fact]]]:
        """The facts of one step, and those of each output of the scan."""
        mine = scan_parts(self.node.attrs, len(self.node.inputs))
        theirs = scan_parts(self.scan.node.attrs, len(self.scan.operands))
        for kind in range(3):
            positions = range(len(self.scan.operands))[theirs[kind]]
            for facts in self.operands[mine[kind]]:
                found = self._enter(facts, positions, sliced=kind == 1)
                name = self.body.inputs[len(self.entry)].name
                self.entry.append(_held(found, self.inside.values[name]))
        key = self._relation()
        known = self.rules.inductions.get(key)
        if known is None:
            related, kept = self._settled()
            if kept is None:
                return related, [[] for _ in self.node.outputs]
            if not related.breaks:
                self.rules.inductions[key] = related, kept, (self.scan, self.body)
        else:
            related, kept, _ = known
        self.entry[: self.carries] = kept
        whole_refs = [sequential.values[name] for name in self.scan.node.outputs]
        outputs = range(len(self.node.outputs))
        return related, [_distinct(self._result(related, whole_refs, k)) for k in outputs]

    def _result(self, related: Related, whole_refs: list[Ref], k: int) -> list[Fact]:
        """Facts about an output of the scan: a carry after the last step, or all steps stacked."""
        facts: list[Fact] = []
        split = self.scan.node.number("carry")
        if k < self.carries:
            for fact in self.entry[k]:
                p = self.slot.get(fact.ref.id, split)
                if p < split:
                    ref = Ref(fact.ref.coef * whole_refs[p].coef, whole_refs[p].id)
                    facts.append(Fact(ref, fact.layout, (), "scan", fact.where))
            return facts
        targets = [self.inner.values[o.value] for o in self.theirs.outputs]
        for i, fact in enumerate(related.facts.get(self.body.outputs[k].value, [])):
            for p in range(split, len(targets)):
                alike = bool(targets[p].coef) == bool(fact.ref.coef)
                if targets[p].id == fact.ref.id and alike:
                    ratio = fact.ref.coef / targets[p].coef if fact.ref.coef else Fraction(1)
                    ref = Ref(ratio * whole_refs[p].coef, whole_refs[p].id)
                    dims = (whole(self.node.number("length")), *fact.layout.dims)
                    layout = Layout(dims, fact.layout.partial)
                    facts.append(Fact(ref, layout, (i,), "scan", fact.where))
        return facts

    def _relation(self) -> Hashable:
        """All that an induction depends on: two equal ones come out alike.

        Bodies are told apart by identity; who keeps the key keeps them alive.
        """
        starts = tuple(tuple(f.where for f in facts if _is_zero(f)) for facts in self.operands)
        return (
            id(self.inner),
            id(self.body),
            tuple(sorted(self.node.attrs.items())),
            tuple(sorted(self.scan.node.attrs.items())),
            tuple(ref.coef == 0 for ref in self.scan.operands),
            starts,
            frozenset(self.inside.values.items()),
            tuple(map(tuple, self.entry)),
        )

    def _given(self) -> dict[str, list[Fact]]:
        return {i.name: f for i, f in zip(self.body.inputs, self.entry, strict=True)}

    def _step(self, given: dict[str, list[Fact]]) -> Related:
        from shardproof.verifier.provers.relate.walk import relate

        return relate(self.inner, self.body, given, NOTHING, self.rules, self.label, self.inside)

    def _settled(self) -> tuple[Related, list[list[Fact]] | None]:
        """The facts of one step, and those about the carries that a step keeps; None where none
        do."""
        self._guess_zero_starts()
        related = Related({}, [])
        for _ in range(len(self.entry) + 4):
            given = self._given()
            if not all(self.entry):
                missing = next(name for name, facts in given.items() if not facts)
                why = f"no operand of the one-device block matches %{missing} of this one"
                related.breaks.append(Break(self.node, Refused(why), (), self.label))
                return related, None
            related = self._step(given)
            kept = self._invariant(related)
            if kept == self.entry[: self.carries]:
                return related, kept
            self.entry[: self.carries] = kept
        return related, None

    def _guess_zero_starts(self) -> None:
        """Guess the layouts of carries that start at zero from one step taken from zero.

        Zero has every layout, so any guess holds at the start; the induction step then decides.
        """
        inner, entry = self.inner, self.entry
        zero = [k for k in range(self.carries) if _starts_at_zero(self.operands[k])]
        if not zero or not all(facts for k, facts in enumerate(entry) if k not in zero):
            return
        given = self._given()
        for k in zero:
            zeros = [inner.terms.full(inner.terms.shape(f.ref), Fraction(0)) for f in entry[k]]
            facts = [Fact(z, f.layout, where=f.where) for z, f in zip(zeros, entry[k], strict=True)]
            given[self.body.inputs[k].name] = facts
        related = self._step(given)
        gains = _gains(self.scan)
        for k in zero:
            guesses = self._matching_gains(k, related, gains)
            free = [f for f in entry[k] if _starts_at_zero(self.operands[k], f.where)]
            for fact in free if not guesses else ():
                target = inner.values[self.theirs.outputs[self.slot[fact.ref.id]].value]
                weights = {a.id: a.coef for a in inner.terms[target.id].args}
                for found in related.facts.get(self.body.outputs[k].value, []):
                    part = weights.get(found.ref.id, Fraction(0)) * target.coef
                    ratio = found.ref.coef / part if part else Fraction(1)
                    alike = _same_shape(found.layout, fact.layout)
                    if ratio and alike and _covers(fact.where, found.layout):
                        ref = Ref(ratio, fact.ref.id)
                        guesses.append(Fact(ref, found.layout, (), "enter", fact.where))
            entry[k] = _distinct(guesses or entry[k])[:MAX_FACTS]

    def _matching_gains(
        self, index: int, related: Related, gains: dict[int, list[tuple[Ref, Ref]]]
    ) -> list[Fact]:
        """Facts about a carry to which a step adds what some carry of the one-device block
        gains."""
        carry, after = self.body.inputs[index], self.body.outputs[index].value
        node = next((n for n in self.body.nodes if after in n.outputs), None)
        if node is None or node.op != "add" or carry.name not in node.inputs:
            return []
        out: list[Fact] = []
        held = next(f.where for f in self.operands[index] if _is_zero(f))
        shares = [v for v in node.inputs if v != carry.name]
        for found in (f for v in shares for f in related.facts.get(v, [])):
            for gain, theirs in gains.get(found.ref.id, ()):
                where, layout = common(found.where, held), found.layout
                if where is None or layout.local_shape != carry.type.shape:
                    continue
                same = layout.global_shape == self.inner.terms.shape(theirs)
                if same and _covers(where, layout):
                    ref = Ref(found.ref.coef / gain.coef, theirs.id)
                    out.append(Fact(ref, layout, (), "enter", where))
        return out

    def _enter(self, facts: list[Fact], positions: range, sliced: bool) -> list[Fact]:
        """Facts about a body input from facts about the operand passed for it."""
        out: list[Fact] = []
        for fact in facts:
            layout = fact.layout
            if sliced:
                if layout.dims and any(a.mesh_dim for a in layout.dims[0]):
                    continue
                layout = Layout(layout.dims[1:], layout.partial)
            for p in positions:
                mine = self.scan.operands[p]
                if mine.id != fact.ref.id or (mine.coef == 0) != (fact.ref.coef == 0):
                    continue
                var = self.inner.values[self.theirs.inputs[p].name]
                ratio = fact.ref.coef / mine.coef if mine.coef else Fraction(1)
                out.append(Fact(Ref(ratio, var.id), layout, (), "enter", fact.where))
        return _distinct(out)

    def _invariant(self, related: Related) -> list[list[Fact]]:
        """The facts about carries that the body keeps. A zero start takes the layout the body
        gives."""
        kept: list[list[Fact]] = []
        for k in range(self.carries):
            results = related.facts.get(self.body.outputs[k].value, [])
            good: list[Fact] = []
            for fact in self.entry[k]:
                p = self.slot.get(fact.ref.id)
                if p is None:
                    continue
                target = self.inner.values[self.theirs.outputs[p].value]
                want = Ref(fact.ref.coef * target.coef, target.id)
                if any(
                    r.ref == want and r.layout == fact.layout and within(fact.where, r.where)
                    for r in results
                ):
                    good.append(fact)
                elif _starts_at_zero(self.operands[k], fact.where) and target.coef:
                    for r in (r for r in results if r.ref.id == target.id):
                        ref = Ref(r.ref.coef / target.coef, fact.ref.id)
                        same = ref.coef and _same_shape(r.layout, fact.layout)
                        same = same and _covers(fact.where, r.layout)
                        if same and (ref, r.layout) != (fact.ref, fact.layout):
                            good.append(Fact(ref, r.layout, (), "enter", fact.where))
            kept.append(_distinct(good)[:MAX_FACTS])
        return kept


def _gains(scan: Scan) -> dict[int, list[tuple[Ref, Ref]]]:
    """What each carry of the one-device block that starts at zero gains in a step.

    Term of the gain -> (the gain, the carry), for all carries that gain it.
    """
    inner, theirs = scan.inner, scan.node.block
    carries = scan.node.number("carry")
    out: dict[int, list[tuple[Ref, Ref]]] = {}
    for p in range(carries):
        if scan.operands[p].coef == 0:
            carry = inner.values[theirs.inputs[p].name]
            after = inner.values[theirs.outputs[p].value]
            gain = inner.terms.combine([(Fraction(1), after), (Fraction(-1), carry)])
            if gain.coef:
                out.setdefault(gain.id, []).append((gain, carry))
    return out


def _held(facts: list[Fact], region: Where) -> list[Fact]:
    """The facts, of the ranks that run the block."""
    wheres = [common(f.where, region) for f in facts]
    held = [(f, w) for f, w in zip(facts, wheres, strict=True) if w is not None]
    return _distinct([replace(f, where=w) for f, w in held if _covers(w, f.layout)])


def _distinct(facts: list[Fact]) -> list[Fact]:
    """The facts without those that say what an earlier one does."""
    return list({(f.ref, f.layout, f.where): f for f in reversed(facts)}.values())[::-1]


def _covers(where: Where, layout: Layout) -> bool:
    """Whether these ranks hold all parts of every pending fold."""
    return not layout.pending & set(dict(where))


def _same_shape(a: Layout, b: Layout) -> bool:
    return a.local_shape == b.local_shape and a.global_shape == b.global_shape


def _is_zero(fact: Fact) -> bool:
    return fact.ref.coef == 0 and not fact.layout.partial


def _starts_at_zero(facts: list[Fact], where: Where | None = None) -> bool:
    """Whether the value is the constant 0, on these ranks or on some."""
    return any(_is_zero(f) and (where is None or within(where, f.where)) for f in facts)
