"""Elements of buffers as tensors over the variables of their indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardproof.synthesis.frontends.tir.affine import NeedsSplit, NotAffine, compact, linear
from shardproof.synthesis.frontends.tir.memory import Box, Uninitialised
from shardproof.synthesis.frontends.tir.tree import (
    Const,
    Expr,
    Load,
    loads,
    number,
    substitute,
    variables,
)

if TYPE_CHECKING:
    from shardproof.synthesis.frontends.tir.emit import LeafEmitter

MAX_UNROLLED = 64
"""Windows and diagonals are read entry by entry, up to this many."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A value whose dims are variables."""

    value: str
    vars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Dim:
    """One index: digits of variables from `low` on, by `step`; or a gather."""

    low: int
    count: int
    step: int = 1
    digits: tuple[str, ...] = ()
    flip: bool = False
    index: Lab | None = None

    @property
    def box(self) -> tuple[int, int]:
        return self.low, self.low + (self.count - 1) * self.step + 1


def read(e: LeafEmitter, load: Load, budget: int = MAX_UNROLLED) -> Lab | Const:
    """A tensor of the elements that `load` reads over all iterations. Raises TirError."""
    shape = e.memory[load.buffer].shape
    dims: list[_Dim] = []
    trouble: set[str] = set()
    seen: set[str] = set()
    for dim, (index, size) in enumerate(zip(load.indices, shape, strict=True)):
        made = _gather(e, load, dim, size) if loads(index) else _affine(e, load, index)
        if isinstance(made, _Dim):
            own = set(made.index.vars if made.index else made.digits)
            trouble |= own & seen
            seen |= own
            dims.append(made)
        else:
            trouble |= made
    if trouble:
        return _unrolled(e, load, min(trouble, key=lambda v: (e.extents[v], v)), budget)
    return _boxed(e, load, dims)


def _affine(e: LeafEmitter, load: Load, index: Expr) -> _Dim | frozenset[str]:
    """Digits, or else the variables of which some must be fixed first."""
    try:
        form = linear(index, e.extents)
    except (NotAffine, NeedsSplit):
        used = variables(index)
        if used:
            return used
        e.fail(load.place, f"an index of {load.buffer} is not integer arithmetic")
    if len(form.terms) == 1 and form.terms[0][1] < 0:
        ((var, coef),) = form.terms
        count = e.extents[var]
        return _Dim(form.const + coef * (count - 1), count, -coef, (var,), True)
    digits = compact(form.terms, e.extents)
    if digits is None:
        return frozenset(v for v, _ in form.terms)
    count = 1
    for v in digits:
        count *= e.extents[v]
    return _Dim(form.const, count, min((c for _, c in form.terms), default=1), tuple(digits))


def _gather(e: LeafEmitter, load: Load, dim: int, size: int) -> _Dim:
    index = e.tensor(load.indices[dim])
    if isinstance(index, Const) or e.kind(index) != "integer":
        e.fail(load.place, f"index {dim} of {load.buffer} is not an integer tensor")
    e.gathered(load, dim, size)
    return _Dim(0, size, index=index)


def _unrolled(e: LeafEmitter, load: Load, var: str, budget: int) -> Lab | Const:
    extent = e.extents[var]
    if extent > budget:
        e.fail(
            load.place,
            f"an index of {load.buffer} overlaps from one iteration to the next, or is not affine",
            expected=f"digits such as i0 * 32 + i1, or at most {MAX_UNROLLED} values one by one",
            got=f"{extent} values of {var}",
        )
    parts: list[Lab | Const] = []
    for at in range(extent):
        fixed = tuple(substitute(i, {var: number(at)}) for i in load.indices)
        parts.append(read(e, Load(load.buffer, fixed, load.place), budget // extent))
    if all(p == parts[0] for p in parts) and isinstance(parts[0], Const):
        return parts[0]
    rest = [v for v in e.order if v != var and any(v in _vars(p) for p in parts)]
    lines = [e.align(e.lab(p, e.memory[load.buffer].dtype), rest, full=True) for p in parts]
    shape = tuple(e.extents[v] for v in rest)
    rows = [e.views.reshape(line, (1, *shape)) for line in lines]
    return Lab(e.views.add("concat", *rows, dim=0), (var, *rest))


def _vars(part: Lab | Const) -> tuple[str, ...]:
    return part.vars if isinstance(part, Lab) else ()


def _boxed(e: LeafEmitter, load: Load, dims: Sequence[_Dim]) -> Lab | Const:
    memory, views = e.memory[load.buffer], e.views
    inside: list[tuple[int, int]] = []
    for d, size in zip(dims, memory.shape, strict=True):
        lo, hi = d.box
        inside.append((min(max(lo, 0), size - 1), max(min(hi, size), 1)))
    box: Box = tuple(inside)
    try:
        content = memory.read(box)
    except Uninitialised as error:
        e.uninitialised(load, error.box)
    if not isinstance(content, str):
        return e.constant(content, memory.dtype)
    value = content
    shape: list[int] = []
    labels: list[str] = []
    gather: tuple[int, Lab] | None = None
    for at, d in enumerate(dims):
        lo, hi = d.box
        # only reads under a false condition leave the buffer: what they see does not matter
        first, last = box[at]
        if lo < first or hi > last:
            value = views.add("pad", value, dim=at, lo=first - lo, hi=hi - last)
        value = views.slice(value, at, 0, hi - lo, d.step)
        if d.flip:
            value = views.add("flip", value, dim=at)
        if d.index is not None:
            if gather is not None:
                e.fail(load.place, f"{load.buffer} is gathered along two dims")
            gather = len(labels), d.index
            shape.append(d.count)
            labels.append("")
        shape += [e.extents[v] for v in d.digits]
        labels += d.digits
    value = views.reshape(value, shape)
    if gather is not None:
        at, index = gather
        value = views.add("take", value, index.value, dim=at, offset=0)
        labels[at : at + 1] = index.vars
    return Lab(value, tuple(labels))
