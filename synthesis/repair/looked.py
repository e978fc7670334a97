"""A parallel module that goes wrong, in its source: what leads to an op, and what is made where."""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardproof.synthesis.frontends.torch.ranks.pairing import STATE
from shardproof.synthesis.repair.agreement import differing, needless, spared
from shardproof.synthesis.repair.edits import CHANGES, Edit, reached_by
from shardproof.synthesis.repair.fault import Fault
from shardproof.synthesis.repair.in_source import (
    Function,
    Module,
    SourceFile,
    base_name,
    call_name,
    regions,
)
from shardproof.synthesis.repair.localize import REASON, SHARE, begins
from shardproof.synthesis.repair.view import strays
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program, leading_to
from shardproof.verifier.kernel.program.types import Mesh, Source
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Location

Line = tuple[str, int]
Change = tuple[Edit, Node]
"""An edit of the ranks' program, and the op that it is about."""
HOOKS = {"register_post_accumulate_grad_hook", "register_hook"}
NOTHING = Program("", (), (), (), {}, Mesh())
Definition = ast.ClassDef | Function | ast.Assign
Reached = Mapping[str, tuple[SourceFile, Definition]]


@dataclass(frozen=True)
class Rate:
    """A number that an optimizer has for a parameter, and the model's has not."""

    kind: str
    """Such as `lr`."""
    elsewhere: bool
    """Whether the model's has it for another parameter."""
    later: bool
    """Whether both begin with the same."""


@dataclass(frozen=True)
class Looked:
    """Where a parallel module goes wrong."""

    module: Module
    place: Source
    """Of the verdict."""
    reason: str = ""
    ends: bool = False
    """Whether the place makes an output that is a value of one device, though not the one asked
    for: something lacks after it."""
    pending: bool = False
    """Whether a sum over ranks lacks."""
    program: Program = NOTHING
    """What the ranks run."""
    changes: Sequence[Change] = ()
    """Edits after which it is proved."""
    strays: Sequence[Node] = ()
    """Where its numbers leave those of one device, in order."""
    spared: Collection[int] = ()
    """The ranks that have right what others have wrong."""
    traced: Program = NOTHING
    """What one of the ranks runs, with the ops that no output depends on."""
    wrong: Collection[str] = ()
    """The keys of outputs that are wrong."""
    value: str = ""
    """What the op of the place makes."""
    begins: Node | None = None
    """Where the shares begin of which the sum over ranks lacks."""
    rates: Sequence[Rate] = ()
    """Numbers of optimizers that are not the model's."""

    @staticmethod
    def of(
        module: Module,
        problem: Problem,
        place: Location,
        edits: Sequence[Edit],
        traced: Program = NOTHING,
        wrong: Collection[str] = (),
        rates: Sequence[Rate] = (),
    ) -> "Looked":
        """What is known of a module of which programs were made that differ, with edits after which
        these are proved; where there are none, with a line of source that is needless."""
        many, run = problem.distributed, differing(problem)
        dims = module.mesh if module.step else ()
        told, changes = list(edits), _changes(many, edits)
        owned = any(Looked(module, place.source).written(e, n) for e, n in changes)
        if run is not None and not owned:
            line = needless(problem, run, dims)
            told, owned = (told, False) if line is None else ([line], True)
            changes = _changes(many, told)
        known = (changes and owned) or place.reason in (REASON, SHARE)
        added = any(e.kind == "after" and e.op == "all_reduce" for e in told)
        return Looked(
            module,
            place.source,
            place.reason,
            " must be " in place.reason,
            added if changes else place.mesh_dim is not None,
            many,
            changes,
            () if known else _strays(module, problem, wrong),
            spared(problem, run) if run is not None else (),
            traced,
            wrong,
            place.text.partition(" = ")[0].lstrip("%"),
            begins(problem, run, place) if run is not None and module.step else None,
            rates,
        )

    def fault(self, why: str, file: str | SourceFile, at: int | ast.AST) -> Fault:
        """A line of the module that is to blame."""
        file = file if isinstance(file, SourceFile) else self.module.files[file]
        line: int = at if isinstance(at, int) else getattr(at, "lineno", 0)
        return Fault(
            None, Source(file.path, line, text=file.text.splitlines()[line - 1].strip()), why
        )

    @property
    def nodes(self) -> list[Node]:
        return [node for _, node in self.changes]

    @cached_property
    def reached(self) -> Reached:
        """The classes, functions and values that the target names, and those that they do."""
        module = self.module
        return reached(module.files, (module.target, module.finish, module.step))

    def walk(self) -> Iterator[tuple[SourceFile, Definition, ast.AST]]:
        """All that stands in what is reached: its file, the definition, and the node."""
        for file, made in self.reached.values():
            yield from ((file, made, node) for node in ast.walk(made))

    def own(self, source: Source) -> list[Line]:
        """The lines of the module that lead to an op, innermost first; not what one device runs.
        A backward is led to by the call of its function, what follows a backward by nothing."""
        if source not in self._led:
            self._led[source] = self._lines(source)
        return self._led[source]

    @cached_property
    def _led(self) -> dict[Source, list[Line]]:
        return {}

    def _lines(self, source: Source) -> list[Line]:
        out: list[Line] = []
        for at in [(source.file, source.line), *source.calls]:
            if at[0] not in self.module.files or at in self.module.shared:
                continue
            if any(self._owner(at, "forward") == self._owner(b, "backward") for b in out):
                continue
            out += [at] if at not in out else []
            if self._named(at) & {self.module.finish, *self.hooks}:
                break
        first = [] if self.by_rows else out[:1]
        called = [at for at in first if "backward" in map(call_name, self.on(at))]
        for at in out[1:] if called else ():
            if not self._named(called[-1]) & set(map(call_name, self.on(at))):
                break
            called.append(at)
        return out[len(called) :] + called

    def _owner(self, at: Line, method: str) -> object:
        """The autograd function in whose forward or backward a line is."""
        file, function = self.function(at)
        if function is None or function.name != method:
            return at, method
        return file.owner(function)

    def behind(self, source: Source) -> bool:
        """Whether an op is of a backward, a hook or a function after it that the user wrote."""
        return self.afterward(source) or any(
            "backward" in self._named(at) for at in self.own(source)
        )

    def written(self, edit: Edit, node: Node) -> bool:
        """Whether an edit is of an op that the user can change: where outputs are right, not of the
        backward that autograd makes, but for its collectives."""
        there = edit.kind == "after" or lookup(node.op).kind == "collective"
        return there or not self.module.only_gradients or self.behind(node.source)

    def afterward(self, source: Source) -> bool:
        """Whether an op is of a hook of gradients, or of a function that is called after the
        backward."""
        after = {self.module.finish, *self.hooks}
        return any(self._named(at) & after for at in self.own(source))

    def _named(self, at: Line) -> set[str]:
        """The names of the functions that a line is in."""
        file, function = self.function(at)
        names = set[str]()
        while function is not None:
            names.add(function.name)
            function = file.function(function)
        return names

    @cached_property
    def hooks(self) -> set[str]:
        return {node.name for _, _, node in self.afterwards() if isinstance(node, Function)}

    @cached_property
    def by_rows(self) -> bool:
        """Whether ranks differ by their rows alone: what a step has of the model's is right."""
        split = {d for d, size in self.module.mesh.items() if size > 1}
        return bool(self.module.step) and split <= self.module.rows

    def sound(self, at: Line) -> bool:
        """Whether what a line does is right where ranks differ by their rows alone: the model has
        the line too, or what the step trains is right and made of it."""
        if not self.by_rows:
            return False
        file = self.module.files.get(at[0])
        return file is None or self.of_model(file, at[1]) or at in self._spared

    def of_model(self, file: SourceFile, line: int) -> bool:
        """Whether the innermost statement of a line is one of the model's too."""
        return file.said.get(line, "") in self._model

    @cached_property
    def _spared(self) -> set[Line]:
        """The lines that lead to what the step trains, where none of it is wrong."""
        ends = [o for o in self.program.outputs if o.path.startswith(STATE)]
        if not ends or any(output_key(o) in self.wrong for o in ends):
            return set()
        made = leading_to([o.value for o in ends], self.program.nodes)
        return {at for n in made for at in self.own(n.source)[:1]}

    def rather(self, other: Source) -> bool:
        """Whether another place is sound, and this is not."""
        lines = [(at.file, at.line) for at in (self.place, other)]
        return not self.sound(lines[0]) and self.sound(lines[1])

    @cached_property
    def _model(self) -> set[str]:
        files = self.module.model_files.values()
        return {text for file in files for text in file.said.values()}

    def function(self, at: Line) -> tuple[SourceFile, Function | None]:
        """The innermost function that a line is in."""
        file = self.module.files[at[0]]
        held = file.functions
        inside = [n for n in held if n.lineno <= at[1] <= (n.end_lineno or n.lineno)]
        return file, max(inside, key=lambda n: n.lineno, default=None)

    def surfaced(self, node: Node) -> Line | None:
        """The innermost line of an op; where edits leave another op of it as it is, what calls that
        line, up to the one that tells them apart."""
        lines, wrong = self.own(node.source), {n.outputs[0] for n in self.nodes}
        if not wrong or not lines or self._alike(node, lines[:1]) <= wrong:
            return lines[0] if lines else None
        apart = (at for d, at in enumerate(lines, 1) if self._alike(node, lines[:d]) <= wrong)
        inside = [d for d, at in enumerate(lines) if self._in_region(at)]
        return next(apart, lines[min(max(inside, default=0) + 1, len(lines) - 1)])

    def _in_region(self, at: Line) -> bool:
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
            for n in self.program.nodes
            if n.op == node.op and self.own(n.source)[: len(lines)] == list(lines)
        }

    def on(self, at: Line) -> Iterator[ast.expr]:
        """The expressions that stand on a line."""
        yield from self.module.files[at[0]].expressions.get(at[1], ())

    def here(self) -> tuple[SourceFile | None, list[ast.expr | ast.stmt]]:
        """The file of the place, and what begins on its line."""
        file = self.module.files.get(self.place.file)
        nodes = ast.walk(file.tree) if file is not None else ()
        found = (n for n in nodes if isinstance(n, ast.expr | ast.stmt))
        return file, [n for n in found if n.lineno == self.place.line]

    def assigned(
        self, attributes: Collection[str]
    ) -> Iterator[tuple[SourceFile, Definition, ast.Assign, str]]:
        """What sets some of these attributes of modules, in which definition, and which."""
        for file, made, node in self.walk():
            if not isinstance(node, ast.Assign):
                continue
            parts = [n for t in node.targets for n in ast.walk(t)]
            own = {n.attr for n in parts if isinstance(n, ast.Attribute)} & set(attributes)
            if isinstance(made, ast.ClassDef) and node in made.body:
                own |= {n.id for n in parts if isinstance(n, ast.Name)} & set(attributes)
            if own and base_name(node.targets[0]) != "ctx":
                yield file, made, node, " and ".join(sorted(own))

    def methods(self, place: Source) -> Iterator[Fault]:
        """Methods of the module that a line calls."""
        _, here = Looked(self.module, place).here()
        called = {
            n.func.attr
            for n in here
            if isinstance(n, ast.Call)
            and isinstance(n.func, ast.Attribute)
            and ast.unparse(n.func.value) in ("self", "super()")
        }
        for name, (file, made) in self.reached.items():
            for node in made.body if isinstance(made, ast.ClassDef) else ():
                if isinstance(node, Function) and node.name in called:
                    yield self.fault(f"{name}.{node.name}", file, node.body[-1])

    def afterwards(self) -> Iterator[tuple[str, SourceFile, ast.stmt | ast.expr]]:
        """What changes gradients after they were computed."""
        if self.module.finish in self.reached:
            file, node = self.reached[self.module.finish]
            yield "is called after the backward", file, node
        for file, made, node in self.walk():
            if isinstance(node, ast.Call) and call_name(node) in HOOKS:
                names = {ast.unparse(a) for a in node.args}
                hooks = [n for n in ast.walk(made) if isinstance(n, Function) and n.name in names]
                yield from (("is a hook of gradients", file, hook) for hook in hooks)
                if not hooks:
                    yield "registers a hook of gradients", file, node


def reached(files: Mapping[str, SourceFile], names: Iterable[str]) -> Reached:
    """The classes, functions and values of some files that names stand for, and those that these
    name."""
    made: dict[str, tuple[SourceFile, Definition]] = {}
    for file in reversed(list(files.values())):
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef | Function):
                made[node.name] = file, node
            elif isinstance(node, ast.Assign):
                made |= {t.id: (file, node) for t in node.targets if isinstance(t, ast.Name)}
    out: dict[str, tuple[SourceFile, Definition]] = {}
    ahead = list(names)
    while ahead:
        name = ahead.pop(0)
        if name in made and name not in out:
            out[name] = made[name]
            for node in ast.walk(made[name][1]):
                if isinstance(node, ast.Name | ast.Attribute):
                    ahead.append(node.id if isinstance(node, ast.Name) else node.attr)
    return out


def _strays(module: Module, problem: Problem, wrong: Collection[str]) -> list[Node]:
    """Where numbers leave those of one device; in a step not what leads to right outputs."""
    many, found = problem.distributed, strays(problem)
    right = [o.value for o in many.outputs if wrong and output_key(o) not in wrong]
    sound = {n.outputs for n in leading_to(right if module.step else (), many.nodes)}
    return [n for n in found if n.outputs not in sound]


def _changes(program: Program, edits: Sequence[Edit]) -> list[Change]:
    """Edits with the ops that they are about; none where one of them reads otherwise."""
    changes = [(e, n) for e in edits for n in reached_by(program, e)]
    alike = all(e.kind in (*CHANGES, "after") or _same_op(e, n) for e, n in changes)
    return changes if alike else []


def _same_op(edit: Edit, node: Node) -> bool:
    """Whether an op is replaced by itself, with other attributes."""
    same = edit.kind == "replace" and edit.op == node.op
    return same and edit.operands in ((), node.inputs)


def followed(
    function: Function | None, wanted: Iterable[ast.AST]
) -> tuple[list[ast.stmt], set[str]]:
    """The statements of a function that make the local values that some nodes are made of, and the
    attributes of the module that are read on the way."""
    made, read, names, ahead = list[ast.stmt](), set[str](), set[str](), list(wanted)
    while ahead and function is not None:
        for node in ast.walk(ahead.pop()):
            if isinstance(node, ast.Attribute) and base_name(node) == "self":
                read.add(node.attr)
            elif isinstance(node, ast.Name) and node.id not in names:
                names.add(node.id)
                found = [
                    n for n in ast.walk(function) if isinstance(n, ast.Assign) and sets(n, node.id)
                ]
                made += found
                ahead += found
    return made, read


def sets(node: ast.AST, name: str) -> bool:
    """Whether a statement gives a local name another value."""
    targets = node.targets if isinstance(node, ast.Assign) else ()
    return any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t))
