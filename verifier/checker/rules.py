"""What must hold between the claims of operands and the claim of a result, op by op.

Each rule is given the claimed layout of the result, checks it, and says what the result then makes
up. It looks at no term: what it says of a step holds for all operands. Written against the meaning
of layouts, apart from the ops' own rules.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from shardproof.verifier.checker import collectives, rows, views
from shardproof.verifier.checker.claims import Claim, Row, need
from shardproof.verifier.checker.step import Made, Step, others, pending, sums
from shardproof.verifier.kernel.instance import JOINED, Instance, Piece
from shardproof.verifier.kernel.layout import Dim, Layout, bound, global_extent, local_extent
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import FLOATS, Affine, Mesh
from shardproof.verifier.terms import Terms

LINEAR: dict[str, tuple[frozenset[int], ...]] = {
    **dict.fromkeys(("neg", "mul_scalar", "cast", "div"), (frozenset({0}),)),
    **dict.fromkeys(("add", "sub"), (frozenset({0, 1}),)),
    "mul": (frozenset({0}), frozenset({1})),
    "where": (frozenset({1, 2}),),
}
"""Elementwise ops through which a pending sum passes: groups of operands, jointly linear."""
MONOTONE = {("maximum", "max"), ("minimum", "min"), ("cast", "max"), ("cast", "min")}
RISING = {("gt", 0), ("ge", 0), ("lt", 1), ("le", 1), ("exp", 0), ("relu", 0), ("add_scalar", 0)}
"""Elementwise ops through which a maximum, or a minimum, of one operand passes: where that grows,
the result does not fall."""
FACTORS = {"mm": ("mk", "kn", "mn"), "bmm": ("bmk", "bkn", "bmn")}
FOLDS = {"sum": "sum", "amax": "max"}
"""What a split dim leaves in a reduction; of others, what their declarations say to the checker."""
BOOLEAN = frozenset({"neg", "add", "sub"})
"""Ops that mean something else on bools alone than on the reals."""


def derive(step: Step) -> Made:
    """What the result makes up under its claimed layout. Raises NotShownError."""
    op = step.op
    need(covered(op), f"the checker has no rule for {op}")
    return _RULES.get(op, _KINDS.get(lookup(op).kind, _map))(step)


def covered(op: str) -> bool:
    """Whether a rule for the op is known here."""
    return op in _RULES or lookup(op).kind in ("map", *_KINDS)


def real(program: Program) -> None:
    """Every op means over numbers what its term says over the reals. Raises NotShownError."""
    for holder, node in program.distinct():
        if node.op in BOOLEAN:
            dtypes = {holder.types[v].dtype for v in node.inputs}
            need(dtypes != {"bool"}, f"{node.op} of bools")
        if node.op in ("full", "add_scalar") and not holder.types[node.outputs[0]].is_float:
            value = node.attrs["value"]
            whole = isinstance(value, int) or getattr(value, "denominator", 0) == 1
            need(whole, f"{node.op} of a fraction on integers")


def _map(step: Step) -> Made:
    dims = step.layout.dims
    for claim in step.args:
        mine = claim.layout.dims
        lead = len(dims) - len(mine)
        need(lead >= 0, "an operand has more dims than the result")
        for theirs, dim in zip(dims[lead:], mine, strict=True):
            need(dim in ((), theirs), "an operand is split otherwise than the result")
    op = step.op
    names = {n for c in step.args for n in c.layout.pending} | step.layout.pending
    for name in names:
        fold = step.layout.fold(name)
        holders = {i for i, c in enumerate(step.args) if c.layout.fold(name)}
        need(fold is not None and bool(holders), f"a fold over {name} appears or is lost")
        need(all(step.args[i].layout.fold(name) == fold for i in holders), "folds differ")
        if fold == "sum":
            ways = LINEAR.get(op, ())
            shares = holders | {i for i, c in enumerate(step.args) if c.zero}
            need(any(holders <= g <= shares for g in ways), f"{op} is not linear there")
        elif (op, fold) not in MONOTONE:
            alone = len(holders) == 1 and (op, min(holders)) in RISING
            need(alone, f"{op} does not commute with {fold}")
            fixed = [c.layout.mentioned for i, c in enumerate(step.args) if i not in holders]
            need(not any(name in dims for dims in fixed), f"the operands differ along {name}")
    if op == "cast" and step.layout.partial:
        need(step.attrs["dtype"] in FLOATS, "a cast to integers of a pending fold")
    return step.term()


def _product(step: Step) -> Made:
    left, right, result = FACTORS[step.op]
    dims: dict[str, Dim] = {}
    for claim, factors in zip(step.args, (left, right), strict=True):
        sums(claim.layout)
        for factor, dim in zip(factors, claim.layout.dims, strict=True):
            need(dims.setdefault(factor, dim) == dim, f"factor {factor} is split in two ways")
    need(step.layout.dims == tuple(dims[f] for f in result), "the result is split otherwise")
    contracted = [(n, "sum") for f in dims if f not in result for n in bound(dims[f])]
    pending(step, contracted, *(c.layout.partial for c in step.args))
    return step.term()


def _reduce(step: Step) -> Made:
    op = step.op
    fold = FOLDS.get(op, lookup(op).checked)
    dims, keep = step.ints("dims"), step.attrs["keepdim"]
    need(all(f == fold for _, f in step.first.partial), "another fold is pending")
    kept = [
        () if i in dims else dim for i, dim in enumerate(step.first.dims) if keep or i not in dims
    ]
    need(step.layout.dims == tuple(kept), "the result is split otherwise")
    folded = [(n, fold) for i in dims for n in bound(step.first.dims[i])]
    need(bool(fold) or not folded, f"{op} of a split dim")
    pending(step, folded, step.first.partial)
    return step.term()


def _offset(step: Step) -> Affine:
    """The offset as an affine value; a mesh dim of size 1 has no say in it."""
    offset = step.attrs["offset"]
    if not isinstance(offset, Affine):
        return Affine.of(offset)
    return Affine.of(offset.const, {n: c for n, c in offset.terms if step.mesh[n] > 1})


def _window(step: Step, rows: Dim) -> list[tuple[str, str]]:
    """The sum that a lookup in a window of `rows` leaves: each rank holds one block of them."""
    names = bound(rows)
    if not names:
        need(_offset(step) == Affine(), "the window of whole rows is shifted")
        return []
    need(len(names) == 1 and rows[0].mesh_dim == names[0], "rows are not split in one block")
    need(_offset(step) == Affine.of(0, {names[0]: local_extent(rows)}), "the window is another")
    return [(names[0], "sum")]


def _take(step: Step) -> Made:
    x, index = (c.layout for c in step.args)
    dim = step.at("dim")
    sums(x)
    need(not index.partial, "the index is pending")
    need(step.layout.dims == (*x.dims[:dim], *index.dims, *x.dims[dim + 1 :]), "split otherwise")
    pending(step, x.partial, _window(step, x.dims[dim]))
    return step.term(offset=0)


def _take_along(step: Step) -> Made:
    x, index = (c.layout for c in step.args)
    dim = step.at("dim")
    sums(x)
    need(not index.partial, "the index is pending")
    need(
        all(i == dim or a == b for i, (a, b) in enumerate(zip(x.dims, index.dims, strict=True))),
        "values and index are split differently",
    )
    need(step.layout.dims == index.dims, "split otherwise")
    pending(step, x.partial, _window(step, x.dims[dim]))
    return step.term(offset=0)


def _index_add(step: Step) -> Made:
    values, index = (c.layout for c in step.args)
    n = len(index.dims)
    sums(values)
    need(not index.partial, "the index is pending")
    need(values.dims[:n] == index.dims, "values and index are split differently")
    rows = step.layout.dims[0]
    need(step.layout.dims[1:] == values.dims[n:], "split otherwise")
    _window(step, rows)
    added = [(name, "sum") for dim in index.dims for name in bound(dim)]
    pending(step, values.partial, added)
    return step.term(offset=0, size=global_extent(rows))


def _put_along(step: Step) -> Made:
    values, index = (c.layout for c in step.args)
    dim = step.at("dim")
    sums(values)
    need(not index.partial, "the index is pending")
    need(values.dims == index.dims, "values and index are split differently")
    need(not bound(values.dims[dim]), "the index is split along its line")
    others(step, dim)
    _window(step, step.layout.dims[dim])
    pending(step, values.partial)
    return step.term(offset=0, size=global_extent(step.layout.dims[dim]))


def _full(step: Step) -> Made:
    need(not step.layout.partial, "a constant is not a share of a sum")
    return step.term(shape=step.layout.global_shape)


def _iota(step: Step) -> Made:
    need(not step.layout.partial, "a ramp is not a share of a sum")
    offset = _offset(step)
    stride, seen = 1, dict[str, int]()
    for atom in reversed(step.layout.dims[step.at("dim")]):
        if atom.mesh_dim is None:
            need(not seen, "the ramp is not split in blocks")
        else:
            seen[atom.mesh_dim] = stride
        stride *= atom.size
    need(Affine.of(offset.const, seen) == offset, "the ramp starts elsewhere")
    return step.term(shape=step.layout.global_shape, offset=offset.const)


_KINDS: dict[str, Callable[[Step], Made]] = {"reduce": _reduce, "rows": rows.whole}
"""Rules for ops that none is written for: they ask for more, and are given less."""
_RULES: dict[str, Callable[[Step], Made]] = {
    **dict.fromkeys(FACTORS, _product),
    **dict.fromkeys(("slice", "pad"), views.cut),
    "reshape": views.reshape,
    "permute": views.permute,
    "expand": views.expand,
    "concat": views.concat,
    "flip": views.flip,
    "take": _take,
    "take_along": _take_along,
    "index_add": _index_add,
    "put_along": _put_along,
    "full": _full,
    "iota": _iota,
    "cumsum": rows.cumsum,
    "topk_index": rows.topk_index,
    "dropout_mask": rows.dropout_mask,
    "all_reduce": collectives.all_reduce,
    "reduce_scatter": collectives.reduce_scatter,
    "all_gather": collectives.all_gather,
    "shard_slice": collectives.shard_slice,
    "all_to_all": collectives.all_to_all,
    "on_coord": collectives.on_coord,
    "shard_pad": collectives.shard_pad,
}


class Steps:
    """Collects them while a certificate is checked."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.seen: dict[tuple[object, ...], Callable[[], Instance]] = {}
        self.made: dict[tuple[object, ...], Made] = {}
        self.tables: list[Terms] = []

    def derived(
        self,
        op: str,
        attrs: Mapping[str, Any],
        given: Sequence[Claim],
        dtypes: tuple[str, ...],
        row: Row,
        layout: Layout,
    ) -> Made:
        """What a rule of the checker makes of claims about operands of these dtypes.

        Raises NotShownError.
        """
        key = self.add(op, attrs, given, dtypes, op, row, layout)
        found = self.made.get(key)
        if found is None:
            step = Step(op, dict(attrs), _pieces(given, dtypes), layout, self.mesh)
            found = self.made[key] = derive(step)
        return found

    def add(
        self,
        op: str,
        attrs: Mapping[str, Any],
        given: Sequence[Claim],
        dtypes: tuple[str, ...],
        rule: str,
        row: Row,
        layout: Layout | None = None,
    ) -> tuple[object, ...]:
        """Take note of a step, and say by what it is told from others."""
        layout = layout or row.layout
        laid = [layout, *(c.layout for c in given)]
        wheres = [row.where, *(c.where for c in given)]
        if op != JOINED and "mesh_dim" not in attrs:
            names = {name for where in wheres for name, _ in where}
            wheres = wheres if any(names & one.mentioned for one in laid) else []
        zeros = tuple(c.is_zero for c in given)
        named = tuple(sorted(attrs.items()))
        key = (rule, op, named, *laid, *wheres, zeros, dtypes)
        if key not in self.seen:
            made = Piece(layout, row.where)
            pieces = _pieces(given, dtypes)
            self.seen[key] = partial(Instance, rule, op, named, pieces, made, self.mesh)
        return key

    def instances(self) -> list[Instance]:
        """Those that came up, in their order."""
        return [made() for made in self.seen.values()]


def _pieces(given: Sequence[Claim], dtypes: tuple[str, ...]) -> tuple[Piece, ...]:
    kinds = dtypes or ("f32",) * len(given)
    return tuple(
        Piece(c.layout, c.where, kind, c.is_zero) for c, kind in zip(given, kinds, strict=True)
    )
