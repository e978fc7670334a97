"""Every index inside its buffer, every access inside the regions that its block declares."""

from collections.abc import Sequence

from shardproof.synthesis.frontends.tir.affine import NeedsSplit, NotAffine, linear
from shardproof.synthesis.frontends.tir.conflicts import Opaque, holds
from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.leaves import Flat, Leaf
from shardproof.synthesis.frontends.tir.tree import (
    Apply,
    Expr,
    Load,
    Place,
    TIRBufferRegion,
    apply,
    children,
    loads,
    number,
    substitute,
)
from shardproof.synthesis.frontends.tir.updates import update_of
from shardproof.verifier.smt import solver as smt


def check_bounds(flat: Flat) -> None:
    """Raise TirError where an index can leave its buffer or a declared region.

    Operands of `if_then_else` are read only where the condition says so.
    """
    for leaf in flat.leaves:
        _Bounds(flat, leaf).run()


class _Bounds:
    def __init__(self, flat: Flat, leaf: Leaf) -> None:
        self.flat, self.leaf, self.extents = flat, leaf, leaf.extents

    def run(self) -> None:
        store = self.leaf.store
        for index in store.indices:
            self.visit(index, ())
        self.access(store.buffer, store.indices, store.place, ())
        self.visit(store.value, ())
        for declared in self.leaf.regions:
            if declared.writes is not None and store.buffer in declared.outside:
                self.declared(store.buffer, store.indices, store.place, declared.writes, "writes")
            own = Load(store.buffer, store.indices) if update_of(store) else None
            for x in self.leaf.reads if declared.reads is not None else ():
                if x.buffer in declared.outside and x != own:
                    assert declared.reads is not None
                    self.declared(x.buffer, x.indices, x.place, declared.reads, "reads")

    def visit(self, expr: Expr, when: tuple[Expr, ...]) -> None:
        if isinstance(expr, Load):
            self.access(expr.buffer, expr.indices, expr.place, when)
        if isinstance(expr, Apply) and expr.op == "where" and expr.attr != "eager":
            cond, then, other = expr.args
            self.visit(cond, when)
            self.visit(then, (*when, cond))
            self.visit(other, (*when, Apply("logical_not", (cond,))))
            return
        for child in children(expr):
            self.visit(child, when)

    def access(
        self, buffer: str, indices: Sequence[Expr], place: Place, when: tuple[Expr, ...]
    ) -> None:
        shape = self.flat.buffers[buffer].shape
        for dim, (index, size) in enumerate(zip(indices, shape, strict=True)):
            if loads(index):
                continue
            try:
                low, high = linear(index, self.extents).span(self.extents)
                if low >= 0 and high < size:
                    continue
                got = f"{low} to {high}"
            except (NotAffine, NeedsSplit):
                got = ""
            self.prove(
                _inside(index, number(0), size),
                when,
                place,
                f"index {dim} of {buffer} can leave the buffer",
                f"0 to {size - 1}",
                got,
            )

    def declared(
        self,
        buffer: str,
        indices: Sequence[Expr],
        place: Place,
        regions: tuple[TIRBufferRegion, ...],
        word: str,
    ) -> None:
        # a buffer private to loops has more dims than the script declares: the last ones count
        here = [r for r in regions if r.buffer == buffer]
        what = f"the body {word} {buffer} outside what T.{word} declares"
        if not here:
            fail(place, what, expected=f"{buffer} in T.{word}")
        goals: list[Expr] = []
        indices = [substitute(i, self.leaf.raw) for i in indices]
        for region in here:
            own = indices[len(indices) - len(region.ranges) :]
            parts = [
                _inside(i, lo, n)
                for i, (lo, n) in zip(own, region.ranges, strict=True)
                if not loads(i) and not (i == lo and n >= 1)
            ]
            goals.append(_all(parts))
        if any(g == _TRUE for g in goals):
            return
        goal = goals[0]
        for other in goals[1:]:
            goal = Apply("logical_or", (goal, other))
        loops = {lp.name: lp.extent for lp in self.leaf.loops}
        expected = f"an element of the {word} of the block"
        self.prove(goal, self.leaf.guards, place, what, expected, "", loops)

    def prove(
        self,
        goal: Expr,
        when: tuple[Expr, ...],
        place: Place,
        what: str,
        expected: str,
        got: str,
        extents: dict[str, int] | None = None,
    ) -> None:
        extents = self.extents if extents is None else extents
        try:
            answer = holds(goal, when, extents)
        except Opaque:
            fail(place, f"{what}: the index is not integer arithmetic")
        if isinstance(answer, smt.Valid):
            return
        if isinstance(answer, smt.Invalid):
            shown = ", ".join(f"{n}={v}" for n, v in answer.model if n in extents)
            got = f"{got}, for example at {shown}" if got and shown else got or f"at {shown}"
            fail(place, what, expected=expected, got=got)
        fail(place, f"{what}: not decided", expected=expected, got=got)


_TRUE: Expr = Apply("eq", (number(0), number(0)))


def _inside(index: Expr, low: Expr, extent: int) -> Expr:
    high = apply("add", (low, number(extent)))
    return Apply("logical_and", (Apply("ge", (index, low)), Apply("lt", (index, high))))


def _all(parts: Sequence[Expr]) -> Expr:
    out: Expr = _TRUE
    for part in parts:
        out = part if out == _TRUE else Apply("logical_and", (out, part))
    return out
