"""Reads TIR and TileLang scripts: statements and functions, through Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from verifier.tir import tiles
from verifier.tir.affine import Linear, NeedsSplit, NotAffine, linear
from verifier.tir.errors import fail
from verifier.tir.expressions import DTYPES, Expressions, Value, dotted
from verifier.tir.tree import (
    Alloc,
    Expr,
    LoopKind,
    Place,
    Stmt,
    Store,
    TIRBlock,
    TIRBlockAxis,
    TIRBuffer,
    TIRBufferRegion,
    TIRFunc,
    TIRGrid,
    TIRVar,
    apply,
    number,
    variables,
)

LOOPS: dict[str, LoopKind] = {
    "range": "serial",
    "serial": "serial",
    "unroll": "serial",
    "Pipelined": "serial",
    "grid": "serial",
    "parallel": "parallel",
    "vectorized": "parallel",
    "thread_binding": "parallel",
    "Parallel": "parallel",
}
IGNORED = ("func_attr", "block_attr", "use_swizzle", "annotate_layout", "evaluate")
"""Annotations that say nothing about values."""
ALLOCS = ("alloc_buffer", "alloc_shared", "alloc_fragment", "alloc_local", "decl_buffer")
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
        fail(file, Place(line or 0, col or 0), f"not Python syntax: {what}")
    reader = Script(file, extents or {}, tuple(text.splitlines()))
    try:
        return reader.module(module, func)
    except RecursionError:
        fail(file, Place(), "the script is nested too deeply to read")


class Script(Expressions):
    """One script."""

    def __init__(self, file: str, extents: Mapping[str, Value], lines: tuple[str, ...]) -> None:
        super().__init__(file, {})
        self.extents = dict(extents)
        self.lines = lines
        self.loops: dict[str, int] = {}
        """Extents of the loop variables in scope."""
        self.count = 0

    # the module

    def module(self, module: ast.Module, func: str | None) -> TIRFunc:
        found: list[tuple[ast.FunctionDef, tuple[ast.FunctionDef, ...]]] = []
        self._search(module.body, (), found)
        names = [f.name for f, _ in found]
        chosen = [f for f in found if func is None or f[0].name == func]
        if len(chosen) != 1:
            fail(
                self.file,
                Place(),
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
            fail(self.file, Place(), f"the script has no extent {unused[0]}", hint="check extents")
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
        """Module or factory constants: `M = 128`. Extents that were given win."""
        for node in body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                value = self.constant(node.value)
                if isinstance(target, ast.Name) and value is not None:
                    if target.id not in self.extents:
                        self.constants[target.id] = value
                elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
                    for name, item in zip(target.elts, value, strict=False):
                        if isinstance(name, ast.Name) and name.id not in self.extents:
                            self.constants[name.id] = item

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
                self.buffers[arg.arg] = self._buffer(arg.arg, kind, 0)
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
        self._new(node, target.id)
        self.buffers[target.id] = self._buffer(target.id, call, 1)

    def _buffer(self, name: str, call: ast.Call, skip: int) -> TIRBuffer:
        allowed = ("handle",) * skip + ("shape", "dtype", "scope")
        plain = ast.Call(
            call.func,
            call.args,
            [k for k in call.keywords if k.arg not in ("align", "offset_factor")],
        )
        given = self.bind(ast.copy_location(plain, call), allowed, skip + 1)
        shape = given["shape"]
        dims = list(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else [shape]
        extents = tuple(self.integer(d, f"an extent of {name}") for d in dims)
        for dim, extent in zip(dims, extents, strict=True):
            if extent < 1:
                self.fail(dim, f"an extent of {name}", expected="1 or more", got=str(extent))
        dtype = self.dtype(given["dtype"]) if "dtype" in given else "f32"
        symbols = tuple(d.id if isinstance(d, ast.Name) else "" for d in dims)
        return TIRBuffer(name, extents, dtype, symbols, self.place(call))

    def _new(self, node: ast.AST, name: str) -> None:
        if name in self.buffers or name in self.names:
            self.fail(node, f"{name} is defined twice")

    # statements

    @contextmanager
    def scoped(self) -> Generator[None]:
        names, buffers, loops = dict(self.names), dict(self.buffers), dict(self.loops)
        constants = dict(self.constants)
        yield
        self.names, self.buffers, self.loops = names, buffers, loops
        self.constants = constants

    def body(self, nodes: Sequence[ast.stmt]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for node in nodes:
            out += self.statement(node)
        return tuple(out)

    def statement(self, node: ast.stmt) -> Sequence[Stmt]:
        if isinstance(node, ast.Pass):
            return ()
        if isinstance(node, ast.For):
            return (self._for(node),)
        if isinstance(node, ast.With):
            return self._with(node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return self._assign(node, node.targets[0], node.value)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            value = ast.copy_location(ast.BinOp(_reading(node.target), node.op, node.value), node)
            return (self._store(node, node.target, self.expr(value)),)
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return ()
            name = self.call(node.value)
            if name in IGNORED:
                return ()
            if name in tiles.STATEMENTS:
                assert isinstance(node.value, ast.Call)
                return tiles.STATEMENTS[name](self, node.value)
            if name == "buffer_store":
                assert isinstance(node.value, ast.Call)
                return (self._buffer_store(node.value),)
        return self._unknown(node)

    def _unknown(self, node: ast.stmt) -> NoReturn:
        first = ast.unparse(node).splitlines()[0]
        kind = type(node).__name__.lower()
        self.fail(
            node,
            f"{kind} statement is not understood",
            expected="loops, blocks, stores, allocations, "
            + ", ".join(f"T.{n}" for n in tiles.STATEMENTS),
            got=first,
        )

    def _assign(self, node: ast.Assign, target: ast.expr, value: ast.expr) -> Sequence[Stmt]:
        if isinstance(target, ast.Subscript):
            return (self._store(node, target, self.expr(value)),)
        if isinstance(target, ast.Name):
            if self.call(value) in ALLOCS:
                assert isinstance(value, ast.Call)
                self._new(node, target.id)
                buffer = self._buffer(target.id, value, 0)
                self.buffers[target.id] = buffer
                return (Alloc(buffer),)
            known = self.constant(value)
            if known is not None or target.id in self.extents:
                if target.id not in self.extents and known is not None:
                    self._new(node, target.id)
                    self.constants[target.id] = known
                return ()
        return self._unknown(node)

    def _store(self, node: ast.AST, target: ast.Subscript, value: Expr) -> Store:
        at = self.load(target)
        return Store(at.buffer, at.indices, value, self.place(node))

    def _buffer_store(self, call: ast.Call) -> Store:
        given = self.bind(call, ("buffer", "value", "indices"), 3)
        index = given["indices"]
        items = list(index.elts) if isinstance(index, ast.List | ast.Tuple) else [index]
        buffer = self.buffer(given["buffer"])
        if len(items) != len(buffer.shape):
            self.fail(call, f"{buffer.name} has {len(buffer.shape)} dims", got=ast.unparse(index))
        indices = tuple(self.expr(i) for i in items)
        return Store(buffer.name, indices, self.expr(given["value"]), self.place(call))

    def fresh(self, hint: str) -> TIRVar:
        """A loop variable that no script can name."""
        self.count += 1
        return TIRVar(f"{hint}'{self.count}")

    def loop_vars(self, targets: list[ast.expr], extents: list[int]) -> tuple[TIRVar, ...]:
        made: list[TIRVar] = []
        for target, extent in zip(targets, extents, strict=True):
            if not isinstance(target, ast.Name):
                self.fail(target, "a loop variable is a name", got=ast.unparse(target))
            if target.id in self.buffers or TIRVar(target.id) in made:
                self.fail(target, f"{target.id} is defined twice")
            self.names[target.id] = var = TIRVar(target.id)
            self.loops[target.id] = extent
            made.append(var)
        return tuple(made)

    def _for(self, node: ast.For) -> TIRGrid:
        name = self.call(node.iter)
        if name not in LOOPS or node.orelse or not isinstance(node.iter, ast.Call):
            self.fail(
                node,
                "loop is not understood",
                expected="T." + ", T.".join(LOOPS),
                got=ast.unparse(node.iter),
            )
        call = node.iter
        start = 0
        if name in ("grid", "Parallel"):
            extents = [self.integer(a, "a loop extent") for a in call.args]
        else:
            ends = [self.integer(a, "a loop bound") for a in call.args]
            ends = ends or [
                self.integer(k.value, "a loop bound")
                for k in call.keywords
                if k.arg in ("extent", "stop")
            ]
            if len(ends) not in (1, 2):
                self.fail(call, "a loop has one or two bounds", got=ast.unparse(call))
            start = ends[0] if len(ends) == 2 else 0
            extents = [ends[-1] - start]
        for extent in extents:
            if extent < 1:
                self.fail(call, "a loop that never runs", expected="extent 1 or more")
        tuple_target = isinstance(node.target, ast.Tuple)
        targets = list(node.target.elts) if isinstance(node.target, ast.Tuple) else [node.target]
        if len(targets) != len(extents) or (tuple_target and len(extents) == 0):
            self.fail(
                node,
                "loop variables and extents differ in number",
                expected=f"{len(extents)} variables",
                got=str(len(targets)),
            )
        with self.scoped():
            vars = self.loop_vars(targets, extents)
            if start:
                self.names[vars[0].name] = apply("add", (vars[0], number(start)))
            body = self.body(node.body)
        return TIRGrid(vars, tuple(extents), body, LOOPS[name], self.place(node))

    def _with(self, node: ast.With) -> Sequence[Stmt]:
        if len(node.items) == 1:
            item = node.items[0]
            name = self.call(item.context_expr)
            if name in ("block", "sblock") and item.optional_vars is None:
                return (self._block(node, item.context_expr),)
            if name == "Kernel":
                return (self._kernel(node, item),)
        return self.fail(
            node,
            "with statement is not understood",
            expected="T.block or T.Kernel (T.init inside a block)",
            got=ast.unparse(node).splitlines()[0],
        )

    def _kernel(self, node: ast.With, item: ast.withitem) -> TIRGrid:
        call = item.context_expr
        assert isinstance(call, ast.Call)
        extents = [self.integer(a, "a grid extent") for a in call.args]
        target = item.optional_vars
        targets = list(target.elts) if isinstance(target, ast.Tuple) else [target] if target else []
        if len(targets) != len(extents) or any(e < 1 for e in extents) or not extents:
            self.fail(call, "T.Kernel takes an extent for each variable", got=ast.unparse(call))
        with self.scoped():
            vars = self.loop_vars(targets, extents)
            body = self.body(node.body)
        return TIRGrid(vars, tuple(extents), body, "parallel", self.place(node))

    # blocks

    def _block(self, node: ast.With, call: ast.AST) -> TIRBlock:
        assert isinstance(call, ast.Call)
        label = self.constant(call.args[0]) if call.args else ""
        with self.scoped():
            parts: dict[str, Any] = {"axes": [], "init": (), "where": None}
            rest: list[Stmt] = []
            outer = dict(self.names)
            for stmt in node.body:
                if not self._block_part(stmt, parts, outer):
                    rest += self.statement(stmt)
            return TIRBlock(
                str(label),
                tuple(parts["axes"]),
                tuple(rest),
                parts["init"],
                parts["where"],
                parts.get("reads"),
                parts.get("writes"),
                self.place(node),
            )

    def _block_part(self, stmt: ast.stmt, parts: dict[str, Any], outer: dict[str, Expr]) -> bool:
        """Axes, predicate, regions and init of a block. False for a statement of its body."""
        if isinstance(stmt, ast.Assign) and self.call(stmt.value).startswith("axis."):
            assert isinstance(stmt.value, ast.Call)
            parts["axes"] += self._axes(stmt, stmt.value, outer)
            return True
        if isinstance(stmt, ast.Expr):
            name = self.call(stmt.value)
            assert isinstance(stmt.value, ast.expr)
            if name == "where":
                assert isinstance(stmt.value, ast.Call)
                inner, self.names = self.names, outer
                (cond,) = (self.expr(a) for a in stmt.value.args[:1])
                self.names = inner
                before = parts["where"]
                parts["where"] = apply("logical_and", (before, cond)) if before else cond
                return True
            if name in ("reads", "writes"):
                assert isinstance(stmt.value, ast.Call)
                args = stmt.value.args
                if len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple):
                    args = args[0].elts
                parts[name] = tuple(self.region(a) for a in args)
                return True
        if isinstance(stmt, ast.With) and self.call(stmt.items[0].context_expr) == "init":
            if parts["init"]:
                self.fail(stmt, "a block has one T.init")
            parts["init"] = self.body(stmt.body)
            return True
        return False

    def _axes(self, stmt: ast.Assign, call: ast.Call, outer: dict[str, Expr]) -> list[TIRBlockAxis]:
        name = self.call(call).removeprefix("axis.")
        target = stmt.targets[0]
        targets = list(target.elts) if isinstance(target, ast.Tuple) else [target]
        inner, self.names = self.names, outer
        if name == "remap" and len(call.args) == 2:
            kinds = self.constant(call.args[0])
            bound = call.args[1]
            loops = bound.elts if isinstance(bound, ast.List | ast.Tuple) else []
            bindings = [self.expr(x) for x in loops]
            sizes = [self.loops.get(next(iter(variables(b)), ""), 0) for b in bindings]
            if not isinstance(kinds, str) or not all(isinstance(b, TIRVar) for b in bindings):
                self.fail(call, "T.axis.remap takes kinds and loop variables")
            letters = list(kinds)
        elif name in ("spatial", "reduce") and len(call.args) == 2:
            bindings = [self.expr(call.args[1])]
            sizes, letters = [self.integer(call.args[0], "extent of an axis")], [name[0].upper()]
        else:
            self.names = inner
            self.fail(
                call,
                "axis is not understood",
                expected="T.axis.remap, T.axis.spatial or T.axis.reduce",
                got=ast.unparse(call),
            )
        self.names = inner
        if not len(targets) == len(bindings) == len(letters) or not set(letters) <= {"S", "R"}:
            self.fail(call, "axes, kinds (S or R) and bindings differ", got=ast.unparse(stmt))
        out: list[TIRBlockAxis] = []
        for t, letter, size, binding in zip(targets, letters, sizes, bindings, strict=True):
            (var,) = self.loop_vars([t], [size])
            kind = "S" if letter == "S" else "R"
            out.append(TIRBlockAxis(var.name, kind, size, binding, self.place(t)))
        return out

    # regions

    def region(self, node: ast.AST, like: Sequence[int] | None = None) -> TIRBufferRegion:
        """A box of a buffer: `A`, `A[0:n, vi]`, or `A[i, j]` with the extents `like`."""
        if isinstance(node, ast.Name):
            buffer = self.buffer(node)
            whole = tuple((number(0), n) for n in buffer.shape)
            return TIRBufferRegion(buffer.name, whole, self.place(node))
        if not isinstance(node, ast.Subscript):
            self.fail(node, "not a region of a buffer", got=ast.unparse(node))
        buffer = self.buffer(node.value)
        given = self.indices(node)
        if len(given) != len(buffer.shape):
            self.fail(node, f"{buffer.name} has {len(buffer.shape)} dims", got=ast.unparse(node))
        sliced = any(isinstance(i, ast.Slice) for i in given)
        points = [1] * len(given)
        if like is not None and not sliced:
            tail = list(like)[-len(given) :]
            points = [1] * (len(given) - len(tail)) + tail
        ranges: list[tuple[Expr, int]] = []
        for index, extent, size in zip(given, points, buffer.shape, strict=True):
            if isinstance(index, ast.Slice):
                if index.step is not None:
                    self.fail(index, "a region with a step", got=ast.unparse(node))
                low = self.expr(index.lower) if index.lower else number(0)
                high = self.expr(index.upper) if index.upper else number(size)
                ranges.append((low, self._extent(node, low, high)))
            else:
                ranges.append((self.expr(index), extent))
        return TIRBufferRegion(buffer.name, tuple(ranges), self.place(node))

    def _extent(self, node: ast.AST, low: Expr, high: Expr) -> int:
        try:
            gap = linear(high, self.loops).plus(linear(low, self.loops), -1)
        except (NotAffine, NeedsSplit):
            gap = Linear(0)
        if gap.terms or gap.const < 1:
            self.fail(node, "a region of no constant extent", got=ast.unparse(node))
        return gap.const


def _reading(target: ast.Subscript) -> ast.Subscript:
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
