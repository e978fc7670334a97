"""Edits of a distributed program: a typed vocabulary, one declaration a kind.

An edit names the value it is about and keeps every other name. Nothing here is trusted: an edited
program is verified anew, and neither the one-device program nor the contract can be edited.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import infer_types, lookup
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import IN_ORDER, Node, Output, Program, unused
from shardproof.verifier.kernel.program.types import NOWHERE, Attr
from shardproof.verifier.kernel.program.where import EVERYWHERE, Where, show

Attrs = tuple[tuple[str, Attr], ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a program. Which fields matter is said by the kind (`KINDS`)."""

    kind: str
    value: str
    """The value that is edited: the first result of a node, or an output key (`role:path`)."""
    op: str = ""
    attrs: Attrs = ()
    operands: tuple[str, ...] = ()
    index: int = 0
    uses: tuple[str, ...] = ()
    """Which readers change (first results of nodes, or output keys); none named means all."""
    where: Where = EVERYWHERE
    scope: tuple[str, ...] = ()
    """First results of the scans whose body holds the value, outermost first."""

    def __str__(self) -> str:
        inside = "".join(f" in the block of %{name}" for name in self.scope)
        return KINDS[self.kind].shown(self) + inside

    @property
    def tactic(self) -> str:
        """The kind of change, wherever it is made: `after all_reduce`, `set mesh_dim`."""
        more = self.op or " ".join(sorted(name for name, _ in self.attrs))
        return f"{self.kind} {more}".rstrip()


CHANGES = ("set", "set_alike", "drop", "drop_alike", "skip")
"""Edits by which one op that is there does something else, or nothing."""
LARGER = ("replace", "rewire", "swap", "commute")
"""Edits by which an op reads, or is read, otherwise."""
Edited = tuple[list[Node], tuple[Output, ...]]
Body = Callable[[Program, Edit], Edited]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of edit: what it does, which fields it reads, how it is told."""

    name: str
    says: str
    fields: tuple[str, ...]
    shown: Callable[[Edit], str]
    body: Body


KINDS: dict[str, Kind] = {}


def kind(name: str, fields: str, shown: Callable[[Edit], str]) -> Callable[[Body], Body]:
    """Declare a kind of edit; its docstring says what it does.

    Raises:
        ValueError: a kind of this name is declared already.
    """

    def declare(body: Body) -> Body:
        if name in KINDS:
            raise ValueError(f"edit {name} is declared twice")
        KINDS[name] = Kind(name, body.__doc__ or "", tuple(fields.split()), shown, body)
        return body

    return declare


def _call(edit: Edit) -> str:
    shown = ", ".join(f"{k}={v}" for k, v in edit.attrs)
    read = " of " + ", ".join(f"%{v}" for v in edit.operands) if edit.operands else ""
    return f"{edit.op}{read} {{{shown}}}" if shown else f"{edit.op}{read}"


def _readers(edit: Edit) -> str:
    return " for " + ", ".join(edit.uses) if edit.uses else ""


def _at(program: Program, value: str) -> int:
    for index, node in enumerate(program.nodes):
        if value in node.outputs:
            return index
    raise IRError(f"{program.name}: no node defines %{value}")


def _redirect(
    program: Program,
    nodes: Sequence[Node],
    outputs: Sequence[Output],
    old: str,
    new: str,
    edit: Edit,
) -> Edited:
    """All readers of `old`, or those that the edit names, read `new`."""
    chosen = set(edit.uses)
    out: list[Node] = []
    for node in nodes:
        mine = old in node.inputs and new not in node.outputs
        if mine and (not chosen or node.outputs[0] in chosen):
            node = replace(node, inputs=tuple(new if v == old else v for v in node.inputs))
        out.append(node)
    ends = (
        replace(o, value=new) if o.value == old and (not chosen or output_key(o) in chosen) else o
        for o in outputs
    )
    return out, tuple(ends)


@kind(
    "after", "op attrs operands uses where", lambda e: f"{_call(e)} after %{e.value}{_readers(e)}"
)
def _after(program: Program, edit: Edit) -> Edited:
    """Insert an op after the value; later readers (all, or those named) read its result.

    `operands` are what the op reads, by default the value alone.
    """
    name = unused(f"{edit.value}_{edit.op}", program.types)
    operands = edit.operands or (edit.value,)
    nodes = list(program.nodes)
    made = {v: i for i, n in enumerate(nodes) for v in n.outputs}
    at = max(made.get(v, -1) for v in (*operands, edit.value)) + 1
    source = nodes[made[edit.value]].source if edit.value in made else NOWHERE
    added = Node(edit.op, operands, (name,), dict(edit.attrs), source, where=edit.where)
    later, outputs = _redirect(program, nodes, program.outputs, edit.value, name, edit)
    return [*later[:at], added, *later[at:]], outputs


@kind("drop", "index", lambda e: f"drop the {e.op} that makes %{e.value}")
def _drop(program: Program, edit: Edit) -> Edited:
    """Remove a node; what read its result reads operand `index`."""
    at = _at(program, edit.value)
    node = program.nodes[at]
    if len(node.outputs) != 1 or edit.index >= len(node.inputs):
        raise IRError(f"{program.name}: %{edit.value} cannot be dropped for an operand")
    rest = [*program.nodes[:at], *program.nodes[at + 1 :]]
    return _redirect(program, rest, program.outputs, edit.value, node.inputs[edit.index], edit)


def _changed(program: Program, value: str, change: Callable[[Node], Node]) -> Edited:
    at = _at(program, value)
    nodes = list(program.nodes)
    nodes[at] = change(nodes[at])
    return nodes, program.outputs


@kind(
    "replace",
    "op attrs operands",
    lambda e: f"{_call(e)} in place of the op that makes %{e.value}",
)
def _replace(program: Program, edit: Edit) -> Edited:
    """Another op (or other attributes, or other operands) makes the value."""

    def change(node: Node) -> Node:
        inputs = edit.operands or node.inputs
        if lookup(edit.op).kind == "create":
            inputs = edit.operands
        return replace(node, op=edit.op, attrs=dict(edit.attrs), inputs=inputs)

    return _changed(program, edit.value, change)


@kind(
    "set",
    "attrs",
    lambda e: f"{', '.join(f'{k}={v}' for k, v in e.attrs)} for the op that makes %{e.value}",
)
def _set(program: Program, edit: Edit) -> Edited:
    """Attributes of the node get other values; the rest stays."""
    return _changed(
        program, edit.value, lambda n: replace(n, attrs={**n.attrs, **dict(edit.attrs)})
    )


def _alike(program: Program, value: str) -> list[Node]:
    """The node that makes a value, and every other of the same op and attributes."""
    node = program.nodes[_at(program, value)]
    return [n for n in program.nodes if n.op == node.op and n.attrs == node.attrs]


@kind(
    "set_alike",
    "attrs",
    lambda e: (
        f"{', '.join(f'{k}={v}' for k, v in e.attrs)} for every op that is as the one that makes "
        f"%{e.value}"
    ),
)
def _set_alike(program: Program, edit: Edit) -> Edited:
    """As `set`, for every node of the same op and the same attributes as this one."""
    chosen = {n.outputs for n in _alike(program, edit.value)}
    changed = dict(edit.attrs)
    return [
        replace(n, attrs={**n.attrs, **changed}) if n.outputs in chosen else n
        for n in program.nodes
    ], program.outputs


@kind(
    "drop_alike", "index", lambda e: f"drop every {e.op} that is as the one that makes %{e.value}"
)
def _drop_alike(program: Program, edit: Edit) -> Edited:
    """As `drop`, for every node of the same op and the same attributes as this one."""
    nodes, outputs = list(program.nodes), program.outputs
    for node in _alike(program, edit.value):
        if len(node.outputs) != 1 or edit.index >= len(node.inputs):
            raise IRError(f"{program.name}: %{edit.value} cannot be dropped for an operand")
        now = next(n for n in nodes if n.outputs == node.outputs)
        rest = [n for n in nodes if n.outputs != node.outputs]
        old, new = node.outputs[0], now.inputs[edit.index]
        nodes, outputs = _redirect(program, rest, outputs, old, new, edit)
    return nodes, outputs


def of_line(program: Program, node: Node) -> list[Node]:
    """All nodes of one call of a source line, and of its backward."""
    at = node.source, node.source.calls
    same = [n for n in program.nodes if (n.source, n.source.calls) == at]
    return same if node.source.file else [node]


def node_of(program: Program, edit: Edit) -> Node | None:
    """The op that an edit is about."""
    scope = program
    for name in edit.scope:
        node = scope.producers().get(name)
        if node is None or node.body is None:
            return None
        scope = node.body
    value = edit.value
    if edit.kind == "output":
        value = next((o.value for o in scope.outputs if output_key(o) == value), value)
    return scope.producers().get(value)


def reached_by(program: Program, edit: Edit) -> list[Node]:
    """The op that an edit is about, and all that it changes alike."""
    node = node_of(program, edit)
    if node is None:
        return []
    if edit.kind == "skip":
        return of_line(program, node)
    if edit.kind == "after" and edit.uses:
        return [n for n in program.nodes if n.outputs[0] in edit.uses] or [node]
    return _alike(program, edit.value) if edit.kind.endswith("_alike") else [node]


@kind("skip", "index", lambda e: f"skip the line that makes %{e.value}")
def _skip(program: Program, edit: Edit) -> Edited:
    """Remove every node of one call of a source line.

    What reads a result reads one of the values that it is made of, of its type, the nearest first.
    """
    gone = of_line(program, program.nodes[_at(program, edit.value)])
    made = {v: n for n in gone for v in n.outputs}
    nodes, outputs = [n for n in program.nodes if n not in gone], program.outputs
    read = {v for n in nodes for v in n.inputs} | {o.value for o in outputs}
    for old in made.keys() & read:
        new = list(_made_of(program, made, old))[edit.index]
        nodes, outputs = _redirect(program, nodes, outputs, old, new, edit)
    return nodes, outputs


def _made_of(program: Program, made: Mapping[str, Node], value: str) -> Iterator[str]:
    """What comes into some nodes and leads to a result of theirs of the same type."""
    ahead, seen = [value], set[str]()
    for at in ahead:
        if at in made:
            ahead += [v for v in made[at].inputs if v not in seen]
            seen.update(made[at].inputs)
        elif program.types[at] == program.types[value]:
            yield at


@kind(
    "rewire",
    "index operands",
    lambda e: f"%{e.operands[0]} as operand {e.index} of the op that makes %{e.value}",
)
def _rewire(program: Program, edit: Edit) -> Edited:
    """Operand `index` of the node is another value; one past the end adds an operand."""

    def change(node: Node) -> Node:
        inputs = [*node.inputs]
        inputs[edit.index : edit.index + 1] = edit.operands
        return replace(node, inputs=tuple(inputs))

    return _changed(program, edit.value, change)


@kind("swap", "operands", lambda e: f"operands exchanged for the op that makes %{e.value}")
def _swap(program: Program, edit: Edit) -> Edited:
    """The node reads the same operands in the order given."""
    return _changed(program, edit.value, lambda n: replace(n, inputs=edit.operands))


@kind(
    "commute",
    "index",
    lambda e: (
        f"the {e.op or 'op'} that makes %{e.value} before the op it reads (operand {e.index})"
    ),
)
def _commute(program: Program, edit: Edit) -> Edited:
    """Exchange the order of an op and of the one before it, where one of the two is unary.

    `%m = f(a, b); %n = g(m)` becomes `%m' = g(a); %n = f(m', b)` for operand 0 of f; likewise
    `%m = g(a); %n = f(m, b)` becomes `%m' = f(a, b); %n = g(m')`.
    """
    at = _at(program, edit.value)
    node, name = program.nodes[at], unused(f"{edit.value}_early", program.types)
    made = program.producers()
    if len(node.inputs) == 1:
        before = made.get(node.inputs[0])
        slot = edit.index
        if before is None or slot >= len(before.inputs):
            raise IRError(f"{program.name}: nothing before %{edit.value} to exchange it with")
        first = replace(node, inputs=(before.inputs[slot],), outputs=(name,))
        mine = tuple(name if k == slot else v for k, v in enumerate(before.inputs))
        second = replace(before, inputs=mine, outputs=node.outputs)
    else:
        before = made.get(node.inputs[edit.index]) if edit.index < len(node.inputs) else None
        if before is None or len(before.inputs) != 1:
            raise IRError(f"{program.name}: operand {edit.index} of %{edit.value} is not unary")
        mine = tuple(before.inputs[0] if k == edit.index else v for k, v in enumerate(node.inputs))
        first = replace(node, inputs=mine, outputs=(name,))
        second = replace(before, inputs=(name,), outputs=node.outputs)
    if len(second.outputs) != 1 or second.body is not None or first.body is not None:
        raise IRError(f"{program.name}: %{edit.value} cannot be moved")
    return [*program.nodes[:at], first, second, *program.nodes[at + 1 :]], program.outputs


@kind(
    "on", "where", lambda e: f"on({show(e.where) or 'all ranks'}) for the op that makes %{e.value}"
)
def _on(program: Program, edit: Edit) -> Edited:
    """The node runs on other ranks."""
    return _changed(program, edit.value, lambda n: replace(n, where=edit.where))


@kind("output", "operands", lambda e: f"%{e.operands[0]} returned as {e.value}")
def _output(program: Program, edit: Edit) -> Edited:
    """An output (by its key) is another value; a value that another output has is exchanged."""
    (new,) = edit.operands
    old = next((o.value for o in program.outputs if output_key(o) == edit.value), None)
    if old is None:
        raise IRError(f"{program.name}: no output {edit.value}")
    outputs: list[Output] = []
    for out in program.outputs:
        if output_key(out) == edit.value:
            out = replace(out, value=new)
        elif out.value == new:
            out = replace(out, value=old)
        outputs.append(out)
    return list(program.nodes), tuple(outputs)


def apply(program: Program, edit: Edit) -> Program:
    """The program with one edit. Only what changes is typed anew.

    Raises:
        IRError: the edit does not fit (no such value, shapes that do not meet, a cycle).
    """
    if edit.kind not in KINDS:
        raise IRError(f"no edit is called {edit.kind}; the kinds are {', '.join(KINDS)}")
    try:
        if edit.scope:
            at = _at(program, edit.scope[0])
            body = program.nodes[at].body
            if body is None:
                raise IRError(f"{program.name}: %{edit.scope[0]} is not made by a block")
            inner = apply(body, replace(edit, scope=edit.scope[1:]))
            nodes = list(program.nodes)
            nodes[at] = replace(nodes[at], body=inner)
            return retyped(program, nodes, program.outputs)
        return retyped(program, *KINDS[edit.kind].body(program, edit))
    except (KeyError, IndexError, StopIteration) as error:
        raise IRError(f"{program.name}: {edit} does not fit: {error}") from None


def retyped(program: Program, nodes: Sequence[Node], outputs: Sequence[Output]) -> Program:
    """A program of other nodes and outputs; nodes that are kept keep their types.

    Raises:
        IRError: operands that do not fit, or a value that depends on itself.
    """
    kept = {id(n) for n in program.nodes}
    types = dict(program.types)
    changed: set[str] = set()
    defined = {i.name for i in program.inputs}
    for node in nodes:
        if not defined.issuperset(node.inputs):
            return retyped(program, ordered(program, nodes), outputs)
        defined.update(node.outputs)
        if id(node) in kept and (not changed or changed.isdisjoint(node.inputs)):
            continue
        found = infer_types(
            node.op, [types[v] for v in node.inputs], node.attrs, program.mesh, node.body
        )
        if len(found) != len(node.outputs) or any(n < 0 for t in found for n in t.shape):
            raise IRError(f"{program.name}: %{node.outputs[0]} = {node.op} has other results")
        for name, type in zip(node.outputs, found, strict=True):
            types[name] = type
            if program.types.get(name) != type:
                changed.add(name)
    if len(types) != len(defined):
        types = {name: type for name, type in types.items() if name in defined}
    for out in outputs:
        if out.value not in types:
            raise IRError(f"{program.name}: nothing defines the output %{out.value}")
    return Program(program.name, program.inputs, tuple(nodes), tuple(outputs), types, program.mesh)


def ordered(program: Program, nodes: Sequence[Node]) -> list[Node]:
    """The nodes so that each comes after what it reads, else in the order given.

    Raises:
        IRError: a value depends on itself, or on nothing.
    """
    ready = {i.name for i in program.inputs}
    out: list[Node] = []
    waiting = list(nodes)
    while waiting:
        later: list[Node] = []
        for node in waiting:
            if ready.issuperset(node.inputs):
                out.append(node)
                ready.update(node.outputs)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise IRError(f"{program.name}: %{later[0].outputs[0]} depends on itself")
        waiting = later
    return out


def without_dead(before: Program, after: Program) -> Program:
    """`after` without the nodes that nothing reads any more, though something did `before`."""
    idle = set(before.types) - _read(before)
    while True:
        used = _read(after)
        dead = [
            n
            for n in after.nodes
            if used.isdisjoint(n.outputs)
            and not idle.issuperset(n.outputs)
            and n.timing == IN_ORDER
        ]
        if not dead:
            return after
        gone = {id(n) for n in dead}
        after = retyped(after, [n for n in after.nodes if id(n) not in gone], after.outputs)


def _read(program: Program) -> set[str]:
    return {v for n in program.nodes for v in n.inputs} | {o.value for o in program.outputs}
