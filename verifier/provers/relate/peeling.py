"""Repeated blocks that a distributed program has written out in part: how to cut the others alike.

A scan of fewer steps than any of the one-device program may be some steps of one of its. Which,
its operands tell: slices of the xs of that block, and the carries that it starts from. Then the
one-device program is cut alike (`verifier/kernel/peeling.py`), which changes no value, and related
anew. A wrong guess relates nothing; it cannot make two values equal.
"""

from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.peeling import Peel
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.provers.relate.facts import Fact, Related
from shardproof.verifier.provers.sequential import Scan, Sequential


def want_peel(
    sequential: Sequential,
    scope: Program,
    node: Node,
    operands: list[list[Fact]],
    out: Related,
) -> None:
    """Notes how to cut a one-device block so that this scan has its like, as far as can be seen.

    Carries, and some of the xs, may be without a fact: they may come from a step that is written
    out, or from a block that has to be cut too.
    """
    if node.outputs[0] in out.covered:
        return
    used = {scan.node.outputs[0] for scan, _ in out.bodies.values()}
    used |= {peel.block for peel in out.wanted}
    found = _wanted(sequential, scope, node, operands, used, out)
    if found is not None:
        out.wanted.append(found)


def _wanted(
    sequential: Sequential,
    scope: Program,
    node: Node,
    operands: list[list[Fact]],
    used: set[str],
    out: Related,
) -> Peel | None:
    """`used` names the blocks that other scans were related to."""
    length = node.number("length")
    reverse = bool(node.attrs.get("reverse"))
    for scan in sequential.scans:
        theirs = scan.node.number("length")
        if scan.node.outputs[0] in used or theirs <= length:
            continue
        if bool(scan.node.attrs.get("reverse")) != reverse:
            continue
        first = theirs - length if reverse else 0
        if _starts_alike(scan, node, operands):
            starts = [first]
        else:
            starts = list(range(theirs - length + 1))
        for start in starts:
            if _same_slices(sequential, scan, node, operands, start):
                runs = _runs(scope, node, reverse)
                shift = start - runs[0][0]
                if len(runs) == 1:
                    runs, shift = _runs_of_parts(sequential, scan, scope, node, out, start), 0
                kept = sorted((a + shift, b + shift) for a, b in runs)
                return Peel(scan.node.outputs[0], tuple(kept))
    return None


def _starts_alike(scan: Scan, node: Node, operands: list[list[Fact]]) -> bool:
    """Whether each carry starts from what some carry of the one-device block starts from."""
    carries, _, _ = scan_parts(scan.node.attrs, len(scan.operands))
    ids = {(ref.id, ref.coef == 0) for ref in scan.operands[carries]}
    mine, _, _ = scan_parts(node.attrs, len(node.inputs))
    return all(any((f.ref.id, f.ref.coef == 0) in ids for f in facts) for facts in operands[mine])


def _same_slices(
    sequential: Sequential, scan: Scan, node: Node, operands: list[list[Fact]], start: int
) -> bool:
    """Whether the xs are slices, from this step on, of xs of the one-device block."""
    terms, length = sequential.terms, node.number("length")
    _, xs, _ = scan_parts(node.attrs, len(node.inputs))
    _, theirs, _ = scan_parts(scan.node.attrs, len(scan.operands))
    cut = {"dim": 0, "start": start, "stop": start + length, "step": 1}
    missing = [{f.ref.id for f in facts} for facts in operands[xs] if facts]
    if not missing:
        return not operands[xs]
    for ref in scan.operands[theirs]:
        whole = terms.shape(ref)
        alike = [ids for ids in missing if any(terms[i].shape[1:] == whole[1:] for i in ids)]
        if alike:
            part = terms.apply("slice", [ref], cut, ["f32"]).id
            missing = [ids for ids in missing if part not in ids]
    return not missing


def _runs(scope: Program, node: Node, reverse: bool) -> list[tuple[int, int]]:
    """This scan and those after it that repeat its body over later slices of the same value.

    Counted from the first slice of that value; where nothing is sliced, this scan alone.
    """
    length = node.number("length")
    producers = scope.producers()
    slot, root, start = _sliced(producers, node)
    runs = [(start, start + length)]
    if root is None:
        return runs
    seen = False
    for other in scope.nodes:
        seen = seen or other is node
        if not seen or other is node or not _alike(other.body, node.body):
            continue
        count = other.number("length")
        value, begin = _window(producers, other.inputs[slot])
        last = runs[-1]
        after = begin + count <= last[0] if reverse else begin >= last[1]
        if value != root or not after:
            break
        runs.append((begin, begin + count))
    return runs


def _runs_of_parts(
    sequential: Sequential, scan: Scan, scope: Program, node: Node, out: Related, start: int
) -> list[tuple[int, int]]:
    """This scan and those after it that repeat its body over values that are the next slices of the
    xs of the one-device block, as far as is known of them now."""
    reverse = bool(node.attrs.get("reverse"))
    theirs, length = scan.node.number("length"), node.number("length")
    runs = [(start, start + length)]
    after = scope.nodes[scope.nodes.index(node) + 1 :]
    for other in (n for n in after if n.body is not None and _alike(n.body, node.body)):
        count = other.number("length")
        begin = runs[-1][0] - count if reverse else runs[-1][1]
        operands = [out.facts.get(v, []) for v in other.inputs]
        _, xs, _ = scan_parts(other.attrs, len(other.inputs))
        fits = begin >= 0 and begin + count <= theirs and any(operands[xs])
        if not fits or not _same_slices(sequential, scan, other, operands, begin):
            break
        runs.append((begin, begin + count))
        out.covered.add(other.outputs[0])
    return runs


def _alike(a: Program | None, b: Program | None) -> bool:
    """Whether two bodies are the same, wherever they were read: by inputs and ops, which is enough
    for a guess."""
    if a is b or a is None or b is None:
        return a is b
    if len(a.nodes) != len(b.nodes) or [i.type for i in a.inputs] != [i.type for i in b.inputs]:
        return False
    return all(x.op == y.op and x.inputs == y.inputs for x, y in zip(a.nodes, b.nodes, strict=True))


def _sliced(producers: dict[str, Node], node: Node) -> tuple[int, str | None, int]:
    """An xs operand that is a slice, what it is a slice of, and from where on."""
    _, xs, _ = scan_parts(node.attrs, len(node.inputs))
    for slot in range(len(node.inputs))[xs]:
        root, start = _window(producers, node.inputs[slot])
        if root != node.inputs[slot]:
            return slot, root, start
    return 0, None, 0


def _window(producers: dict[str, Node], value: str) -> tuple[str, int]:
    """What a value is rows of, and the first row."""
    start = 0
    while value in producers:
        node = producers[value]
        if node.op != "slice" or node.attrs.get("dim") != 0:
            break
        begin = node.number("start")
        start, value = start + begin, node.inputs[0]
    return value, start
