"""Repeated blocks, by induction over their steps: what the claims about a scan rest on."""

from collections.abc import Callable, Sequence

from shardproof.verifier.checker.claims import Claim, Row, same
from shardproof.verifier.kernel.layout import Layout, bound, whole
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.where import within
from shardproof.verifier.provers.sequential import Scan, Sequential
from shardproof.verifier.terms import Ref

Shown = Callable[[Row, Ref], bool]


def likewise(theirs: Node, mine: Node) -> bool:
    """Both scans take as many steps, in one direction."""
    return all(
        theirs.attrs.get(k, False) == mine.attrs.get(k, False) for k in ("length", "reverse")
    )


def _scaled(ref: Ref, factor: Ref) -> Ref:
    return Ref(ref.coef * factor.coef, ref.id)


def _slot(scan: Scan, ref: Ref) -> int | None:
    """Which input of the one-device block `ref` is a multiple of."""
    names = [i.name for i in scan.node.block.inputs]
    return next((p for p, n in enumerate(names) if scan.inner.values[n].id == ref.id), None)


def enters(
    one: Sequential, scan: Scan, node: Node, position: int, passed: Sequence[Claim]
) -> Shown:
    """A claim about a body input holds of what is passed before the first step.

    A carry that starts as the constant 0 on both sides may be read by any layout.
    """
    mine = scan_parts(node.attrs, len(node.inputs))
    theirs = scan_parts(scan.node.attrs, len(scan.operands))
    kind = next(k for k, part in enumerate(mine) if position in range(len(node.inputs))[part])

    def shown(row: Row, ref: Ref) -> bool:
        slot = _slot(scan, ref)
        if slot is None or slot not in range(len(scan.operands))[theirs[kind]]:
            return False
        operand = scan.operands[slot]
        for claim in passed:
            layout = claim.layout
            if kind == 1:
                if bound(layout.dims[0]):
                    continue
                layout = Layout(layout.dims[1:], layout.partial)
            if not within(row.where, claim.where):
                continue
            if layout == row.layout and same(one.terms, claim.ref, _scaled(operand, ref)):
                return True
            if kind == 0 and claim.is_zero and operand.coef == 0:
                return True
        return False

    return shown


def kept(scan: Scan, claim: Claim, results: Sequence[Claim]) -> bool:
    """A claim about a carry, assumed before a step, holds after it."""
    slot = _slot(scan, claim.ref)
    assert slot is not None
    target = scan.inner.values[scan.node.block.outputs[slot].value]
    want = _scaled(target, claim.ref)
    return any(
        r.layout == claim.layout
        and within(claim.where, r.where)
        and same(scan.inner.terms, r.ref, want)
        for r in results
    )


def follows(one: Sequential, scan: Scan, node: Node, carry: bool, claims: Sequence[Claim]) -> Shown:
    """A claim about a result of the scan, from claims about the carry or the stacked slices."""
    length, body = node.number("length"), scan.node.block
    carries = scan_parts(scan.node.attrs, len(scan.operands))[0].stop

    def shown(row: Row, ref: Ref) -> bool:
        for p, name in enumerate(scan.node.outputs):
            outer = one.values[name]
            if outer.id != ref.id or (p < carries) != carry:
                continue
            inner = body.inputs[p].name if carry else body.outputs[p].value
            factor = Ref(ref.coef / outer.coef, outer.id)
            want = _scaled(scan.inner.values[inner], factor)
            for claim in claims:
                dims = claim.layout.dims if carry else (whole(length), *claim.layout.dims)
                layout = Layout(dims, claim.layout.partial)
                if not within(row.where, claim.where):
                    continue
                if layout == row.layout and same(scan.inner.terms, claim.ref, want):
                    return True
        return False

    return shown
