"""Tile statements of TileLang (`T.copy`, `T.gemm`, ...) as loops and stores."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from shardproof.synthesis.frontends.tir.expressions import HIGHEST, LOWEST
from shardproof.synthesis.frontends.tir.tree import (
    Apply,
    Const,
    Expr,
    Load,
    Place,
    Stmt,
    Store,
    TIRBufferRegion,
    TIRGrid,
    TIRVar,
    apply,
    number,
)

if TYPE_CHECKING:
    from shardproof.synthesis.frontends.tir.statements import Statements


def _cast(script: Statements, value: Load, target: str) -> Expr:
    dtype = script.buffers[target].dtype
    same = script.buffers[value.buffer].dtype == dtype
    return value if same else Apply("cast", (value,), dtype, value.place)


def _at(region: TIRBufferRegion, vars: Sequence[Expr]) -> tuple[Expr, ...]:
    """Indices of a region, one variable for each range of more than one entry."""
    given = iter(vars)
    return tuple(low if n == 1 else apply("add", (low, next(given))) for low, n in region.ranges)


def _tile(region: TIRBufferRegion) -> tuple[int, ...]:
    return tuple(n for _, n in region.ranges if n != 1)


def _loops(
    script: Statements,
    extents: Sequence[int],
    store: Callable[[tuple[TIRVar, ...]], Store],
    place: Place,
) -> Stmt:
    vars = tuple(script.fresh("t") for _ in extents)
    for var, extent in zip(vars, extents, strict=True):
        script.loops[var.name] = extent
    return TIRGrid(vars, tuple(extents), (store(vars),), "parallel", place)


def _copy(script: Statements, call: ast.Call) -> Sequence[Stmt]:
    given = script.bind(call, ("src", "dst", "coalesced_width", "disable_tma"), 2)
    place = script.place(call)

    def full(node: ast.AST) -> bool:
        sliced = isinstance(node, ast.Subscript) and any(
            isinstance(i, ast.Slice) for i in script.indices(node)
        )
        return isinstance(node, ast.Name) or sliced

    def sizes(node: ast.AST) -> tuple[int, ...]:
        return tuple(n for _, n in script.region(node).ranges)

    src_node, dst_node = given["src"], given["dst"]
    if not full(src_node) and not full(dst_node):
        script.fail(call, "T.copy of two offsets", expected="one side whole, or with slices")
    src = script.region(src_node, None if full(src_node) else sizes(dst_node))
    dst = script.region(dst_node, None if full(dst_node) else sizes(src_node))
    if _tile(src) != _tile(dst):
        script.fail(
            call,
            "T.copy of tiles of different shapes",
            expected=str(list(_tile(dst))),
            got=str(list(_tile(src))),
        )

    def store(vars: tuple[TIRVar, ...]) -> Store:
        value = _cast(script, Load(src.buffer, _at(src, vars), place), dst.buffer)
        return Store(dst.buffer, _at(dst, vars), value, place)

    return (_loops(script, _tile(dst), store, place),)


def _flag(script: Statements, given: dict[str, ast.expr], name: str) -> bool:
    if name not in given:
        return False
    value = script.constant(given[name])
    if not isinstance(value, bool | int):
        script.fail(given[name], f"{name} is a flag", expected="True or False")
    return bool(value)


def _fill_with(script: Statements, node: ast.AST, value: Expr, place: Place) -> Stmt:
    region = script.region(node)

    def store(vars: tuple[TIRVar, ...]) -> Store:
        return Store(region.buffer, _at(region, vars), value, place)

    return _loops(script, _tile(region), store, place)


def _clear(script: Statements, call: ast.Call) -> Sequence[Stmt]:
    node = script.bind(call, ("buffer",), 1)["buffer"]
    dtype = script.buffers[script.region(node).buffer].dtype
    zero = Const(Fraction(0), dtype not in ("i32", "i64"))
    return (_fill_with(script, node, zero, script.place(call)),)


def _fill(script: Statements, call: ast.Call) -> Sequence[Stmt]:
    given = script.bind(call, ("buffer", "value"), 2)
    return (_fill_with(script, given["buffer"], script.expr(given["value"]), script.place(call)),)


def _gemm(script: Statements, call: ast.Call) -> Sequence[Stmt]:
    names = ("A", "B", "C", "transpose_A", "transpose_B", "policy", "clear_accum", "k_pack")
    given = script.bind(call, names, 3)
    place = script.place(call)
    a, b, c = (script.region(given[n]) for n in "ABC")
    turned_a, turned_b = (_flag(script, given, f"transpose_{n}") for n in "AB")
    for region in (a, b, c):
        if len(region.ranges) < 2 or any(n != 1 for _, n in region.ranges[:-2]):
            script.fail(call, "T.gemm takes matrices", got=region.buffer)
    (ar, ac), (br, bc), (m, n) = (tuple(extent for _, extent in r.ranges[-2:]) for r in (a, b, c))
    k, rows = (ar, ac) if turned_a else (ac, ar)
    inner, cols = (bc, br) if turned_b else (br, bc)
    if (rows, inner, cols) != (m, k, n):
        script.fail(
            call,
            "T.gemm of tiles that do not fit",
            expected=f"[{m}, k] times [k, {n}]",
            got=f"[{rows}, {k}] times [{inner}, {cols}]",
        )
    i, j, kk = (script.fresh("t") for _ in range(3))

    def at(region: TIRBufferRegion, row: Expr, col: Expr) -> tuple[Expr, ...]:
        outer = tuple(low for low, _ in region.ranges[:-2])
        pair = zip((row, col), region.ranges[-2:], strict=True)
        return outer + tuple(low if n == 1 else apply("add", (low, v)) for v, (low, n) in pair)

    left = Load(a.buffer, at(a, kk, i) if turned_a else at(a, i, kk), place)
    right = Load(b.buffer, at(b, j, kk) if turned_b else at(b, kk, j), place)
    target = at(c, i, j)
    product = apply(
        "mul", (_cast(script, left, c.buffer), _cast(script, right, c.buffer)), place=place
    )
    total = apply("add", (Load(c.buffer, target, place), product), place=place)
    loop = TIRGrid((kk,), (k,), (Store(c.buffer, target, total, place),), "serial", place)
    out: list[Stmt] = []
    if _flag(script, given, "clear_accum"):
        out.append(_fill_with(script, given["C"], Const(Fraction(0), True), place))
    return (*out, TIRGrid((i, j), (m, n), (loop,), "parallel", place))


def _reduce(fold: str) -> Callable[[Statements, ast.Call], Sequence[Stmt]]:
    op = {"sum": "add", "max": "maximum", "min": "minimum"}[fold]

    def read(script: Statements, call: ast.Call) -> Sequence[Stmt]:
        given = script.bind(call, ("src", "dst", "dim", "clear"), 2)
        place = script.place(call)
        src, dst = script.buffer(given["src"]), script.buffer(given["dst"])
        dim = script.integer(given["dim"], "dim") if "dim" in given else -1
        rank = len(src.shape)
        dim += rank if dim < 0 else 0
        kept = (*src.shape[:dim], *src.shape[dim + 1 :])
        ones = (*src.shape[:dim], 1, *src.shape[dim + 1 :])
        if not 0 <= dim < rank or dst.shape not in (kept, ones):
            script.fail(
                call,
                f"T.reduce_{fold} along dim {dim} of {list(src.shape)}",
                expected=f"a result of shape {list(kept)}",
                got=str(list(dst.shape)),
            )
        vars = [script.fresh("t") for _ in src.shape]
        line = vars[dim]
        outer: list[Expr] = [v for v in vars if v is not line]
        target = list(outer)
        if len(dst.shape) == rank:
            target.insert(dim, number(0))
        at = tuple(target)
        value = Load(src.name, tuple(vars), place)
        total = apply(op, (Load(dst.name, at, place), _cast(script, value, dst.name)), place=place)
        start = {
            "sum": Fraction(0),
            "max": LOWEST.get(dst.dtype, Fraction(0)),
            "min": HIGHEST.get(dst.dtype, Fraction(0)),
        }
        out: list[Stmt] = []
        if "clear" not in given or _flag(script, given, "clear"):
            first = Const(start[fold], dst.dtype not in ("i32", "i64"))
            out.append(_fill_with(script, given["dst"], first, place))
        loop = TIRGrid((line,), (src.shape[dim],), (Store(dst.name, at, total, place),), "serial")
        keep = tuple(v for v in vars if v is not line)
        return (*out, TIRGrid(keep, kept, (loop,), "parallel", place) if keep else loop)

    return read


STATEMENTS: dict[str, Callable[[Statements, ast.Call], Sequence[Stmt]]] = {
    "copy": _copy,
    "clear": _clear,
    "fill": _fill,
    "gemm": _gemm,
    "reduce_sum": _reduce("sum"),
    "reduce_max": _reduce("max"),
    "reduce_min": _reduce("min"),
}
"""Statements that fill or combine whole tiles."""
