"""What a loop over a list of modules does between two of them, as a residual: it belongs to the
first of the two, so that all repeat it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardproof.synthesis.frontends.torch.rolling.match import entry_of
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import SCALING

Line = tuple[str, int, str, str]
"""File and line, what is written there, and an op of it."""
NONE = -1


def with_entries(program: Program, backward: frozenset[str], lists: Sequence[str]) -> Program:
    """The program with elementwise ops of the code around a list in the entry that they come after:
    those before another entry, and after the last one those of the same lines."""
    for prefix in sorted(lists, key=lambda p: (p.count("."), p)):
        entries = {
            n.outputs[0]: entry
            for n in program.nodes
            if (entry := entry_of(n.source.module, prefix)) is not None
        }
        found = _between(program, backward, prefix, entries) if entries else {}
        nodes = (
            replace(n, source=replace(n.source, module=f"{prefix}.{found[n.outputs[0]]}"))
            if n.outputs[0] in found
            else n
            for n in program.nodes
        )
        program = replace(program, nodes=tuple(nodes)) if found else program
    return program


def _between(
    program: Program, backward: frozenset[str], prefix: str, entries: Mapping[str, int]
) -> dict[str, int]:
    """The entries of values that are made around a list: of each op of a line as many for each
    entry, those that are nearest to it. Before and after the list a line may have more."""
    forward = [n for n in program.nodes if n.outputs[0] not in backward]
    around = {n.outputs[0] for n in program.nodes if _is_around(n, prefix)}
    first, last = _after(forward, entries, min), _last_before(forward, entries)
    after: dict[Line, dict[int, list[str]]] = {}
    known: set[Line] = set()
    for node in forward:
        value = node.outputs[0]
        entry, next_one = last[value], first.get(value)
        if value in around and entry > NONE and (next_one is None or entry <= next_one):
            after.setdefault(_line(node), {}).setdefault(entry, []).append(value)
            known |= {_line(node)} if next_one is not None else set()
    count = len(set(entries.values()))
    found: dict[str, int] = {}
    for line in known:
        found |= _alike(after[line], count)
    later = [n for n in program.nodes if n.outputs[0] in backward]
    # The backward comes to the last entry first.
    then, done = _after(later, entries, max), _first_before(later, entries)
    before: dict[Line, dict[int, list[str]]] = {}
    sums: dict[Line, dict[int, list[str]]] = {}
    for node in later if found else ():
        value, added = node.outputs[0], len(node.inputs) > 1 and node.op in SCALING
        entry = (done if added else then).get(value)
        if value in around and entry is not None:
            held = (sums if added else before).setdefault(_line(node), {})
            held.setdefault(entry, []).append(value)
    for line in sums:
        found |= _alike(sums[line], count)
    for line in before:
        found |= _alike({e: values[::-1] for e, values in before[line].items()}, count)
    return found


def _alike(values: Mapping[int, list[str]], count: int) -> dict[str, int]:
    """The first values of each entry, as many as all have."""
    least = min(map(len, values.values())) if len(values) == count else 0
    return {value: entry for entry, some in values.items() for value in some[:least]}


def _is_around(node: Node, prefix: str) -> bool:
    """Whether an elementwise op is of the module that holds a list, or of one around that."""
    module = node.source.module
    holds = not module or prefix.startswith(f"{module}.")
    return holds and node.body is None and lookup(node.op).kind == "map"


def _line(node: Node) -> Line:
    return node.source.file, node.source.line, node.source.text, node.op


def _last_before(nodes: Sequence[Node], entries: Mapping[str, int]) -> dict[str, int]:
    """For each value the last entry that it comes from."""
    found: dict[str, int] = {}
    for node in nodes:
        came = max((found.get(v, NONE) for v in node.inputs), default=NONE)
        found |= dict.fromkeys(node.outputs, max(came, entries.get(node.outputs[0], NONE)))
    return found


def _first_before(nodes: Sequence[Node], entries: Mapping[str, int]) -> dict[str, int]:
    """For each value of the backward the first entry that it comes from: a sum of gradients is of
    the one that gave its last term."""
    found: dict[str, int] = {}
    for node in nodes:
        came = [found[v] for v in node.inputs if v in found]
        came += [entries[node.outputs[0]]] if node.outputs[0] in entries else []
        found |= dict.fromkeys(node.outputs, min(came)) if came else {}
    return found


def _after(
    nodes: Sequence[Node], entries: Mapping[str, int], chosen: Callable[[list[int]], int]
) -> dict[str, int]:
    """For each value that entries read, or what comes of it, the `chosen` one of these."""
    found: dict[str, int] = {}
    for node in reversed(nodes):
        own = [entries[node.outputs[0]]] if node.outputs[0] in entries else []
        own += [found[v] for v in node.outputs if v in found]
        for value in node.inputs if own else ():
            found[value] = chosen([*own, found.get(value, own[0])])
    return found
