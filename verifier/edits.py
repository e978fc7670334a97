"""The vocabulary of edits of a program of the ranks: each a name, what it needs, what it does.

An edit names a value and touches the op that makes it. It changes no input, no output name, and
nothing but the program it is given. Nothing here is trusted: whether an edited program is right is
for `verify` to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from verifier.ir.attrs import KINDS
from verifier.ir.builder import Builder
from verifier.ir.errors import IRError
from verifier.ir.program import Node, Output, Program
from verifier.ir.types import Affine, Attr

FIELDS = ("op", "attrs", "other", "position")
"""What an edit may need beside its value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One edit, as data."""

    edit: str
    """A name of `EDITS`."""
    value: str
    """The value whose op is touched; `scan/value` inside the body of a repeated block."""
    op: str = ""
    attrs: tuple[tuple[str, Attr], ...] = ()
    other: str = ""
    """Another value of the same scope."""
    position: int = 0
    """Index of an operand."""

    def __str__(self) -> str:
        shown = ", ".join(f"{k}={v}" for k, v in self.attrs)
        parts = [self.edit, f"%{self.value}"]
        parts += [self.op] if self.op else []
        parts += [f"{{{shown}}}"] if shown else []
        parts += [f"%{self.other}"] if self.other else []
        if self.edit in EDITS and "position" in EDITS[self.edit].takes:
            parts.append(f"operand {self.position}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Scope:
    """The nodes around the value that an edit names."""

    program: Program
    index: int
    change: Change
    name: str
    """The value, without the path to its scope."""

    @property
    def node(self) -> Node:
        return self.program.nodes[self.index]

    def fail(self, why: str) -> IRError:
        return IRError(f"{self.change}: {why}")

    def fresh(self) -> str:
        count = 0
        while (name := f"edit.{count}") in self.program.types:
            count += 1
        return name


Rewritten = tuple[list[Node], dict[str, str]]
"""New nodes, and which value every later use (and output) of a value reads instead."""
Rule = Callable[[Scope], Rewritten]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of edit."""

    name: str
    takes: tuple[str, ...]
    """Of `FIELDS`; the others must be left empty."""
    doc: str
    rule: Rule
    attr: tuple[str, ...] = ()
    """The attributes it may set, where not any."""
    on_input: bool = False
    """Whether the value may be an input of the program."""


EDITS: dict[str, Kind] = {}


def _edit(
    *takes: str, attr: tuple[str, ...] = (), on_input: bool = False
) -> Callable[[Rule], Rule]:
    def declare(rule: Rule) -> Rule:
        name = rule.__name__
        if name in EDITS:
            raise IRError(f"edit {name} is registered twice")
        doc = " ".join((rule.__doc__ or "").split())
        EDITS[name] = Kind(name, takes, doc, rule, attr, on_input)
        return rule

    return declare


def apply_change(program: Program, change: Change) -> Program:
    """The edited program, types inferred anew.

    Raises:
        IRError: an unknown edit or value, a field too many or too few, a program that is not well
            formed afterwards. The message names the edit.
    """
    if change.edit not in EDITS:
        raise IRError(f"unknown edit {change.edit!r}; expected one of {', '.join(EDITS)}")
    _check_fields(EDITS[change.edit], change)
    try:
        return _within(program, change, change.value)
    except IRError as error:
        known = str(error).startswith(str(change))
        raise (error if known else IRError(f"{change}: {error}")) from None


def _check_fields(kind: Kind, change: Change) -> None:
    given = {"op": change.op, "attrs": change.attrs, "other": change.other}
    for field, value in given.items():
        if value and field not in kind.takes:
            raise IRError(f"{change}: {kind.name} takes no {field}")
        if not value and field in kind.takes and field != "attrs":
            raise IRError(f"{change}: {kind.name} needs {field}")
    if kind.attr and (len(change.attrs) != 1 or change.attrs[0][0] not in kind.attr):
        raise IRError(f"{change}: {kind.name} sets one attribute of {', '.join(kind.attr)}")
    for name, value in change.attrs:
        if name not in KINDS:
            raise IRError(f"{change}: no op has an attribute {name!r}")
        if not KINDS[name].holds(value):
            raise IRError(f"{change}: {name} is {KINDS[name].says}, got {_shown(value)}")


def _shown(value: Attr) -> str:
    return str(value) if isinstance(value, Affine) else repr(value)


def _within(program: Program, change: Change, value: str) -> Program:
    kind = EDITS[change.edit]
    if kind.on_input and any(i.name == value for i in program.inputs):
        return _rebuilt(program, kind.rule(Scope(program, -1, change, value)))
    for index, node in enumerate(program.nodes):
        if value in node.outputs:
            return _rebuilt(program, kind.rule(Scope(program, index, change, value)))
        if node.body is not None:
            for out in node.outputs:
                if value.startswith(f"{out}/"):
                    body = _within(node.body, change, value.removeprefix(f"{out}/"))
                    nodes = list(program.nodes)
                    nodes[index] = replace(node, body=body)
                    return _rebuilt(program, (nodes, {}))
    if any(i.name == value for i in program.inputs):
        raise IRError(f"{change}: %{value} is an input; no op makes it")
    raise IRError(f"{change}: the program has no value %{value}")


def _rebuilt(program: Program, rewritten: Rewritten) -> Program:
    nodes, rename = rewritten
    b = Builder(program.name, program.mesh)
    for item in program.inputs:
        b.input(item.name, item.type, item.role, item.path, item.where)
    for n in nodes:
        b.add_node(
            n.op,
            n.inputs,
            n.attrs,
            outputs=n.outputs,
            source=n.source,
            body=n.body,
            where=n.where,
            timing=n.timing,
        )
    for out in program.outputs:
        b.output(*_output(out, rename))
    return b.build()


def _output(out: Output, rename: dict[str, str]) -> tuple[str, str, str]:
    return rename.get(out.value, out.value), out.role, out.path


def _reading(nodes: Sequence[Node], old: str, new: str) -> list[Node]:
    return [replace(n, inputs=tuple(new if v == old else v for v in n.inputs)) for n in nodes]


def _inserted(scope: Scope, value: str, at: int, op: str, attrs: dict[str, Attr]) -> Rewritten:
    """A new node `op(value)` at index `at`; what comes later reads its result."""
    nodes = list(scope.program.nodes)
    name = scope.fresh()
    near = nodes[at - 1] if at else None
    node = Node(op, (value,), (name,), attrs)
    if near is not None:
        node = replace(node, source=near.source, where=near.where)
    return [*nodes[:at], node, *_reading(nodes[at:], value, name)], {value: name}


@_edit("op", "attrs", on_input=True)
def insert(scope: Scope) -> Rewritten:
    """Apply the one-operand op `op` with `attrs` to the value; all later uses read the result."""
    attrs = dict(scope.change.attrs)
    return _inserted(scope, scope.name, scope.index + 1, scope.change.op, attrs)


@_edit("attrs", attr=("value",), on_input=True)
def rescale(scope: Scope) -> Rewritten:
    """Multiply the value by the number given as the attribute `value`, such as 1/2."""
    attrs = dict(scope.change.attrs)
    return _inserted(scope, scope.name, scope.index + 1, "mul_scalar", attrs)


@_edit()
def drop(scope: Scope) -> Rewritten:
    """Take the op away that makes the value; later uses read its first operand."""
    node = scope.node
    if len(node.outputs) != 1 or not node.inputs:
        raise scope.fail(f"{node.op} has {len(node.inputs)} operands, {len(node.outputs)} results")
    nodes = list(scope.program.nodes)
    after = _reading(nodes[scope.index + 1 :], scope.name, node.inputs[0])
    return [*nodes[: scope.index], *after], {scope.name: node.inputs[0]}


def _set(scope: Scope) -> Rewritten:
    from verifier.ops import lookup

    node = scope.node
    known = lookup(node.op).attrs
    for name, _ in scope.change.attrs:
        if name not in known:
            had = ", ".join(known) or "none"
            raise scope.fail(f"{node.op} has no attribute {name!r}; it has {had}")
    nodes = list(scope.program.nodes)
    nodes[scope.index] = replace(node, attrs={**node.attrs, **dict(scope.change.attrs)})
    return nodes, {}


@_edit("attrs", attr=("reduce",))
def change_reduce(scope: Scope) -> Rewritten:
    """Set the attribute `reduce` of the op that makes the value: sum, avg, max or min."""
    return _set(scope)


@_edit("attrs", attr=("mesh_dim",))
def change_mesh_dim(scope: Scope) -> Rewritten:
    """Set the attribute `mesh_dim` of the op that makes the value."""
    return _set(scope)


@_edit("attrs", attr=("dim", "dims", "split_dim", "concat_dim"))
def change_dim(scope: Scope) -> Rewritten:
    """Set one of `dim`, `dims`, `split_dim`, `concat_dim` of the op that makes the value."""
    return _set(scope)


@_edit("attrs")
def change_attr(scope: Scope) -> Rewritten:
    """Set other attributes of the op that makes the value, such as an offset."""
    if not scope.change.attrs:
        raise scope.fail("change_attr needs attrs")
    return _set(scope)


@_edit("op", "attrs")
def replace_op(scope: Scope) -> Rewritten:
    """Make the value by another op with the same operands and with exactly `attrs`."""
    nodes = list(scope.program.nodes)
    if scope.node.body is not None:
        raise scope.fail("a repeated block is not replaced as a whole")
    nodes[scope.index] = replace(scope.node, op=scope.change.op, attrs=dict(scope.change.attrs))
    return nodes, {}


@_edit("other")
def move(scope: Scope) -> Rewritten:
    """Take the one-operand op away that makes the value, and apply it to `other` instead."""
    node, other = scope.node, scope.change.other
    if len(node.inputs) != 1 or len(node.outputs) != 1 or node.body is not None:
        raise scope.fail(f"only an op of one operand and one result moves, not {node.op}")
    nodes, rename = drop(scope)
    at = _after(scope, nodes, other)
    if other == scope.name:
        raise scope.fail("a value cannot be moved after itself")
    name = scope.fresh()
    again = replace(node, inputs=(other,), outputs=(name,))
    target = {k: name if v == other else v for k, v in rename.items()}
    return [*nodes[:at], again, *_reading(nodes[at:], other, name)], {other: name, **target}


@_edit("other")
def reorder(scope: Scope) -> Rewritten:
    """Run the op that makes the value right after the op that makes `other`."""
    nodes = list(scope.program.nodes)
    node = nodes.pop(scope.index)
    at = _after(scope, nodes, scope.change.other)
    return [*nodes[:at], node, *nodes[at:]], {}


def _after(scope: Scope, nodes: Sequence[Node], value: str) -> int:
    if any(i.name == value for i in scope.program.inputs):
        return 0
    for index, node in enumerate(nodes):
        if value in node.outputs:
            return index + 1
    raise scope.fail(f"the scope of %{scope.name} has no value %{value}")


@_edit("position")
def swap_operands(scope: Scope) -> Rewritten:
    """Swap operand `position` of the op that makes the value with the operand after it."""
    operands = list(scope.node.inputs)
    at = scope.change.position
    if not 0 <= at < len(operands) - 1:
        raise scope.fail(f"{scope.node.op} has {len(operands)} operands")
    operands[at], operands[at + 1] = operands[at + 1], operands[at]
    return _with_operands(scope, operands), {}


@_edit("other", "position")
def rewire(scope: Scope) -> Rewritten:
    """Let operand `position` of the op that makes the value read `other`."""
    operands = list(scope.node.inputs)
    if not 0 <= scope.change.position < len(operands):
        raise scope.fail(f"{scope.node.op} has {len(operands)} operands")
    operands[scope.change.position] = scope.change.other
    return _with_operands(scope, operands), {}


def _with_operands(scope: Scope, operands: Sequence[str]) -> list[Node]:
    nodes = list(scope.program.nodes)
    nodes[scope.index] = replace(scope.node, inputs=tuple(operands))
    return nodes
