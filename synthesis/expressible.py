"""Whether a candidate can be written as module styles.

Collectives of the forward pass stand only where a module begins or ends, since the owner's code
between modules runs on local tensors; what a module takes and gives is what its style says, and
what has no style moves nothing and splits nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from synthesis.forward import forward_values
from synthesis.lower import Lowered
from synthesis.roles import Module, heads
from verifier.kernel.program.program import Node, Program

MOVES = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "shard_slice"})
VIEWS = frozenset({"reshape", "permute", "cast"})


class Obstacle(NamedTuple):
    """What no module style says."""

    module: str
    """Where it stands."""
    text: str


def obstacle(
    program: Program,
    modules: Sequence[Module],
    kinds: Mapping[str, str],
    tp: str,
    size: int,
    gathered: frozenset[str] = frozenset(),
) -> Obstacle | None:
    """The first collective over tp that no module style can stand for, if any.

    Modules that are `gathered` have one behind their product.
    """
    if not any(n.source.module for _, n in program.walk()):
        return None
    parents = {path.rpartition(".")[0] for path in kinds}
    leaves = {m.path for m in modules} | {path for path in kinds if path not in parents}
    few_heads = {m.path.rpartition(".")[0] for m in modules if 0 < m.heads < size}
    whole = heads(list(modules)) | gathered
    plain = {m.path for m in modules if m.use == "other"}
    few_heads |= {m.path for m in modules if m.use == "recurrent"}
    for holder, node in _forward(program):
        if not _moves(node, tp):
            continue
        module = node.source.module
        if node.op == "shard_slice" and module in few_heads:
            continue
        if not module and node.op == "all_reduce":
            continue
        if module in leaves and node.op != "shard_slice":
            if module in plain and _within(holder, node):
                return Obstacle(module, f"needs {node.op} over {tp} in the middle of {node.source}")
            if module in whole or not _gathers_product(holder, node):
                continue
        where = str(node.source) or f"the model itself, on %{node.inputs[0]}"
        return Obstacle(module, f"needs {node.op} over {tp} inside {where}")
    return None


def _gathers_product(program: Program, node: Node) -> bool:
    """Whether a gather joins what a product of the same module made: between two column layers
    the styles have no word for it."""
    if node.op != "all_gather":
        return False
    producers = program.producers()
    made = producers.get(node.inputs[0])
    while made is not None and made.op in ("reshape", "permute", "add", "all_reduce"):
        made = producers.get(made.inputs[0])
    return (
        made is not None and made.op in ("mm", "bmm") and made.source.module == node.source.module
    )


def _within(program: Program, node: Node) -> bool:
    """Whether a collective's operand and its readers all belong to its own module."""
    made = program.producers().get(node.inputs[0])
    readers = [n for n in program.nodes if node.outputs[0] in n.inputs]
    around = [made.source.module if made else "", *(n.source.module for n in readers)]
    return all(module == node.source.module for module in around)


def unexpressed(
    lowered: Lowered,
    modules: Sequence[Module],
    styles: Mapping[str, str],
    stream: str,
    tp: str,
    size: int,
) -> Obstacle | None:
    """The first module whose style says something else than the forward pass does."""
    known = {m.path: styles[m.path] for m in modules}
    known |= {m.head: "column" for m in modules if m.head and styles[m.path] == "vocab"}
    known |= {m.head: "replicate" for m in modules if m.head and styles[m.path] == "replicate"}
    norms = {m.path for m in modules if m.is_norm}
    convs = {m.path for m in modules if m.use == "conv"}
    few = {m.path for m in modules if 0 < m.heads < size}
    for holder, node in _forward(lowered.program):
        path = node.source.module
        style = known.get(path)
        if style is None or path in norms or path in few:
            continue
        if _moves(node, tp) and (style in ("replicate", "channels") or path in convs):
            word = "has no style" if style == "replicate" else f"is {style}"
            if (style, node.op) not in (("row", "all_reduce"), ("gathered", "all_gather")):
                why = f"{path} {word}, and needs {node.op} over {tp}  {node.source}"
                return Obstacle(path, why)
        if style not in ("column", "fused_column", "row", "gathered") or node.op != "mm":
            continue
        moves = _before(holder.producers(), node, set(known) - norms - {path}, tp)
        why = _entry(holder, moves, style, stream, tp)
        if why:
            return Obstacle(path, f"{path} is {style}, and {why}  {node.source}")
    return _split_whole(lowered, known, norms | few, tp)


def _split_whole(
    lowered: Lowered, known: Mapping[str, str], others: set[str], tp: str
) -> Obstacle | None:
    """A module without a style whose parameters meet split activations: their gradients would
    need a reduction that nothing writes."""
    for pair in lowered.pairs:
        path = pair.one.source.module
        if known.get(path) != "replicate" or path in others:
            continue
        met = any(tp not in layout.sharded for layout in pair.operands)
        if met and tp in pair.result.sharded:
            why = f"{path} has no style, and works on a split activation  {pair.one.source}"
            return Obstacle(path, why)
    return None


def _before(producers: Mapping[str, Node], product: Node, others: set[str], tp: str) -> list[Node]:
    """Collectives over tp between a product and what made its activation, without those that end
    another module; one that begins another module may be shared."""
    moves: list[Node] = []
    made = producers.get(product.inputs[0])
    while made is not None and (_moves(made, tp) or made.op in VIEWS):
        moves += [made] if _moves(made, tp) else []
        made = producers.get(made.inputs[0])
    if made is None or made.source.module not in others:
        return moves
    return [m for m in moves if m.source.module != made.source.module]


def _entry(holder: Program, moves: list[Node], style: str, stream: str, tp: str) -> str | None:
    """Why the activation that a linear takes is not laid out as its style says."""
    if style == "row" or stream == "R":
        return f"needs {moves[0].op} over {tp} before it" if moves else None
    if len(moves) != 1 or moves[0].op != "all_gather":
        return f"takes an activation that is not split as the residual stream is, {stream}"
    if moves[0].attrs["dim"] == len(holder.types[moves[0].outputs[0]].shape) - 1:
        return f"needs its input gathered over {tp} along the last dim"
    return None


def _moves(node: Node, tp: str) -> bool:
    return node.op in MOVES and node.attrs["mesh_dim"] == tp


def _forward(program: Program) -> Iterator[tuple[Program, Node]]:
    """The nodes of the forward pass, with the program or the body that holds them."""
    forward = forward_values(program, state=False)
    for node in program.nodes:
        scope = node.outputs[0]
        if ("", scope) in forward:
            yield program, node
        for inner in node.body.nodes if node.body is not None else ():
            if (scope, inner.outputs[0]) in forward:
                yield node.block, inner
