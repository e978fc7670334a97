"""A function as a list of stores, each with the loops it runs in and the iterations it covers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from shardproof.synthesis.frontends.tir.bindings import check_bindings, conjuncts
from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.tree import (
    FUNCTIONS,
    Alloc,
    Apply,
    Expr,
    Load,
    LoopKind,
    Place,
    Stmt,
    Store,
    TIRBlock,
    TIRBuffer,
    TIRBufferRegion,
    TIRFunc,
    TIRGrid,
    TIRVar,
    as_int,
    children,
    loads,
    number,
    substitute,
    variables,
)
from shardproof.verifier.kernel.program.program import unused


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of the script under a name of its own."""

    name: str
    extent: int
    kind: LoopKind


@dataclass(frozen=True, slots=True)
class Iter:
    """A variable that the indices of a leaf use: a loop, or an axis of a block, of extent 2 or
    more. One of extent 1 is 0."""

    name: str
    extent: int
    kind: str
    """`S`, `R`, or `loop`."""


@dataclass(frozen=True)
class Regions:
    """The reads and writes that a block declares, over the loops around it."""

    block: TIRBlock
    reads: tuple[TIRBufferRegion, ...] | None
    writes: tuple[TIRBufferRegion, ...] | None
    outside: frozenset[str]
    """Buffers that exist outside the block: the others need not be declared."""


@dataclass(frozen=True)
class Leaf:
    """One store. Its iterations are those of `loops` that pass `guards`, or the box of `iters`."""

    store: Store
    loops: tuple[Loop, ...]
    iters: tuple[Iter, ...]
    raw: dict[str, Expr]
    """Each iter as an expression of the loops."""
    guards: tuple[Expr, ...] = ()
    """Over the loops."""
    block: str = ""
    init: bool = False
    regions: tuple[Regions, ...] = ()

    @property
    def extents(self) -> dict[str, int]:
        return {i.name: i.extent for i in self.iters}

    @property
    def reads(self) -> tuple[Load, ...]:
        found = loads(self.store.value)
        return found + tuple(x for i in self.store.indices for x in loads(i))


@dataclass(frozen=True)
class Flat:
    """A function taken apart."""

    func: TIRFunc
    leaves: tuple[Leaf, ...]
    buffers: dict[str, TIRBuffer]
    """By unique name, parameters included."""
    homes: dict[str, tuple[Loop, ...]]
    """The loops around the allocation of each buffer."""


@dataclass(frozen=True)
class _Context:
    loops: tuple[Loop, ...] = ()
    iters: tuple[Iter, ...] = ()
    raw: dict[str, Expr] = field(default_factory=dict[str, Expr])
    env: dict[str, Expr] = field(default_factory=dict[str, Expr])
    guards: tuple[Expr, ...] = ()
    buffers: dict[str, str] = field(default_factory=dict[str, str])
    block: str = ""
    init: bool = False
    regions: tuple[Regions, ...] = ()


def flatten(func: TIRFunc) -> Flat:
    """Take a function apart, bindings checked.

    Raises:
        TirError: a binding that is no bijection, a name out of scope, wrong numbers of indices.
    """
    walker = _Walker(func)
    for param in func.params:
        if param.name in walker.buffers:
            fail(param.place, f"parameter {param.name} is named twice")
        walker.buffers[param.name] = param
        walker.homes[param.name] = ()
    names = {p.name: p.name for p in func.params}
    walker.body(func.body, _Context(buffers=names))
    return Flat(func, tuple(walker.leaves), walker.buffers, walker.homes)


class _Walker:
    def __init__(self, func: TIRFunc) -> None:
        self.func = func
        self.leaves: list[Leaf] = []
        self.buffers: dict[str, TIRBuffer] = {}
        self.homes: dict[str, tuple[Loop, ...]] = {}
        self.names: set[str] = set()

    def var(self, name: str) -> str:
        made = unused(name, self.names, "_")
        self.names.add(made)
        return made

    def body(self, stmts: Sequence[Stmt], at: _Context) -> None:
        for stmt in stmts:
            match stmt:
                case Alloc(buffer=buffer):
                    name = unused(buffer.name, self.buffers, "_")
                    self.buffers[name] = replace(buffer, name=name)
                    self.homes[name] = at.loops
                    at = replace(at, buffers={**at.buffers, buffer.name: name})
                case TIRGrid():
                    self.grid(stmt, at)
                case TIRBlock():
                    self.block(stmt, at)
                case Store():
                    self.leaf(stmt, at)

    def grid(self, stmt: TIRGrid, at: _Context) -> None:
        if len(stmt.vars) != len(stmt.extents) or any(e < 1 for e in stmt.extents):
            fail(stmt.place, "a grid has an extent of 1 or more for each variable")
        loops, iters = list(at.loops), list(at.iters)
        env, raw = dict(at.env), dict(at.raw)
        for var, extent in zip(stmt.vars, stmt.extents, strict=True):
            name = self.var(var.name)
            loops.append(Loop(name, extent, stmt.kind))
            if extent == 1:
                env[var.name] = number(0)
                continue
            iters.append(Iter(name, extent, "loop"))
            env[var.name] = raw[name] = TIRVar(name)
        inner = replace(at, loops=tuple(loops), iters=tuple(iters), env=env, raw=raw)
        self.body(stmt.body, inner)

    def resolve(self, expr: Expr, at: _Context, place: Place) -> Expr:
        """The expression in unique names, scopes and numbers of indices checked."""
        if isinstance(expr, TIRVar):
            if expr.name not in at.env:
                fail(place, f"variable {expr.name} is not in scope")
            return at.env[expr.name]
        if isinstance(expr, Load):
            name = self.buffer(expr.buffer, len(expr.indices), at, place)
            return Load(name, tuple(self.resolve(i, at, place) for i in expr.indices), expr.place)
        if isinstance(expr, Apply):
            if expr.op not in FUNCTIONS:
                fail(
                    expr.place if expr.place.line else place,
                    f"function {expr.op} is not understood",
                    expected=f"one of {', '.join(sorted(FUNCTIONS))}",
                )
            by = as_int(expr.args[1]) if len(expr.args) == 2 else None
            if expr.op in ("floordiv", "floormod") and (by is None or by < 1):
                fail(place, "// and % need a positive integer constant on the right")
            parts = tuple(self.resolve(a, at, place) for a in children(expr))
            return Apply(expr.op, parts, expr.attr, expr.place)
        return expr

    def buffer(self, name: str, given: int, at: _Context, place: Place) -> str:
        if name not in at.buffers:
            fail(place, f"buffer {name} is not in scope")
        rank = len(self.buffers[at.buffers[name]].shape)
        if rank != given:
            fail(place, f"{name} has {rank} dims", expected=f"{rank} indices", got=str(given))
        return at.buffers[name]

    def block(self, stmt: TIRBlock, at: _Context) -> None:
        inner = at
        if stmt.axes:
            inner = self.enter(stmt, at)
        elif stmt.where is not None:
            fail(stmt.place, f"block {stmt.name!r} has a predicate and no axes")
        inner = replace(inner, block=stmt.name or at.block)
        if stmt.axes and (stmt.reads is not None or stmt.writes is not None):
            body_scope = inner
            reads, writes = (self.regions(r, body_scope) for r in (stmt.reads, stmt.writes))
            declared = Regions(stmt, reads, writes, frozenset(at.buffers.values()))
            inner = replace(inner, regions=(*inner.regions, declared))
        if stmt.init:
            reduced = {
                a.name: inner.env[a.name] for a in stmt.axes if a.kind == "R" and a.extent > 1
            }
            names = {v.name for v in reduced.values() if isinstance(v, TIRVar)}
            zero: dict[str, Expr] = {n: number(0) for n in names}
            first = tuple(Apply("eq", (inner.raw[n], number(0))) for n in sorted(names))
            self.body(
                stmt.init,
                replace(
                    inner,
                    iters=tuple(i for i in inner.iters if i.name not in names),
                    env={k: substitute(v, zero) for k, v in inner.env.items()},
                    raw={k: v for k, v in inner.raw.items() if k not in names},
                    guards=(*inner.guards, *first),
                    init=True,
                ),
            )
        self.body(stmt.body, inner)

    def regions(
        self, given: tuple[TIRBufferRegion, ...] | None, at: _Context
    ) -> tuple[TIRBufferRegion, ...] | None:
        if given is None:
            return None
        out: list[TIRBufferRegion] = []
        for region in given:
            if region.buffer not in at.buffers:  # declared before its allocation in the body
                continue
            name = self.buffer(region.buffer, len(region.ranges), at, region.place)
            ranges = tuple(
                (substitute(self.resolve(lo, at, region.place), at.raw), n)
                for lo, n in region.ranges
            )
            out.append(TIRBufferRegion(name, ranges, region.place))
        return tuple(out)

    def enter(self, stmt: TIRBlock, at: _Context) -> _Context:
        """Go from loops to the axes of a block, which must name the same iterations."""
        for axis in stmt.axes:
            if axis.extent < 1:
                fail(axis.place, f"axis {axis.name} has extent {axis.extent}")
        bindings = [self.resolve(a.binding, at, a.place) for a in stmt.axes]
        where = self.resolve(stmt.where, at, stmt.place) if stmt.where is not None else None
        if any(loads(e) for e in [*bindings, *([where] if where is not None else [])]):
            fail(stmt.place, "a binding or predicate reads a buffer")
        extents = {i.name: i.extent for i in at.iters}
        check_bindings(stmt, bindings, where, extents)
        used = {v for e in [*bindings, *conjuncts(where)] for v in variables(e)}
        iters = [i for i in at.iters if i.name not in used]
        env, raw = dict(at.env), dict(at.raw)
        for axis, binding in zip(stmt.axes, bindings, strict=True):
            if axis.extent == 1:
                env[axis.name] = number(0)
                continue
            name = self.var(axis.name)
            iters.append(Iter(name, axis.extent, axis.kind))
            env[axis.name] = TIRVar(name)
            raw[name] = substitute(binding, at.raw)
        guards = tuple(substitute(c, at.raw) for c in conjuncts(where))
        hidden = {k: v for k, v in env.items() if not variables(v) & used}
        return replace(at, iters=tuple(iters), env=hidden, raw=raw, guards=(*at.guards, *guards))

    def leaf(self, stmt: Store, at: _Context) -> None:
        name = self.buffer(stmt.buffer, len(stmt.indices), at, stmt.place)
        indices = tuple(self.resolve(i, at, stmt.place) for i in stmt.indices)
        value = self.resolve(stmt.value, at, stmt.place)
        store = Store(name, indices, value, stmt.place)
        parts = (at.loops, at.iters, at.raw, at.guards, at.block, at.init, at.regions)
        self.leaves.append(Leaf(store, *parts))
