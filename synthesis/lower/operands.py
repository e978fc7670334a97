"""Which layouts to try for the operands of an op, and what each choice costs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from shardproof.synthesis.lower.emission import (
    INFINITE,
    available,
    lazy,
    place,
    price,
    primary,
    reading,
)
from shardproof.synthesis.lower.local_attributes import aligned, beside, match, split, without
from shardproof.synthesis.lower.state import State
from shardproof.verifier.kernel.layout import Layout, bound
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.ops.reduce import parse
from shardproof.verifier.kernel.program.program import Node
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.ops.classes import ALIGNED, ALONG, PRODUCTS

MAX_TRIES = 160
LATE = 1e3
"""Seconds charged for what a plan does not mean, but which is right where nothing else is found:
putting off a reduction that the next op would have to repeat, moving a weight, summing over tp the
gradient of a weight that tp splits."""

Layouts = tuple[Layout, ...]


@dataclass(frozen=True)
class Operator:
    """A node with its operands told apart: those that have layouts, those that take any."""

    node: Node
    fixed: tuple[int, ...]
    free: tuple[int, ...]


def cheapest(state: State, node: Node) -> Layouts | None:
    """The layouts of the operands at the least cost; None where no rule accepts any."""
    op = _operator(state, node)
    best: tuple[float, Layouts] | None = None
    for combination in _combinations(state, op):
        layouts = _complete(state, op, combination)
        cost = _seconds(state, op, layouts, best[0] if best else INFINITE)
        if cost is not None and (best is None or cost < best[0]):
            best = (cost, layouts)
            if cost == 0:
                break
    return best[1] if best else None


def _operator(state: State, node: Node) -> Operator:
    free = [i for i, v in enumerate(node.inputs) if lazy(state, v)]
    aligned_operands = node.op in ALIGNED
    if not aligned_operands or len(free) == len(node.inputs):
        for i in free:
            primary(state, node.inputs[i])
        free = []
    fixed = tuple(i for i in range(len(node.inputs)) if i not in free)
    return Operator(node, fixed, tuple(free))


def _combinations(state: State, op: Operator) -> Iterator[Layouts]:
    """Layouts to try for the fixed operands: as they are first, then with changes."""
    present = [[v.layout for v in available(state, op.node.inputs[i])] for i in op.fixed]
    yield from product(*present)
    pools = [
        list(dict.fromkeys([*present[k], *_variants(state, op.node, present, k)]))
        for k in range(len(op.fixed))
    ]
    ranked = product(*(range(len(p)) for p in pools))
    for picks in sorted(ranked, key=sum)[:MAX_TRIES]:
        if any(p >= len(have) for p, have in zip(picks, present, strict=True)):
            yield tuple(pool[p] for pool, p in zip(pools, picks, strict=True))


def _variants(state: State, node: Node, present: list[list[Layout]], k: int) -> Iterator[Layout]:
    """Layouts worth moving operand `k` to: less split, or as another operand is."""
    mine = present[k][0]
    tp, mesh = state.setting.choices.tp, state.setting.mesh
    if (
        tp
        and state.setting.choices.stream != "R"
        and len(mine.dims) == 3
        and mine.fold(tp) == "sum"
    ):
        reduced = split(without(mine, (tp,)), tp, mesh[tp], 1)
        if reduced is not None:
            yield reduced
    for name in mine.mentioned:
        yield without(mine, (name,))
    if len(mine.mentioned) > 1:
        yield without(mine, mine.mentioned)
    others = [layout for i, layouts in enumerate(present) if i != k for layout in layouts]
    if lookup(node.op).kind == "map" or node.op == "concat":
        yield from (x for x in (match(mine, o) for o in others) if x is not None)
    elif node.op in PRODUCTS and len(present) == 2:
        factors, _ = parse(lookup(node.op).signature)
        for other in others:
            for at, factor in enumerate(factors[k]):
                if factor in factors[1 - k]:
                    moved = aligned(mine, at, other.dims[factors[1 - k].index(factor)])
                    if moved is not None and moved != mine:
                        yield moved
    elif node.op in ALONG or (node.op == "index_add" and k == 1):
        yield from (x for x in (match(mine, o) for o in others) if x is not None)


def _complete(state: State, op: Operator, combination: Layouts) -> Layouts:
    """Layouts of all operands: broadcasts take the layout of the others."""
    inputs, types = op.node.inputs, state.program.types
    chosen = dict(zip(op.fixed, combination, strict=True))
    rank = max(len(types[v].shape) for v in inputs)
    for i in op.free:
        shape = types[inputs[i]].shape
        dims = list(beside(shape, combination, rank).dims)
        source = state.producer[inputs[i]]
        if source.op == "expand":
            inner = primary(state, source.inputs[0]).layout
            extra = len(shape) - len(inner.dims)
            for at, dim in enumerate(inner.dims):
                if dim and bound(dim) and not bound(dims[at + extra]):
                    dims[at + extra] = dim
        chosen[i] = Layout(tuple(dims))
    return tuple(chosen[i] for i in range(len(inputs)))


def _seconds(state: State, op: Operator, layouts: Layouts, limit: float) -> float | None:
    """Seconds for moving the operands and running the op, None where it cannot be."""
    node, types = op.node, state.program.types
    total = 0.0
    for i in op.fixed:
        seconds = price(state, node.inputs[i], layouts[i])
        kept = node.inputs[i] in state.weights and not _leaves(
            state, node.inputs[i], node, state.setting.choices.whole
        )
        total += seconds + LATE if seconds and kept else seconds
        if total >= limit or total == INFINITE:
            return None
    placed = place(state, node, layouts, reading(state, node))
    if placed is None:
        return None
    if _late(state, node, layouts):
        return total + LATE
    result = placed[0].layouts[0]
    total += _reduction(state, node, layouts, result)
    if total == 0.0:
        return 0.0
    made = (state.scope, node.outputs[0])
    key = ("op", made, layouts, result)
    memo = state.setting.memo
    if key not in memo:
        operands = [
            TensorType(x.local_shape, types[v].dtype)
            for x, v in zip(layouts, node.inputs, strict=True)
        ]
        results = [TensorType(result.local_shape, types[node.outputs[0]].dtype)]
        memo[key] = state.setting.prices.op(made, operands, results)
    return total + memo[key]


def _reduction(state: State, node: Node, layouts: Layouts, result: Layout) -> float:
    """Seconds of the reduction that a product with a newly pending sum will need."""
    if node.op not in PRODUCTS:
        return 0.0
    new = result.pending - {n for x in layouts for n in x.pending}
    if state.setting.choices.tp in new and node.outputs[0] in state.gradients:
        return LATE
    size = TensorType(result.local_shape, state.program.types[node.outputs[0]].dtype).nbytes
    return sum(state.setting.prices.exposed("reduce_scatter", n, size) for n in new)


def _late(state: State, node: Node, layouts: Layouts) -> bool:
    """Whether an op comes before a collective that belongs in front of it.

    A module's result is reduced (or gathered) before it leaves the module, and an activation that
    waits for a sum is reduced before a tensor scales it, so that other readers find it reduced.
    """
    choices = state.setting.choices
    tp = choices.tp
    if not tp:
        return False
    if (state.scope, node.outputs[0]) in state.setting.forward:
        for name, layout in zip(node.inputs, layouts, strict=True):
            if layout.fold(tp) == "sum" and _leaves(state, name, node, choices.leaves):
                return True
            if tp in layout.sharded and _leaves(state, name, node, choices.whole):
                return True
    if node.op != "mul":
        return False
    small = any(not any(x.local_shape) for x in layouts)
    return not small and any(x.fold(tp) == "sum" for x in layouts)


def _leaves(state: State, name: str, node: Node, modules: frozenset[str]) -> bool:
    """Whether a value crosses from one of these modules, which made it, to another one."""
    made = state.producer.get(name)
    if made is None or not made.source.module or not state.program.types[name].is_float:
        return False
    return made.source.module in modules and made.source.module != node.source.module
