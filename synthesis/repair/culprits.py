"""The line of source that is at fault, of those that lead to the op where numbers go wrong.

What one device runs too is right, and so is the backward that autograd makes of a right forward:
the fault lies in what called it, in what surrounds it, or in what reduces gradients afterwards. An
op that one call of a function has wrong and another right is called wrongly. A group that all its
collectives have wrong is made wrongly.
"""

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from shardproof.synthesis.repair.edits import Edit
from shardproof.synthesis.repair.in_source import (
    Function,
    Module,
    SourceFile,
    base_name,
    call_name,
    group_attributes,
    is_group,
    regions,
)
from shardproof.synthesis.repair.leads import (
    REDUCES,
    RETURNED,
    Reached,
    afterwards,
    in_plans,
    methods,
    reached_from,
    sets,
    wrappers,
)
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.attrs import named_mesh_dims
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Source
from shardproof.verifier.kernel.program.where import contains
from shardproof.verifier.ops.classes import LOOKUPS

COUNTS, SETS = "counts the rows", "sets "
Line = tuple[str, int]
Change = tuple[Edit, Node]
"""An edit of the ranks' program, and the op that it is about."""


@dataclass(frozen=True)
class Seen:
    """Where a parallel module goes wrong."""

    place: Source
    """Of the verdict."""
    reason: str
    ends: bool
    """Whether the place makes an output that is a value of one device, though not the one asked
    for: something lacks after it."""
    pending: bool
    """Whether a sum over ranks lacks."""
    program: Program
    """What the ranks run."""
    changes: Sequence[Change] = ()
    """Edits after which it is proved."""
    strays: Sequence[Node] = ()
    """Where its numbers leave those of one device, in order."""
    spared: Collection[int] = ()
    """The ranks that have right what others have wrong."""

    @property
    def nodes(self) -> list[Node]:
        return [node for _, node in self.changes]

    @cached_property
    def returned(self) -> set[str]:
        return {o.value for o in self.program.outputs}


@dataclass(frozen=True)
class Culprit:
    """A line, and why it is to blame."""

    file: str
    line: int
    said: str


def culprit(module: Module, seen: Seen) -> Culprit | None:
    """The line to blame; None where nothing says more than the verdict does."""
    looked = _Looked(module, seen, reached_from(module))
    for rule in RULES:
        for said, file, line in rule(looked):
            return Culprit(file, line, said)
    return None


Told = Iterator[tuple[str, str, int]]


@dataclass(frozen=True)
class _Looked:
    module: Module
    seen: Seen
    reached: Reached

    def own(self, source: Source) -> list[Line]:
        """The lines of the module that lead to an op, innermost first; not what one device runs.
        A backward is led to by the call of its function, what follows a backward by nothing."""
        out: list[Line] = []
        for at in [(source.file, source.line), *source.calls]:
            if at[0] not in self.module.files or at in self.module.shared:
                continue
            if any(self.owner(at, "forward") == self.owner(b, "backward") for b in out):
                continue
            out += [at] if at not in out else []
            if self.named(at) & {self.module.finish, *self.hooks}:
                break
        return out

    def owner(self, at: Line, method: str) -> object:
        """The autograd function in whose forward or backward a line is."""
        file, function = self.function(at)
        if function is None or function.name != method:
            return at, method
        return file.owner(function)

    def behind(self, source: Source) -> bool:
        """Whether an op is of a backward, a hook or a function after it that the user wrote."""
        after = {"backward", self.module.finish, *self.hooks}
        return any(self.named(at) & after for at in self.own(source))

    def named(self, at: Line) -> set[str]:
        """The names of the functions that a line is in."""
        file, function = self.function(at)
        names = set[str]()
        while function is not None:
            names.add(function.name)
            function = file.function(function)
        return names

    @cached_property
    def hooks(self) -> set[str]:
        found = afterwards(self.module, self.reached)
        return {node.name for _, _, node in found if isinstance(node, Function)}

    def function(self, at: Line) -> tuple[SourceFile, Function | None]:
        """The innermost function that a line is in."""
        file = self.module.files[at[0]]
        inside = [
            n
            for n in ast.walk(file.tree)
            if isinstance(n, Function) and n.lineno <= at[1] <= (n.end_lineno or n.lineno)
        ]
        return file, max(inside, key=lambda n: n.lineno, default=None)

    def surfaced(self, node: Node) -> Line | None:
        """The innermost line of an op; where edits leave another op of it as it is, what calls that
        line, up to the one that tells them apart."""
        lines, wrong = self.own(node.source), {n.outputs[0] for n in self.seen.nodes}
        if not wrong or not lines or self._alike(node, lines[:1]) <= wrong:
            return lines[0] if lines else None
        apart = (at for d, at in enumerate(lines, 1) if self._alike(node, lines[:d]) <= wrong)
        inside = [d for d, at in enumerate(lines) if self.region(at)]
        return next(apart, lines[min(max(inside, default=0) + 1, len(lines) - 1)])

    def region(self, at: Line) -> bool:
        """Whether a line is in an autograd function."""
        file, function = self.function(at)
        owner = file.owner(function) if function is not None else None
        return owner is not None and owner.name in self.regions

    @cached_property
    def regions(self) -> set[str]:
        return set(regions(self.module.files))

    def _alike(self, node: Node, lines: Sequence[Line]) -> set[str]:
        """Ops of one kind that the same lines lead to."""
        return {
            n.outputs[0]
            for n in self.seen.program.nodes
            if n.op == node.op and self.own(n.source)[: len(lines)] == list(lines)
        }


def _group(looked: _Looked) -> Told:
    """A collective over another mesh dim: where its group comes from."""
    for edit, node in looked.seen.changes:
        if lookup(node.op).kind != "collective" or "mesh_dim" not in dict(edit.attrs):
            continue
        held = group_attributes(looked.module.files)
        for file, line in looked.own(node.source):
            named = {
                n.attr
                for n in _on(looked.module.files[file], line)
                if isinstance(n, ast.Attribute) and n.attr in held and base_name(n) == "self"
            }
            yield from _lines(methods(looked.module, looked.reached, Source(file, line)))
            if _chosen(looked, (file, line)):
                yield "the group is given here", file, line
            if named:
                yield from _made(looked, named)
                yield "the group is given here", file, line


def _chosen(looked: _Looked, at: Line) -> bool:
    """Whether a call on a line is given a group that comes from nothing that its function has."""
    file, function = looked.function(at)
    given = {"self", "ctx"}
    for node in ast.walk(function) if function is not None else ():
        given |= {node.arg} if isinstance(node, ast.arg) else set()
        given |= (
            {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()
        )
    for call in (n for n in _on(file, at[1]) if isinstance(n, ast.Call)):
        groups = [k.value for k in call.keywords if k.arg == "group"]
        for group in (*groups, *filter(is_group, call.args)):
            if not given & {n.id for n in ast.walk(group) if isinstance(n, ast.Name)}:
                return True
    return False


def _on(file: SourceFile, line: int) -> Iterator[ast.AST]:
    """What stands on a line."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.expr) and node.lineno <= line <= (node.end_lineno or line):
            yield node


def _made(looked: _Looked, attributes: Collection[str]) -> Told:
    """Where attributes of modules are set."""
    for file, node, own in _assigned(looked, attributes):
        yield f"{SETS}{' and '.join(sorted(own))}", file.path, node.lineno


def _assigned(
    looked: _Looked, attributes: Collection[str]
) -> Iterator[tuple[SourceFile, ast.Assign, set[str]]]:
    """What sets some of these attributes of modules, and which."""
    for file, made in looked.reached.values():
        for node in ast.walk(made):
            if not isinstance(node, ast.Assign):
                continue
            parts = [n for t in node.targets for n in ast.walk(t)]
            own = {n.attr for n in parts if isinstance(n, ast.Attribute)} & set(attributes)
            if isinstance(made, ast.ClassDef) and node in made.body:
                own |= {n.id for n in parts if isinstance(n, ast.Name)} & set(attributes)
            if own and base_name(node.targets[0]) != "ctx":
                yield file, node, own


def _numbers(looked: _Looked) -> Told:
    """Rows that a rank looks up in a table of which it has some: where they are counted."""
    seen, sources = looked.seen, list[Source]()
    forward = looked.module.only_gradients and not looked.behind(seen.place)
    window = any(f" {o}=" in seen.reason for o in OFFSETS) or "the index is" in seen.reason
    window = window or ("index window" in seen.reason and not forward)
    sources += [seen.place] if window else []
    sources += [n.source for e, n in seen.changes if OFFSETS & dict(e.attrs).keys()]
    for file, line in (at for source in sources for at in looked.own(source)[:1]):
        counted, read = _counted(looked, (file, line))
        sizes, held = _bounds(looked, counted)
        odd = held - {0, *sizes} if sizes else set[int]()
        literal = [at for at in sorted(counted) if odd & _literals(looked.module.files[file], at)]
        ends = held - {0} if len(held) > 2 else held
        bounded = not (sizes and held) or max(ends) - min(ends) in sizes
        if window and not literal and not (" index " in seen.reason and bounded):
            yield from _made(looked, read)
        for at in (literal or sorted(counted))[:1]:
            yield COUNTS, file, at


def _literals(file: SourceFile, line: int) -> set[object]:
    """The constants that are written on a line."""
    return {n.value for n in _on(file, line) if isinstance(n, ast.Constant)}


OFFSETS = {"offset", "q_offset", "k_offset"}


def _counted(looked: _Looked, at: Line) -> tuple[set[int], set[str]]:
    """Lines of a function that make the integers that a line reads, and the attributes of the
    module that they read."""
    file, function = looked.function(at)
    floats = {
        n.source.line
        for n in looked.seen.program.nodes
        if n.source.file == at[0] and looked.seen.program.types[n.outputs[0]].is_float
    }
    lines, read, names, wanted = set[int](), set[str](), set[str](), list(_on(file, at[1]))
    while wanted and function is not None:
        for node in ast.walk(wanted.pop()):
            if isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                made = [n for n in ast.walk(function) if sets(n, node.id)]
                lines |= {n.lineno for n in made if isinstance(n, ast.stmt)} - floats
                wanted += made
            elif isinstance(node, ast.Attribute) and base_name(node) == "self":
                read.add(node.attr)
    return lines, read - group_attributes(looked.module.files)


def _bounds(looked: _Looked, lines: Collection[int]) -> tuple[set[int], set[int]]:
    """How many rows a rank has of a table, and the numbers that lines compare with."""
    program, place = looked.seen.program, looked.seen.place
    first = program.mesh.coords()[0]
    sizes: set[int] = {
        program.types[n.inputs[0]].shape[lookup(n.op).with_defaults(n.attrs)["dim"]]
        for n in program.nodes
        if n.source == place and n.op in LOOKUPS
    }
    held = {
        int(_number(n.attrs["value"]) or 0)
        for n in program.nodes
        if n.op == "full" and (n.source.file, contains(n.where, first)) == (place.file, True)
        if n.source.line in lines
    }
    return sizes, held


def _constants(looked: _Looked) -> Told:
    """A number that the model has otherwise, in a line that it runs too: where it is set."""
    for edit, node in looked.seen.changes:
        if (node.source.file, node.source.line) not in looked.module.shared:
            continue
        ours = {_number(node.attrs.get(name)) for name, _ in edit.attrs} - {None}
        for file, made in looked.reached.values():
            for at in (n for n in ast.walk(made) if isinstance(n, ast.Assign)):
                held = _number(at.value.value) if isinstance(at.value, ast.Constant) else None
                if held is not None and ours & {held, 1 - held}:
                    yield f"{SETS}{ast.unparse(at.targets[0])}", file.path, at.lineno


def _number(value: object) -> Fraction | None:
    if isinstance(value, int | float | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    return None


def _levelled(looked: _Looked) -> Told:
    """A number by which ranks should differ, read where they go wrong: where it is set to one."""
    seen = looked.seen
    for at in [] if seen.changes else looked.own(seen.place)[:1]:
        for name in sorted(_counted(looked, at)[1]):
            found = [(file, n) for file, n, _ in _assigned(looked, {name})]
            if any("rank" in ast.unparse(n.value) for _, n in found):
                for file, node in found:
                    if isinstance(node.value, ast.Constant):
                        yield f"{SETS}{name} on all ranks alike", file.path, node.lineno


def _parted(looked: _Looked) -> Told:
    """Where ranks part, of which some go wrong with a line that others have right."""
    seen, mesh = looked.seen, looked.seen.program.mesh
    here = [n for n in seen.program.nodes if n.source == seen.place]
    coords = [mesh.coords()[r] for r in seen.spared]
    if seen.changes or not any(contains(n.where, at) for n in here for at in coords):
        return
    for file, line in looked.own(seen.place):
        inside, function = looked.function((file, line))
        for node in ast.walk(function) if function is not None else ():
            if not isinstance(node, ast.If) or inside.function(node) is not function:
                continue
            if node.lineno < line <= (node.end_lineno or 0) and "rank" in ast.unparse(node.test):
                yield "ranks part here", file, node.lineno


def _ahead(looked: _Looked) -> Told:
    """What computes outputs."""
    seen = looked.seen
    if looked.module.only_gradients:
        return
    yield from _silent(looked, "forward")
    if seen.ends and not seen.changes:
        for file, line in looked.own(seen.place)[-1:]:
            yield "something lacks behind this", file, line
    for node in (*seen.nodes, *seen.strays[:1]):
        at = looked.surfaced(node)
        if at is not None:
            yield "numbers go wrong here", *at
    for file, line in looked.own(seen.place)[:1]:
        yield "numbers go wrong here", file, line


def _silent(looked: _Looked, method: str) -> Told:
    """A function that is given a group and does nothing with it, where a sum lacks."""
    other = {"forward": "backward", "backward": "forward"}[method]
    for said, file, function in _idle(looked) if looked.seen.pending else ():
        if function.name != other:
            yield said, file.path, function.body[-1].lineno


def _called(looked: _Looked) -> Told:
    """The same, where it is called in the function that goes wrong."""
    for at in [] if looked.seen.changes else looked.own(looked.seen.place)[:1]:
        _, around = looked.function(at)
        called = {call_name(n) for n in ast.walk(around)} if around is not None else set[str]()
        for said, file, function in _idle(looked):
            if function.name in called:
                yield said, file.path, function.body[-1].lineno


def _idle(looked: _Looked) -> Iterator[tuple[str, SourceFile, Function]]:
    """Functions that do nothing with a group that they are given, or that their forward keeps."""
    for file, made in looked.reached.values():
        for function in (n for n in ast.walk(made) if isinstance(n, Function)):
            names = {a.arg for a in function.args.args if "group" in a.arg}
            unread = sorted(n for n in names if not _read(function, n))
            owner = file.owner(function)
            if function.name == "backward" and owner is not None:
                unread = [n for n in _kept(owner) if not _taken(function, n)]
            if unread and function.name != "__init__":
                yield f"does nothing with {unread[0]}", file, function


def _kept(owner: ast.ClassDef) -> list[str]:
    """Groups that a forward hands to its backward."""
    return [
        n.attr
        for n in ast.walk(owner)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and base_name(n) == "ctx"
        and "group" in n.attr
    ]


def _taken(backward: Function, name: str) -> bool:
    """Whether a backward reads what its forward kept, or hands all of it on."""
    bases = [n.value for n in ast.walk(backward) if isinstance(n, ast.Attribute)]
    whole = [n for n in ast.walk(backward) if isinstance(n, ast.Name) and n not in bases]
    read = (n.attr for n in ast.walk(backward) if isinstance(n, ast.Attribute))
    return name in read or any(n.id == "ctx" for n in whole)


def _read(node: ast.AST, name: str) -> bool:
    return any(
        name == (n.id if isinstance(n, ast.Name) else n.attr) and isinstance(n.ctx, ast.Load)
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute)
    )


def _back(looked: _Looked) -> Told:
    """What computes gradients, where outputs are right."""
    seen = looked.seen
    if not looked.module.only_gradients:
        return
    if looked.behind(seen.place) and not seen.changes:
        yield "gradients go wrong here", *looked.own(seen.place)[0]
    for node in (*seen.nodes, *seen.strays):
        at = looked.surfaced(node) if looked.behind(node.source) else None
        if at is not None:
            yield "gradients go wrong here", *at
    yield from _silent(looked, "backward")
    lacking = [n for e, n in seen.changes if e.kind == "after"]
    if not seen.changes and seen.pending:
        lacking = list(seen.strays[:1])
    for node in lacking:
        at = looked.surfaced(node)
        if node.outputs[0] not in seen.returned and at is not None:
            yield "the gradient of this is not summed", *at
    for node in seen.program.nodes:
        over = {d for k, v in node.attrs.items() for d in named_mesh_dims(k, v)}
        if over & looked.module.rows and looked.behind(node.source) and not lacking:
            yield REDUCES, *looked.own(node.source)[0]
    for _, file, node in afterwards(looked.module, looked.reached):
        yield REDUCES, file.path, _body(node) if isinstance(node, Function) else node.lineno


def _body(function: Function) -> int:
    """The first line of a function that is no text."""
    text = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[1 if text else 0].lineno


def _within(looked: _Looked) -> Told:
    """What the module has in the place of a method that a line of the model calls."""
    for node in (*looked.seen.nodes, *looked.seen.strays[:1]):
        yield from _lines(methods(looked.module, looked.reached, node.source))


def _around(looked: _Looked) -> Told:
    """What makes a module parallel from outside: the plan, or what wraps it."""
    plans = list(_lines(in_plans(looked.module, looked.reached, looked.seen.place)))
    around = list(_lines(wrappers(looked.module, looked.reached)))
    averages = [told for told in around if told[0] != RETURNED]
    yield from averages if looked.module.only_gradients else ()
    yield from (*plans, *around)


def _lines(found: Iterable[tuple[str, SourceFile, ast.expr | ast.stmt]]) -> Told:
    for said, file, node in found:
        yield said, file.path, node.lineno


RULES: tuple[Callable[[_Looked], Told], ...] = (
    *(_group, _numbers, _constants, _levelled, _parted, _called),
    *(_ahead, _back, _within, _around),
)
