"""One store as ops over all its iterations: maps, reductions, products, views."""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NoReturn

from shardproof.synthesis.frontends.tir import reductions
from shardproof.synthesis.frontends.tir.affine import NeedsSplit, NotAffine, compact, linear
from shardproof.synthesis.frontends.tir.errors import TirError, fail
from shardproof.synthesis.frontends.tir.gathers import Lab, read
from shardproof.synthesis.frontends.tir.leaves import Flat, Iter, Leaf
from shardproof.synthesis.frontends.tir.memory import Box, Memory, Uninitialised, Views
from shardproof.synthesis.frontends.tir.tree import (
    COMPARISONS,
    Apply,
    Const,
    Expr,
    Load,
    Place,
    Store,
    TIRVar,
    apply,
    children,
    loads,
    mapped,
    number,
    substitute,
)
from shardproof.synthesis.frontends.tir.updates import update_of
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.types import FLOATS, Attr, TensorType

FOLDED: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": lambda a, b: a / b,
    "maximum": max,
    "minimum": min,
}
ALIKE = frozenset({*COMPARISONS, "maximum", "minimum", "where", "div", "sub", "add", "mul"})


class LeafEmitter:
    """Turns one leaf into ops."""

    def __init__(self, flat: Flat, leaf: Leaf, memory: dict[str, Memory], views: Views) -> None:
        self.flat, self.memory, self.views = flat, memory, views
        self.leaf = _digits(leaf)
        self.extents = self.leaf.extents
        self.order = [i.name for i in self.leaf.iters]
        self.kinds: set[str] = set()
        self.assumptions: list[str] = []
        self.limits: dict[str, int] = {}
        """Integer buffers used as indices, and the extent they index."""

    def fail(
        self, place: Place, what: str, *, expected: str = "", got: str = "", hint: str = ""
    ) -> NoReturn:
        where = place if place.line else self.leaf.store.place
        fail(where, what, expected=expected, got=got, hint=hint)

    def uninitialised(self, load: Load, box: Box) -> NoReturn:
        param = any(p.name == load.buffer for p in self.flat.func.params)
        shown = ", ".join(f"{lo}:{hi}" for lo, hi in box)
        self.fail(
            load.place,
            f"{load.buffer} is read before it is written",
            expected="T.init, T.clear or a store first",
            got=f"nothing in {load.buffer}[{shown}]",
            hint=f"if the caller's values are meant, give inout=[{load.buffer!r}]" if param else "",
        )

    def gathered(self, load: Load, dim: int, size: int) -> None:
        self.kinds.add("gather")
        names = sorted({x.buffer for x in loads(load.indices[dim])})
        known = size if isinstance(load.indices[dim], Load) else 1
        for name in names:
            self.limits[name] = min(known, self.limits.get(name, known))
        shown = ", ".join(names)
        self.assumptions.append(f"indices of {load.buffer} read from {shown} are in range")

    # the store

    def run(self) -> None:
        """Emit the leaf. Raises TirError."""
        try:
            self._run()
        except TirError:
            raise
        except IRError as error:
            self.fail(self.leaf.store.place, str(error))

    def _run(self) -> None:
        store = self.leaf.store
        digits, box = self.target(store)
        kept = [v for dim in digits for v in dim]
        over = [v for v in self.order if v not in kept]
        memory = self.memory[store.buffer]
        update = update_of(store)
        if update is None:
            if over:
                self.fail(store.place, f"{store.buffer} is written once for each {over[0]}")
            made = self.tensor(store.value)
            self.kinds.add(_kind(store.value, made))
        else:
            made = reductions.reduced(self, update, over)
            try:
                old = memory.read(box)
            except Uninitialised as error:
                self.uninitialised(Load(store.buffer, store.indices, store.place), error.box)
            base: Lab | Const
            if isinstance(old, str):
                shape = [self.extents[v] for v in kept]
                base = Lab(self.views.reshape(old, shape), tuple(kept))
            else:
                base = self.constant(old, memory.dtype)
            made = reductions.combined(self, update, base, made, memory.dtype)
        self.write(store, made, kept, box)

    def target(self, store: Store) -> tuple[list[list[str]], Box]:
        """Digits of each dim of the store, and the box it fills."""
        digits: list[list[str]] = []
        box: list[tuple[int, int]] = []
        for dim, index in enumerate(store.indices):
            found = None
            try:
                form = linear(index, self.extents)
                found = compact(form.terms, self.extents)
            except (NotAffine, NeedsSplit):
                form = None
            if form is None or found is None or min((c for _, c in form.terms), default=1) != 1:
                self.fail(
                    store.place,
                    f"index {dim} of the store to {store.buffer} does not fill a box",
                    expected="a loop variable, digits such as i0 * 32 + i1, plus a constant",
                )
            digits.append(found)
            box.append((form.const, form.const + math.prod(self.extents[v] for v in found)))
        flat = [v for d in digits for v in d]
        if len(set(flat)) != len(flat):
            self.fail(store.place, f"one loop is in two indices of the store to {store.buffer}")
        return digits, tuple(box)

    def write(self, store: Store, made: Lab | Const, kept: list[str], box: Box) -> None:
        memory = self.memory[store.buffer]
        target = TensorType((), memory.dtype)
        kind = self.kind(made) if isinstance(made, Lab) else "float" if made.is_float else "integer"
        number_like = isinstance(made, Const) and target.kind == "float"
        if kind != target.kind and not number_like:
            self.fail(
                store.place,
                f"{'an' if kind == 'integer' else 'a'} {kind} is stored to {store.buffer}",
                expected=memory.dtype,
                hint="say T.cast where a conversion is meant",
            )
        if isinstance(made, Const):
            memory.write(box, made.value)
            return
        value = self.views.cast(made.value, memory.dtype)
        value = self.align(Lab(value, made.vars), kept, full=True)
        memory.write(box, self.views.reshape(value, [hi - lo for lo, hi in box]))

    # values

    def kind(self, lab: Lab) -> str:
        return self.views.b.types[lab.value].kind

    def constant(self, value: Fraction | float, dtype: str) -> Const:
        return Const(value, dtype in FLOATS)

    def lab(self, made: Lab | Const, dtype: str = "", place: Place | None = None) -> Lab:
        """A constant as a 0-d value."""
        if isinstance(made, Lab):
            return made
        if isinstance(made.value, float):
            self.fail(place or self.leaf.store.place, "an infinity is used as a number")
        default = "f32" if made.is_float else "i64"
        return Lab(self.views.full((), made.value, dtype or default), ())

    def align(self, lab: Lab, order: Sequence[str], full: bool = False) -> str:
        """The value with its dims in this order, 1 where it does not depend on a variable.

        With `full`, expanded to all of them; else without leading ones.
        """
        present = [v for v in order if v in lab.vars]
        value = self.views.permute(lab.value, [lab.vars.index(v) for v in present])
        shape = [self.extents[v] if v in present else 1 for v in order]
        if full:
            value = self.views.reshape(value, shape) if present != list(order) else value
            return self.views.expand(value, [self.extents[v] for v in order])
        while shape and shape[0] == 1:
            shape.pop(0)
        return self.views.reshape(value, shape)

    def map(self, op: str, *given: Lab, **attrs: Attr) -> Lab:
        """An elementwise op over the variables of its operands."""
        order = [v for v in self.order if any(v in x.vars for x in given)]
        args = [self.align(x, order) for x in given]
        return Lab(self.views.add(op, *args, **attrs), tuple(order))

    def tensor(self, expr: Expr) -> Lab | Const:
        """An expression over all iterations."""
        match expr:
            case Const():
                return expr
            case TIRVar(name=name):
                shape = (self.extents[name],)
                return Lab(self.views.add("iota", shape=shape, dim=0, offset=0), (name,))
            case Load():
                return read(self, expr)
            case Apply():
                return self._apply(expr)

    def _apply(self, expr: Apply) -> Lab | Const:
        if expr.op in ("floordiv", "floormod"):
            try:
                return self.tensor(linear(expr, self.extents).expr())
            except (NotAffine, NeedsSplit):
                self.fail(expr.place, "// and % of values that are not loop indices")
        args = [self.tensor(a) for a in expr.args]
        if expr.op == "cast":
            return self._cast(args[0], str(expr.attr))
        return self._op(expr, args)

    def joined(self, op: str, *args: Lab | Const) -> Lab | Const:
        """An op of values that are at hand."""
        return self._op(Apply(op, (), place=self.leaf.store.place), list(args))

    def _op(self, expr: Apply, args: list[Lab | Const]) -> Lab | Const:
        if all(isinstance(a, Const) for a in args) and expr.op in FOLDED:
            folded = self._folded(expr, [a for a in args if isinstance(a, Const)])
            if folded is not None:
                return folded
        if len(args) == 2 and expr.op in ALIKE:
            short = self._with_constant(expr, args[0], args[1])
            if short is not None:
                return short
        ints = [self._is_integer(a) for a in args]
        if expr.op == "div" and all(ints):
            self.fail(expr.place, "/ of two integers", hint="use // or T.cast to a float")
        dtype = next((self.views.b.types[a.value].dtype for a in args if isinstance(a, Lab)), "")
        if expr.op not in ALIKE:
            dtype = ""
        if expr.op == "where":
            floats = [a for a in args[1:] if isinstance(a, Lab)]
            dtype = self.views.b.types[floats[0].value].dtype if floats else ""
        labs = [self.lab(a, self._fits(a, dtype), expr.place) for a in args]
        attrs = {"exponent": expr.attr} if expr.op == "pow" else {}
        return self.map(expr.op, *labs, **attrs)

    def _fits(self, made: Lab | Const, dtype: str) -> str:
        """The dtype of a constant beside an operand: its own kind where that is wider."""
        if isinstance(made, Const) and made.is_float and dtype not in FLOATS:
            return "f32"
        return dtype if dtype != "bool" else ""

    def _is_integer(self, made: Lab | Const) -> bool:
        return not made.is_float if isinstance(made, Const) else self.kind(made) == "integer"

    def _cast(self, made: Lab | Const, dtype: str) -> Lab | Const:
        if isinstance(made, Const):
            if dtype in FLOATS:
                return Const(made.value, True)
            if dtype == "bool" or made.is_float:
                return self.map("cast", self.lab(made), dtype=dtype)
            return made
        return Lab(self.views.cast(made.value, dtype), made.vars)

    def _folded(self, expr: Apply, args: list[Const]) -> Const | None:
        a, b = args
        if isinstance(a.value, float) or isinstance(b.value, float):
            return None
        if expr.op == "div" and (b.value == 0 or not (a.is_float or b.is_float)):
            return None
        return Const(
            FOLDED[expr.op](Fraction(a.value), Fraction(b.value)), a.is_float or b.is_float
        )

    def _with_constant(self, expr: Apply, a: Lab | Const, b: Lab | Const) -> Lab | Const | None:
        """`x + 2` and the like, in ops that hold the number."""
        if isinstance(a, Const) == isinstance(b, Const):
            return None
        const, lab = (a, b) if isinstance(a, Const) else (b, a)
        assert isinstance(const, Const)
        assert isinstance(lab, Lab)
        value, op = const.value, expr.op
        if isinstance(value, float):
            neutral = {"maximum": -math.inf, "minimum": math.inf}
            return lab if neutral.get(op) == value else None
        if self.kind(lab) != "float" and (const.is_float or op == "div"):
            lab = self.map("cast", lab, dtype="f32")
        right = const is b
        if op == "add":
            return self.map("add_scalar", lab, value=value)
        if op == "mul":
            return self.map("mul_scalar", lab, value=value)
        if op == "sub":
            base = lab if right else self.map("neg", lab)
            return self.map("add_scalar", base, value=-value if right else value)
        if op == "div" and right and value:
            return self.map("mul_scalar", lab, value=Fraction(1) / value)
        if op == "div" and not right:
            inverse = self.map("reciprocal", lab)
            return inverse if value == 1 else self.map("mul_scalar", inverse, value=value)
        if op == "maximum" and value == 0:
            return self.map("relu", lab)
        return None


def _kind(value: Expr, made: Lab | Const) -> str:
    if isinstance(made, Const):
        return "fill"
    return "copy" if isinstance(value, Load) else "elementwise"


def _digits(leaf: Leaf) -> Leaf:
    """The leaf with variables split where quotients and remainders cut them."""
    while True:
        split = _cut(leaf)
        if split is None:
            return leaf
        iters: list[Iter] = []
        env: dict[str, Expr] = {}
        for item in leaf.iters:
            if item.name != split.var:
                iters.append(item)
                continue
            high = Iter(f"{item.name}/{split.size}", item.extent // split.size, item.kind)
            low = Iter(f"{item.name}%{split.size}", split.size, item.kind)
            iters += [high, low]
            big = apply("mul", (TIRVar(high.name), number(split.size)))
            env[item.name] = apply("add", (big, TIRVar(low.name)))
        store = mapped(leaf.store, lambda e, env=env: substitute(e, env))
        leaf = replace(leaf, store=store, iters=tuple(iters))


def _cut(leaf: Leaf) -> NeedsSplit | None:
    def visit(expr: Expr) -> NeedsSplit | None:
        if isinstance(expr, Apply) and expr.op in ("floordiv", "floormod"):
            try:
                linear(expr, leaf.extents)
            except NeedsSplit as split:
                return split
            except NotAffine:
                pass
        return next((s for c in children(expr) if (s := visit(c)) is not None), None)

    exprs = (*leaf.store.indices, leaf.store.value)
    return next((s for e in exprs if (s := visit(e)) is not None), None)
