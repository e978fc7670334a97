"""Relates repeated blocks by induction over their steps."""

from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction

from verifier.kernel.contract import Contract
from verifier.kernel.layout import Layout, whole
from verifier.kernel.ops import Refused
from verifier.kernel.ops.control import scan_parts
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.where import Where, common, within
from verifier.kernel.rank_sets import Regions
from verifier.provers.relate.facts import MAX_FACTS, Break, Fact, Related
from verifier.provers.relate.peeling import want_peel
from verifier.provers.relate.rules import Rules
from verifier.provers.sequential import Scan, Sequential
from verifier.terms import Ref

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
    inside = places.inside(node)
    from verifier.provers.relate.walk import keep

    label = f"{path}{node.outputs[0]}/"
    best: tuple[Scan, Related, list[list[Fact]]] | None = None
    given = [{f.ref.id for f in facts} for facts in operands if not _starts_at_zero(facts)]
    for scan in sequential.scans:
        same = ("length", "reverse")
        if any(scan.node.attrs.get(k, False) != node.attrs.get(k, False) for k in same):
            continue
        if any(ids.isdisjoint(scan.reads) for ids in given):
            continue
        tried = (scan, *_induct(sequential, scan, node, operands, rules, label, inside))
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


def _induct(
    sequential: Sequential,
    scan: Scan,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    label: str,
    inside: Regions | None,
) -> tuple[Related, list[list[Fact]]]:
    body, inner, theirs = node.block, scan.inner, scan.node.block
    d_parts = scan_parts(node.attrs, len(node.inputs))
    s_parts = scan_parts(scan.node.attrs, len(scan.operands))
    carries = node.number("carry")
    entry: list[list[Fact]] = []
    for kind in range(3):
        s_range = range(len(scan.operands))[s_parts[kind]]
        for facts in operands[d_parts[kind]]:
            found = _enter(sequential, scan, facts, s_range, sliced=kind == 1)
            name = body.inputs[len(entry)].name
            entry.append(_held(found, inside.values[name]) if inside else found)
    key = _relation(scan, node, operands, entry, inside)
    known = rules.inductions.get(key)
    if known is None:
        related, kept = _settled(scan, node, operands, rules, label, entry, inside)
        if kept is None:
            return related, [[] for _ in node.outputs]
        if not related.breaks:
            rules.inductions[key] = related, kept, (scan, body)
    else:
        related, kept, _ = known
    entry[:carries] = kept
    results: list[list[Fact]] = []
    shapes = [sequential.values[name] for name in scan.node.outputs]
    s_carries = scan.node.number("carry")
    length = node.number("length")
    targets = [inner.values[o.value] for o in theirs.outputs]
    for k in range(len(node.outputs)):
        facts: list[Fact] = []
        if k < carries:
            for fact in entry[k]:
                for p in range(s_carries):
                    if fact.ref.id == inner.values[theirs.inputs[p].name].id:
                        whole_ref = shapes[p]
                        ref = Ref(fact.ref.coef * whole_ref.coef, whole_ref.id)
                        facts.append(Fact(ref, fact.layout, (), "scan", fact.where))
        else:
            for i, fact in enumerate(related.facts.get(body.outputs[k].value, [])):
                for p in range(s_carries, len(targets)):
                    if targets[p].id == fact.ref.id and targets[p].coef:
                        whole_ref = shapes[p]
                        ratio = fact.ref.coef / targets[p].coef
                        ref = Ref(ratio * whole_ref.coef, whole_ref.id)
                        layout = Layout((whole(length), *fact.layout.dims), fact.layout.partial)
                        facts.append(Fact(ref, layout, (i,), "scan", fact.where))
        results.append(_distinct(facts))
    return related, results


def _relation(
    scan: Scan,
    node: Node,
    operands: list[list[Fact]],
    entry: list[list[Fact]],
    inside: Regions | None,
) -> Hashable:
    """All that an induction depends on: two equal ones come out alike.

    Bodies are told apart by identity; who keeps the key keeps them alive.
    """
    starts = tuple(tuple(f.where for f in facts if _is_zero(f)) for facts in operands)
    return (
        id(scan.inner),
        id(node.body),
        tuple(sorted(node.attrs.items())),
        tuple(sorted(scan.node.attrs.items())),
        tuple(ref.coef == 0 for ref in scan.operands),
        starts,
        frozenset(inside.values.items()) if inside else None,
        tuple(map(tuple, entry)),
    )


def _settled(
    scan: Scan,
    node: Node,
    operands: list[list[Fact]],
    rules: Rules,
    label: str,
    entry: list[list[Fact]],
    inside: Regions | None,
) -> tuple[Related, list[list[Fact]] | None]:
    """The facts of one step, and those about the carries that a step keeps; None where none do."""
    from verifier.provers.relate.walk import relate

    body, inner, theirs = node.block, scan.inner, scan.node.block
    carries = node.number("carry")
    _guess_zero_starts(scan, body, entry, operands, rules, label, carries, inside)
    related = Related({}, [])
    for _ in range(len(entry) + 4):
        given = {i.name: f for i, f in zip(body.inputs, entry, strict=True)}
        if not all(entry):
            missing = next(i.name for i, f in zip(body.inputs, entry, strict=True) if not f)
            reason = Refused(f"no operand of the one-device block matches %{missing} of this one")
            related.breaks.append(Break(node, reason, (), label))
            return related, None
        related = relate(inner, body, given, NOTHING, rules, label, inside)
        kept = _invariant(inner, theirs, body, related, entry, operands, carries)
        if kept == entry[:carries]:
            break
        entry[:carries] = kept
    else:
        return related, None
    return related, entry[:carries]


def _guess_zero_starts(
    scan: Scan,
    body: Program,
    entry: list[list[Fact]],
    operands: list[list[Fact]],
    rules: Rules,
    label: str,
    carries: int,
    inside: Regions | None,
) -> None:
    """Guess the layouts of carries that start at zero from one step taken from zero.

    Zero has every layout, so any guess holds at the start; the induction step then decides.
    """
    from verifier.provers.relate.walk import relate

    inner, theirs = scan.inner, scan.node.block
    zero = [k for k in range(carries) if _starts_at_zero(operands[k])]
    if not zero or not all(facts for k, facts in enumerate(entry) if k not in zero):
        return
    given = {i.name: f for i, f in zip(body.inputs, entry, strict=True)}
    for k in zero:
        zeros = [inner.terms.full(inner.terms.shape(f.ref), Fraction(0)) for f in entry[k]]
        facts = [Fact(z, f.layout, where=f.where) for z, f in zip(zeros, entry[k], strict=True)]
        given[body.inputs[k].name] = facts
    related = relate(inner, body, given, NOTHING, rules, label, inside)
    slot, gains = _slots(inner, theirs), _gains(scan)
    for k in zero:
        guesses = _matching_gains(inner, body, k, operands[k], related, gains)
        free = [f for f in entry[k] if _starts_at_zero(operands[k], f.where)]
        for fact in free if not guesses else ():
            target = inner.values[theirs.outputs[slot[fact.ref.id]].value]
            weights = {a.id: a.coef for a in inner.terms[target.id].args}
            for found in related.facts.get(body.outputs[k].value, []):
                part = weights.get(found.ref.id, Fraction(0)) * target.coef
                ratio = found.ref.coef / part if part else Fraction(1)
                alike = _same_shape(found.layout, fact.layout)
                if ratio and alike and _covers(fact.where, found.layout):
                    ref = Ref(ratio, fact.ref.id)
                    guesses.append(Fact(ref, found.layout, (), "enter", fact.where))
        entry[k] = _distinct(guesses or entry[k])[:MAX_FACTS]


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


def _matching_gains(
    inner: Sequential,
    body: Program,
    index: int,
    starts: list[Fact],
    related: Related,
    gains: dict[int, list[tuple[Ref, Ref]]],
) -> list[Fact]:
    """Facts about a carry to which a step adds what some carry of the one-device block gains."""
    carry, after = body.inputs[index], body.outputs[index].value
    node = next((n for n in body.nodes if after in n.outputs), None)
    if node is None or node.op != "add" or carry.name not in node.inputs:
        return []
    out: list[Fact] = []
    held = next(f.where for f in starts if _is_zero(f))
    shares = [v for v in node.inputs if v != carry.name]
    for found in (f for v in shares for f in related.facts.get(v, [])):
        for gain, theirs in gains.get(found.ref.id, ()):
            where = common(found.where, held)
            if where is None or found.layout.local_shape != carry.type.shape:
                continue
            if not _covers(where, found.layout):
                continue
            if found.layout.global_shape == inner.terms.shape(theirs):
                ref = Ref(found.ref.coef / gain.coef, theirs.id)
                out.append(Fact(ref, found.layout, (), "enter", where))
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


def _slots(inner: Sequential, theirs: Program) -> dict[int, int]:
    """Term of each input of the one-device block -> its position."""
    return {inner.values[item.name].id: p for p, item in enumerate(theirs.inputs)}


def _same_shape(a: Layout, b: Layout) -> bool:
    return a.local_shape == b.local_shape and a.global_shape == b.global_shape


def _is_zero(fact: Fact) -> bool:
    return fact.ref.coef == 0 and not fact.layout.partial


def _starts_at_zero(facts: list[Fact], where: Where | None = None) -> bool:
    """Whether the value is the constant 0, on these ranks or on some."""
    return any(_is_zero(f) and (where is None or within(where, f.where)) for f in facts)


def _enter(
    sequential: Sequential, scan: Scan, facts: list[Fact], positions: range, sliced: bool
) -> list[Fact]:
    """Facts about a body input from facts about the operand passed for it."""
    out: list[Fact] = []
    body = scan.node.block
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
            out.append(Fact(Ref(ratio, var.id), layout, (), "enter", fact.where))
    return _distinct(out)


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
            if any(
                r.ref == want and r.layout == fact.layout and within(fact.where, r.where)
                for r in results
            ):
                good.append(fact)
                continue
            if _starts_at_zero(operands[k], fact.where):
                for r in results:
                    if r.ref.id == target.id and target.coef:
                        ref = Ref(r.ref.coef / target.coef, fact.ref.id)
                        same = ref.coef and _same_shape(r.layout, fact.layout)
                        same = same and _covers(fact.where, r.layout)
                        if same and (ref, r.layout) != (fact.ref, fact.layout):
                            good.append(Fact(ref, r.layout, (), "enter", fact.where))
        kept.append(_distinct(good)[:MAX_FACTS])
    return kept
