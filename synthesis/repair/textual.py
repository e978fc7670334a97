"""A repair written into the text that the program came from: only what changes is touched.

Comments, spacing, the order of attributes and everything else stay as their author left them. The
text that comes out is read again and must be the repaired program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardproof.synthesis.emit.source import Edit
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import NOWHERE
from shardproof.verifier.text import source_note
from shardproof.verifier.text.parser import parse_spans, parse_text
from shardproof.verifier.text.printing import node_text, show_attr, show_where
from shardproof.verifier.text.spans import Scope, Span, Statement
from shardproof.verifier.text.tokens import quote, value


def rewritten(text: str, before: Program, after: Program) -> str | None:
    """The text of `before`, changed so that it is the text of `after`.

    None where the text of one does not say the other; then it has to be printed anew.
    """
    try:
        changes = list(_Scoped(text, before, after, parse_spans(text)[1]).changes())
        out = _applied(text, changes)
        if out is not None and "\n" in text and text.count("\n") == text.count("\r\n"):
            out = out.replace("\r\n", "\n").replace("\n", "\r\n")
        again = parse_text(out) if out is not None else None
    except IRError:
        return None
    return out if again is not None and unsourced(again) == unsourced(after) else None


def unsourced(program: Program) -> Program:
    """The program without the places that its nodes come from."""

    def bare(node: Node) -> Node:
        body = unsourced(node.body) if node.body is not None else None
        return replace(node, source=NOWHERE, body=body)

    return replace(program, nodes=tuple(map(bare, program.nodes)))


def _applied(text: str, changes: Sequence[Edit]) -> str | None:
    out: list[str] = []
    at = 0
    for change in sorted(changes, key=lambda c: (c.start, c.end)):
        if change.start < at:
            return None
        out += [text[at : change.start], change.new]
        at = change.end
    return "".join([*out, text[at:]])


class _Scoped:
    """One program, or the body of a repeated block, in a text."""

    def __init__(self, text: str, before: Program, after: Program, scope: Scope) -> None:
        self.text, self.before, self.after, self.scope = text, before, after, scope
        self.statements = {s.names[0]: s for s in scope.statements}
        self.place = {s.names[0]: i for i, s in enumerate(scope.statements)}
        self.old = {n.outputs: n for n in before.nodes}

    def changes(self) -> Iterator[Edit]:
        now = {n.outputs for n in self.after.nodes}
        stay = self._in_order()
        for node in self.before.nodes:
            if node.outputs not in now or node.outputs not in stay:
                yield self._without(self.statements[node.outputs[0]])
        added: dict[int, list[Node]] = {}
        last = -1
        for node in self.after.nodes:
            if node.outputs in stay:
                last = max(last, self.place[node.outputs[0]])
                yield from self._changed(self.old[node.outputs], node)
                continue
            read = [self.place[v] for v in node.inputs if v in self.place and self._stands(v, stay)]
            last = max([last, *read])
            added.setdefault(last, []).append(node)
        for place, nodes in added.items():
            yield self._added(place, nodes)
        for was, now_, at in zip(
            self.before.outputs, self.after.outputs, self.scope.returned, strict=True
        ):
            if was.value != now_.value:
                yield Edit(at.value.start, at.value.end, value(now_.value))
                if at.path is None:
                    yield Edit(at.value.end, at.value.end, f" {quote(now_.path)}")

    def _stands(self, name: str, stay: set[tuple[str, ...]]) -> bool:
        statement = self.scope.statements[self.place[name]]
        return statement.is_input or statement.names in stay

    def _in_order(self) -> set[tuple[str, ...]]:
        """Nodes that are in both programs, as many as are in one order."""
        kept = [n.outputs for n in self.after.nodes if n.outputs in self.old]
        places = [self.place[names[0]] for names in kept]
        best: list[tuple[int, int]] = []
        """For each node: the length of the longest rising row that ends in it, and the one
        before."""
        for i, at in enumerate(places):
            before = [(best[j][0], j) for j in range(i) if places[j] < at]
            length, j = max(before, default=(0, -1))
            best.append((length + 1, j))
        if not best:
            return set()
        i = max(range(len(best)), key=lambda k: best[k][0])
        out: set[tuple[str, ...]] = set()
        while i >= 0:
            out.add(kept[i])
            i = best[i][1]
        return out

    def _changed(self, old: Node, new: Node) -> Iterator[Edit]:
        at = self.statements[new.outputs[0]]
        if old.timing != new.timing or (old.body is None) != (new.body is None):
            raise IRError("no such edit of a text")
        if old.op != new.op:
            yield Edit(at.op.start, at.op.end, new.op)
        yield from self._operands(old, new, at)
        yield from self._attrs(old, new, at)
        if old.where != new.where:
            shown = f"on({show_where(new.where)})" if new.where else ""
            if at.where is not None:
                yield Edit(at.where.start, at.where.end, shown)
            else:
                yield Edit(at.head_end, at.head_end, f" {shown}")
        types = [program.types[v] for program in (self.before, self.after) for v in new.outputs]
        half = len(new.outputs)
        if old.source != new.source and at.note is not None:
            yield Edit(at.note.start, at.note.end, source_note.show(new.source))
        if at.types is not None and types[:half] != types[half:]:
            yield Edit(at.types.start, at.types.end, ", ".join(map(str, types[half:])))
        if old.body is not None and new.body is not None and old.body != new.body:
            if at.body is None:
                raise IRError("no body in the text")
            yield from _Scoped(self.text, old.body, new.body, at.body).changes()

    def _operands(self, old: Node, new: Node, at: Statement) -> Iterator[Edit]:
        if old.inputs == new.inputs:
            return
        if len(old.inputs) == len(new.inputs):
            for was, now, span in zip(old.inputs, new.inputs, at.operands, strict=True):
                if was != now:
                    yield Edit(span.start, span.end, value(now))
            return
        listed = ", ".join(map(value, new.inputs))
        if at.operands:
            yield Edit(at.operands[0].start, at.operands[-1].end, listed)
        else:
            yield Edit(at.op.end, at.op.end, f" {listed}")

    def _attrs(self, old: Node, new: Node, at: Statement) -> Iterator[Edit]:
        if old.attrs == new.attrs:
            return
        if at.attrs is None or set(at.values) != set(new.attrs):
            shown = ", ".join(f"{k}={show_attr(v)}" for k, v in sorted(new.attrs.items()))
            written = f"{{{shown}}}" if new.attrs else ""
            if at.attrs is not None:
                yield Edit(at.attrs.start, at.attrs.end, written)
            else:
                yield Edit(at.head_end, at.head_end, f" {written}")
            return
        for name, span in at.values.items():
            if old.attrs.get(name) != new.attrs[name]:
                yield Edit(span.start, span.end, show_attr(new.attrs[name]))

    def _without(self, at: Statement) -> Edit:
        """A statement away, with its line where nothing else stands there."""
        span = _line(self.text, at.whole)
        return Edit(span.start, span.end, "")

    def _added(self, place: int, nodes: Sequence[Node]) -> Edit:
        """Lines after the statement at a place (-1: before all)."""
        listed = self.scope.statements
        near = listed[place] if place >= 0 else listed[0] if listed else None
        begin = near.whole.start if near is not None else self.scope.start
        indent = _indent(self.text, begin)
        typed = any(s.types is not None for s in listed)
        lines = [self._line(n, indent, typed) for n in nodes]
        if place < 0 and near is not None:
            line = self.text.rfind("\n", 0, near.whole.start) + 1
            return Edit(line, line, "".join(f"{t}\n" for t in lines))
        end = near.whole.end if near is not None else self.scope.start
        rest = self.text[end:].split("\n", 1)
        if len(rest) == 2 and not rest[0].partition("#")[0].strip():
            after = end + len(rest[0]) + 1
            return Edit(after, after, "".join(f"{t}\n" for t in lines))
        joined = "\n".join(lines)
        return Edit(end, end, f"\n{joined}\n{indent}")

    def _line(self, node: Node, indent: str, typed: bool) -> str:
        """A node that is new; with its source only where that is its own."""
        text = node_text(self.after, node, indent, typed)
        others = (n.source for n in self.after.nodes if n is not node)
        note = source_note.show(node.source) if node.source not in others else ""
        return f"{text}  {note}" if note and node.body is None else text


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip() else line[: len(line) - len(line.lstrip())]


def _line(text: str, span: Span) -> Span:
    start = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.end)
    end = len(text) if end < 0 else end + 1
    alone = not text[start : span.start].strip()
    alone = alone and not text[span.end : end].partition("#")[0].strip()
    return Span(start, end) if alone else span


__all__ = ["rewritten", "unsourced"]
