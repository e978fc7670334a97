"""Whether a store accumulates: `C[i] = C[i] + e`, with which fold."""

from dataclasses import dataclass

from shardproof.synthesis.frontends.tir.leaves import Leaf
from shardproof.synthesis.frontends.tir.tree import Apply, Expr, Load, Store, loads

FOLDS = {"add": "sum", "maximum": "max", "minimum": "min", "sub": "sum"}


@dataclass(frozen=True, slots=True)
class Update:
    """`target = fold(target, value)`, or minus the value."""

    fold: str
    value: Expr
    negated: bool = False


def update_of(store: Store) -> Update | None:
    """The update that a store is, None for a plain assignment."""
    value = store.value
    if not isinstance(value, Apply) or value.op not in FOLDS or len(value.args) != 2:
        return None
    own = Load(store.buffer, store.indices)
    for at in (0, 1) if value.op != "sub" else (0,):
        rest = value.args[1 - at]
        if value.args[at] == own and all(x.buffer != store.buffer for x in loads(rest)):
            return Update(FOLDS[value.op], rest, value.op == "sub")
    if value.op == "add":
        return _chain(store, own, value)
    return None


def _chain(store: Store, own: Load, value: Apply) -> Update | None:
    """`(C + a) + b`: the sum of what is added to the target."""
    inner = update_of(Store(store.buffer, store.indices, value.args[0]))
    rest = value.args[1]
    if inner is None or inner.fold != "sum" or any(x.buffer == store.buffer for x in loads(rest)):
        return None
    if inner.negated:
        return Update("sum", Apply("sub", (rest, inner.value), place=value.place))
    return Update("sum", Apply("add", (inner.value, rest), place=value.place))


def reads_of(leaf: Leaf) -> tuple[Load, ...]:
    """Elements that a leaf reads, the accumulator of an update left out."""
    update = update_of(leaf.store)
    if update is None:
        return leaf.reads
    return loads(update.value) + tuple(x for i in leaf.store.indices for x in loads(i))
