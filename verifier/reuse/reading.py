"""Reads an edited text by the statements that changed, from the text that it was edited from."""

from dataclasses import dataclass, replace
from itertools import pairwise

from verifier.kernel.program.errors import MalformedError
from verifier.kernel.program.program import Program
from verifier.text.assemble import Assembly
from verifier.text.parser import Spans, parse_statements


@dataclass(frozen=True)
class Changed:
    """Characters `first` to `last` of the old text are those `first` to `last + by` of the new."""

    first: int
    last: int
    by: int


def reread(text: str, before: str, program: Program, spans: Spans) -> Program | None:
    """The program of an edited text; None where more than some statements changed.

    A text that is not well formed gives None too: read it as a whole and be told why.
    """
    if text == before:
        return program
    try:
        return _reread(text, before, changed(before, text), program, spans, 0)
    except MalformedError:
        return None


def changed(before: str, after: str) -> Changed:
    """The lines in which two texts differ, from the first one to the last one."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    shorter = min(len(old), len(new))
    head = next((i for i in range(shorter) if old[i] != new[i]), shorter)
    left = shorter - head
    tail = next((i for i in range(left) if old[-1 - i] != new[-1 - i]), left)
    first = sum(map(len, old[:head]))
    last = len(before) - sum(map(len, old[len(old) - tail :]))
    return Changed(first, last, len(after) - len(before))


AHEAD = 400
"""Characters behind changed statements in which the next token is looked for."""


def _reread(
    text: str, before: str, at: Changed, program: Program, spans: Spans, depth: int
) -> Program | None:
    """The program whose statements stand at `spans`; raises MalformedError."""
    places = spans.statements
    if len(places) != len(program.nodes) or not places:
        return None
    if at.first < places[0][0] or at.last > places[-1][1]:
        return None
    if any(end != start for (_, end, _), (start, _, _) in pairwise(places)):
        return None  # an input stands between statements
    ends = (end for _, end, _ in places)
    low = next((i for i, end in enumerate(ends) if before[at.first : end].strip()), len(places))
    high = next((i for i, (start, _, _) in enumerate(places) if start >= at.last), len(places))
    if low == len(places):
        return None
    high = max(high, low)
    if high == low + 1:
        inner, body = places[low][2], program.nodes[low].body
        if inner is not None and body is not None:
            found = _reread(text, before, at, body, inner, depth + 1)
            if found is not None:
                node = replace(program.nodes[low], body=found)
                nodes = [*program.nodes[:low], node, *program.nodes[low + 1 :]]
                return program.with_nodes(nodes, program.types)
    start = min(places[low][0], at.first)
    end = max(places[high - 1][1], at.last) if high > low else at.last
    parts = Assembly(program.name, program.mesh, depth)
    parts.types = {item.name: item.type for item in program.inputs}
    for node in program.nodes[:low]:
        parts.types.update((v, program.types[v]) for v in node.outputs)
    stop = end + at.by
    parse_statements(text[start : stop + AHEAD], stop - start, parts)
    made = [v for node in parts.nodes for v in node.outputs]
    if any(program.types.get(v, parts.types[v]) != parts.types[v] for v in made):
        return None
    nodes = [*program.nodes[:low], *parts.nodes, *program.nodes[high:]]
    return program.with_nodes(nodes, {**program.types, **parts.types})
