"""How much of a model a plan splits: of its parameters and of its compute, and what stays whole."""

from collections import Counter
from collections.abc import Iterator
from math import prod

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Pair
from shardproof.synthesis.planner.narrowing import layered
from shardproof.synthesis.planner.roles import ATTENTION, UNREAD, Module, heads
from shardproof.synthesis.planner.scoring import Candidate
from shardproof.synthesis.planner.search import Found
from shardproof.synthesis.planner.uses import products
from shardproof.verifier.kernel.layout import global_extent
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.ops.classes import PRODUCTS

COLUMNS = ("column", "fused_column")


def shares(found: Found, tp: str, size: int) -> dict[str, float]:
    """`split_share` of the parameters that the mesh could split, and `compute_share` of the work of
    products: of the whole model, or without embedding and output projection, whichever is less.

    A product that is gathered at once counts as whole: all that reads it is computed on every rank.
    """
    vocabulary = heads(found.modules)
    outer = {m.path for m in found.modules if m.use == "embedding"} | vocabulary
    gathered = _gathered(found, vocabulary) | _read_whole(found, tp)
    rows = [
        (m.path, float(n), split and m.path not in gathered)
        for m, n, split in _splittable(found, tp, size)
    ]
    work = [(path, n, split and path not in gathered) for path, n, split in _products(found, tp)]
    measured = {"split_share": _least(rows, outer), "compute_share": _least(work, outer)}
    return {name: share for name, share in measured.items() if share is not None}


def _least(rows: list[tuple[str, float, bool]], outer: set[str]) -> float | None:
    inner = [row for row in rows if row[0] not in outer]
    found = [
        sum(n for _, n, split in some if split) / sum(n for _, n, _ in some)
        for some in (rows, inner)
        if some
    ]
    return min(found, default=None)


def left_whole(found: Found, tp: str, size: int) -> tuple[Module, str] | None:
    """The largest module that the mesh could split and the plan does not, and the obstacle."""
    rows = [r for r in _splittable(found, tp, size) if not r[2]]
    if not rows:
        return None
    module = max(rows, key=lambda row: row[1])[0]
    why = found.obstacles.get(module.path)
    if why is None:
        nodes = (n for _, n in found.program.walk() if n.source.module == module.path)
        at = next((str(n.source) for n in nodes if n.source.line), module.path)
        why = f"{module.kind or 'its class'} has no style that shards it  {at}"
    return module, why


def attention_left_whole(found: Found, tp: str) -> tuple[str, ...]:
    """The modules of attention whose scores every rank computes in full, one path for all layers.

    They are known by linears inside that make heads, or by two products of activations.
    """
    around = {m.path.rpartition(".")[0] or m.path for m in found.modules if m.heads > 1}
    around |= {m.path for m in found.modules if m.kind == ATTENTION}
    activations = Counter(
        pair.one.source.module
        for pair in _forward(found)
        if pair.one.op == "bmm" and global_extent(pair.result.dims[0]) > 1
    )
    around |= {path for path, count in activations.items() if count > 1 and path}
    owned = {m.path for m in found.modules if m.kind != ATTENTION}
    whole: dict[str, None] = {}
    for pair in _forward(found):
        at, op = pair.one.source.module, pair.one.op
        scores = op == "bmm" or at not in owned
        if op in PRODUCTS and scores and not _is_split(pair, tp):
            inside = (p for p in around if at == p or at.startswith(f"{p}."))
            whole |= dict.fromkeys(layered(p) for p in inside)
    return tuple(whole)


def beside_column(module: Module, best: Candidate) -> bool:
    """Whether a module beside it is split by its outputs."""
    parent = module.path.rpartition(".")[0]
    return any(
        path.rpartition(".")[0] == parent and style in COLUMNS for path, style in best.point.styles
    )


def _gathered(found: Found, vocabulary: frozenset[str]) -> set[str]:
    """Products whose split result is made whole at once; not the output projection, which nothing
    in the model reads, and no table, which computes nothing."""
    styles = dict(found.best.point.styles)
    return {
        m.path
        for m in found.modules
        if styles[m.path] == "gathered" and m.use != "embedding" and m.path not in vocabulary
    }


def _read_whole(found: Found, tp: str) -> set[str]:
    """Convolutions of which all that reads the channels gathers them first."""
    styles = dict(found.best.point.styles)
    convs = {m.path for m in found.modules if m.use == "conv" and styles[m.path] in COLUMNS}
    program, out, used = found.best.lowered.program, set[str](), set[str]()
    forward = {value for _, value in forward_values(program)}
    for held, node in program.walk():
        path = node.source.module
        if node.op not in PRODUCTS or path not in convs or node.outputs[0] not in forward:
            continue
        todo, seen = [*node.outputs], set[str]()
        while todo:
            value = todo.pop()
            read = [n for n in held.nodes if value in n.inputs and n.outputs[0] in forward]
            for reader in (n for n in read if n.outputs[0] not in seen):
                seen.add(reader.outputs[0])
                kind = lookup(reader.op).kind
                if kind == "collective" and reader.attrs["mesh_dim"] == tp:
                    out.add(path)
                elif kind in ("map", "view"):
                    todo += reader.outputs
                else:
                    used.add(path)
            used |= {path} if not read else set()
    return out - used


def _splittable(found: Found, tp: str, size: int) -> list[tuple[Module, int, bool]]:
    """(module, numbers, whether they are split) of parameters with a dim that divides, of modules
    that an output depends on."""
    rows: list[tuple[Module, int, bool]] = []
    beside = [m for m in found.modules if 0 < m.heads < size and beside_column(m, found.best)]
    for module in (m for m in found.modules if m.order < UNREAD):
        for param in module.params:
            if len(param.shape) < 2 or all(n % size for n in param.shape):
                continue
            layout = found.best.lowered.contract.inputs[param.name]
            split = tp in layout.sharded or module in beside
            rows.append((module, prod(layout.global_shape), split))
    return rows


def _products(found: Found, tp: str) -> Iterator[tuple[str, float, bool]]:
    """(module, multiplications of a step on one device, whether ranks share them) of the products
    of the forward pass."""
    work = products(found.program)
    for pair in found.best.lowered.pairs:
        path = pair.one.source.module
        times = work.get((pair.scope, pair.one.outputs[0], path))
        if times is not None:
            yield path, times, _is_split(pair, tp)


def _forward(found: Found) -> Iterator[Pair]:
    forward = forward_values(found.program)
    pairs = found.best.lowered.pairs
    return (p for p in pairs if (p.scope, p.one.outputs[0]) in forward)


def _is_split(pair: Pair, tp: str) -> bool:
    return any(tp in layout.sharded for layout in pair.operands)
