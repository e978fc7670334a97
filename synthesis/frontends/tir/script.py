"""Reads TIR and TileLang scripts: statements and functions, through Python's syntax tree."""

import ast
from collections.abc import Mapping, Sequence

from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.expressions import DTYPES, Value, dotted
from shardproof.synthesis.frontends.tir.statements import Statements
from shardproof.synthesis.frontends.tir.tree import Place, TIRBuffer, TIRFunc

BUFFERS = ("Buffer", "Tensor", "match_buffer")


def parse(
    text: str,
    file: str = "<tir>",
    *,
    func: str | None = None,
    extents: Mapping[str, Value] | None = None,
) -> TIRFunc:
    """The one `@T.prim_func` of a script (or the one named `func`), extents filled in.

    Args:
        extents: values of symbolic extents, module constants and factory parameters by name.

    Raises:
        TirError: located; a script that is not understood.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, col = getattr(error, "lineno", None), getattr(error, "offset", None)
        what = getattr(error, "msg", None) or "the script is nested too deeply to read"
        fail(Place(line or 0, col or 0, file), f"not Python syntax: {what}")
    reader = Script(file, extents or {}, tuple(text.splitlines()))
    try:
        return reader.module(module, func)
    except RecursionError:
        fail(Place(file=file), "the script is nested too deeply to read")


class Script(Statements):
    """One script."""

    def __init__(self, file: str, extents: Mapping[str, Value], lines: tuple[str, ...]) -> None:
        super().__init__(file, extents)
        self.lines = lines

    # the module

    def module(self, module: ast.Module, func: str | None) -> TIRFunc:
        found: list[tuple[ast.FunctionDef, tuple[ast.FunctionDef, ...]]] = []
        self._search(module.body, (), found)
        names = [f.name for f, _ in found]
        chosen = [f for f in found if func is None or f[0].name == func]
        if len(chosen) != 1:
            fail(
                Place(file=self.file),
                f"no function {func}" if func else "which function is meant?",
                expected="one @T.prim_func" if func is None else f"one of {', '.join(names)}",
                got=", ".join(names) or "none",
                hint="" if func or not names else "name one with func=",
            )
        self.constants |= self.extents
        self._constants(module.body)
        node, outer = chosen[0]
        for factory in outer:
            self._factory(factory)
        result = self.function(node)
        unused = sorted(set(self.extents) - self._mentioned(module))
        if unused:
            fail(
                Place(file=self.file), f"the script has no extent {unused[0]}", hint="check extents"
            )
        return result

    def _mentioned(self, module: ast.Module) -> set[str]:
        names = {n.id for n in ast.walk(module) if isinstance(n, ast.Name)}
        return names | {a.arg for a in ast.walk(module) if isinstance(a, ast.arg)}

    def _search(
        self,
        body: Sequence[ast.stmt],
        outer: tuple[ast.FunctionDef, ...],
        found: list[tuple[ast.FunctionDef, tuple[ast.FunctionDef, ...]]],
    ) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                marks = {dotted(d).split(".")[-1] for d in node.decorator_list}
                calls = [d.func for d in node.decorator_list if isinstance(d, ast.Call)]
                marks |= {dotted(c).split(".")[-1] for c in calls}
                if "prim_func" in marks:
                    found.append((node, outer))
                else:
                    self._search(node.body, (*outer, node), found)
            elif isinstance(node, ast.ClassDef):
                self._search(node.body, outer, found)

    def _constants(self, body: Sequence[ast.stmt]) -> None:
        """Module or factory constants, `M = 128`, in order. Extents that were given win.

        A name that is assigned anything else, or under a condition, stands for nothing.
        """
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                value = self.constant(node.value)
                if isinstance(target, ast.Name):
                    self._define(target.id, value)
                    continue
                if isinstance(target, ast.Tuple) and isinstance(value, tuple):
                    for name, item in zip(target.elts, value, strict=False):
                        if isinstance(name, ast.Name):
                            self._define(name.id, item)
                    continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    self._define(inner.id, None)

    def _define(self, name: str, value: Value | None) -> None:
        if name in self.extents:
            return
        self.constants.pop(name, None)
        if value is not None:
            self.constants[name] = value

    def _factory(self, node: ast.FunctionDef) -> None:
        args = node.args
        named = [*args.posonlyargs, *args.args]
        defaults: list[tuple[ast.arg, ast.expr | None]] = list(
            zip(named[len(named) - len(args.defaults) :], args.defaults, strict=True)
        )
        for arg, default in [*defaults, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]:
            value = self.constant(default) if default is not None else None
            if arg.arg not in self.extents and value is not None:
                self.constants[arg.arg] = value
        self._constants(node.body)

    # functions

    def function(self, node: ast.FunctionDef) -> TIRFunc:
        params: list[str] = []
        handles: dict[str, ast.arg] = {}
        body = list(node.body)
        self._symbolic(body)
        a = node.args
        if a.vararg or a.kwarg or a.defaults or a.kwonlyargs:
            self.fail(node, "parameters of a prim_func are plain: name and type")
        for arg in [*a.posonlyargs, *a.args]:
            kind = arg.annotation
            if self.call(kind) in BUFFERS:
                assert isinstance(kind, ast.Call)
                self.buffers[arg.arg] = self.buffer_of(arg.arg, kind, 0)
            elif "handle" in (kind and dotted(kind).split(".")[-1], self.call(kind)):
                handles[arg.arg] = arg
            elif kind is not None and dotted(kind).split(".")[-1] in DTYPES:
                dtype = DTYPES[dotted(kind).split(".")[-1]]
                self.buffers[arg.arg] = TIRBuffer(arg.arg, (), dtype, (), self.place(arg))
                if arg.arg in self.extents:
                    del self.buffers[arg.arg]
                    continue
            else:
                got = ast.unparse(kind) if kind else "nothing"
                self.fail(
                    arg,
                    f"type of parameter {arg.arg}",
                    expected="T.Buffer(shape, dtype), T.Tensor, T.handle or a scalar dtype",
                    got=got,
                )
            params.append(arg.arg)
        order = dict.fromkeys(params, "")
        rest: list[ast.stmt] = []
        for stmt in body:
            if isinstance(stmt, ast.Assign) and self.call(stmt.value) == "match_buffer":
                self._match(stmt, handles, order)
            else:
                rest.append(stmt)
        unmatched = [n for n in handles if not order[n]]
        if unmatched:
            self.fail(handles[unmatched[0]], f"handle {unmatched[0]} has no T.match_buffer")
        buffers = tuple(self.buffers[order[p] or p] for p in params)
        stmts = self.body(rest)
        return TIRFunc(node.name, buffers, stmts, self.file, self.lines)

    def _symbolic(self, body: Sequence[ast.stmt]) -> None:
        """`m = T.int64()`: a symbolic extent, which must be given."""
        for node in body:
            if isinstance(node, ast.Assign) and self.call(node.value) in ("int32", "int64"):
                assert isinstance(node.value, ast.Call)
                target = node.targets[0]
                symbolic = not node.value.args or isinstance(self.constant(node.value.args[0]), str)
                if symbolic and isinstance(target, ast.Name) and target.id not in self.constants:
                    self.fail(
                        node,
                        f"extent {target.id} is symbolic",
                        expected="its value",
                        hint=f"give extents={{{target.id!r}: ...}}",
                    )

    def _match(self, node: ast.Assign, handles: dict[str, ast.arg], order: dict[str, str]) -> None:
        target, call = node.targets[0], node.value
        assert isinstance(call, ast.Call)
        handle = call.args[0] if call.args else None
        if not isinstance(target, ast.Name) or not isinstance(handle, ast.Name):
            self.fail(node, "T.match_buffer takes a handle parameter", got=ast.unparse(node))
        if handle.id not in handles or order[handle.id]:
            self.fail(node, f"{handle.id} is not a handle that waits for its buffer")
        order[handle.id] = target.id
        self.new(node, target.id)
        self.buffers[target.id] = self.buffer_of(target.id, call, 1)
