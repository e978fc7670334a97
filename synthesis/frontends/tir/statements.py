"""Reads statements of a script: loops, blocks, stores, allocations, regions."""

import ast
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from shardproof.synthesis.frontends.tir import tiles
from shardproof.synthesis.frontends.tir.affine import Linear, NeedsSplit, NotAffine, linear
from shardproof.synthesis.frontends.tir.expressions import Expressions, Value
from shardproof.synthesis.frontends.tir.tree import (
    Alloc,
    Expr,
    LoopKind,
    Stmt,
    Store,
    TIRBlock,
    TIRBlockAxis,
    TIRBuffer,
    TIRBufferRegion,
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
HINTS = ("annotations", "thread", "num_stages", "threads", "explicit", "coalesced_width")
"""Arguments of loops that say nothing about values."""
IGNORED = ("func_attr", "block_attr", "use_swizzle", "annotate_layout")
"""Annotations that say nothing about values."""
ALLOCS = ("alloc_buffer", "alloc_shared", "alloc_fragment", "alloc_local", "decl_buffer")


class Statements(Expressions):
    """Statements of one script."""

    def __init__(self, file: str, extents: Mapping[str, Value]) -> None:
        super().__init__(file, {})
        self.extents = dict(extents)
        """Extents that were given: they win over constants of the script."""
        self.loops: dict[str, int] = {}
        """Extents of the loop variables in scope."""
        self.count = 0

    # buffers

    def buffer_of(self, name: str, call: ast.Call, skip: int) -> TIRBuffer:
        allowed = ("handle",) * skip + ("shape", "dtype", "scope")
        plain = ast.Call(
            call.func,
            call.args,
            [k for k in call.keywords if k.arg not in ("align", "offset_factor")],
        )
        given = self.bind(ast.copy_location(plain, call), allowed, skip + 1)
        shape = given["shape"]
        dims = _listed(shape)
        extents = tuple(self.integer(d, f"an extent of {name}") for d in dims)
        for dim, extent in zip(dims, extents, strict=True):
            if extent < 1:
                self.fail(dim, f"an extent of {name}", expected="1 or more", got=str(extent))
        dtype = self.dtype(given["dtype"]) if "dtype" in given else "f32"
        symbols = tuple(d.id if isinstance(d, ast.Name) else "" for d in dims)
        return TIRBuffer(name, extents, dtype, symbols, self.place(call))

    def new(self, node: ast.AST, name: str) -> None:
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
            if name in IGNORED or (name == "evaluate" and self._idle(node.value)):
                return ()
            if name in tiles.STATEMENTS and isinstance(node.value, ast.Call):
                return tiles.STATEMENTS[name](self, node.value)
            if name == "buffer_store" and isinstance(node.value, ast.Call):
                return (self._buffer_store(node.value),)
        return self._unknown(node)

    def _idle(self, node: ast.expr) -> bool:
        """Whether `T.evaluate` is given a number."""
        return isinstance(node, ast.Call) and all(self.constant(a) is not None for a in node.args)

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
                self.new(node, target.id)
                buffer = self.buffer_of(target.id, value, 0)
                self.buffers[target.id] = buffer
                return (Alloc(buffer),)
            known = self.constant(value)
            if known is not None or target.id in self.extents:
                if target.id not in self.extents and known is not None:
                    self.new(node, target.id)
                    if target.id in self.constants:
                        self.fail(node, f"{target.id} is defined twice")
                    self.constants[target.id] = known
                return ()
        return self._unknown(node)

    def _store(self, node: ast.AST, target: ast.Subscript, value: Expr) -> Store:
        at = self.load(target)
        return Store(at.buffer, at.indices, value, self.place(node))

    def _buffer_store(self, call: ast.Call) -> Store:
        given = self.bind(call, ("buffer", "value", "indices"), 3)
        index = given["indices"]
        items = _listed(index)
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
        strange = [k for k in call.keywords if k.arg not in HINTS and k.arg != "extent"]
        if strange:
            self.fail(call, f"argument {strange[0].arg} of a loop", got=ast.unparse(call))
        start = 0
        if name in ("grid", "Parallel"):
            extents = [self.integer(a, "a loop extent") for a in call.args]
        else:
            ends = [self.integer(a, "a loop bound") for a in call.args]
            ends += [
                self.integer(k.value, "a loop bound") for k in call.keywords if k.arg == "extent"
            ]
            if len(ends) not in (1, 2):
                self.fail(call, "a loop has one or two bounds", got=ast.unparse(call))
            start = ends[0] if len(ends) == 2 else 0
            extents = [ends[-1] - start]
        for extent in extents:
            if extent < 1:
                self.fail(call, "a loop that never runs", expected="extent 1 or more")
        targets = _listed(node.target)
        if len(targets) != len(extents) or not extents:
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
        targets = _listed(target) if target else []
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
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
            name = self.call(stmt.value)
            if name == "where":
                inner, self.names = self.names, outer
                (cond,) = (self.expr(a) for a in stmt.value.args[:1])
                self.names = inner
                before = parts["where"]
                parts["where"] = apply("logical_and", (before, cond)) if before else cond
                return True
            if name in ("reads", "writes"):
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
        targets = _listed(target)
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


def _listed(node: ast.expr) -> list[ast.expr]:
    """The parts of a tuple or list; anything else alone."""
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _reading(target: ast.Subscript) -> ast.Subscript:
    return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
