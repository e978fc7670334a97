"""Whether the styles of a point stand for the collectives of its program: what a module takes and
gives is what its style says, and what has no style moves nothing and splits nothing."""

from collections.abc import Mapping, Sequence

from synthesis.emittable import MOVES
from synthesis.forward import forward_values
from synthesis.lower import Lowered
from synthesis.roles import Module
from verifier.kernel.layout import bound
from verifier.kernel.program.program import Node, Program

VIEWS = frozenset({"reshape", "permute", "cast"})


def unexpressed(
    lowered: Lowered,
    modules: Sequence[Module],
    styles: Mapping[str, str],
    stream: str,
    tp: str,
    size: int,
) -> str | None:
    """The first module whose style says something else than the forward pass does, in words."""
    known = {m.path: styles[m.path] for m in modules}
    known |= {m.head: "column" for m in modules if m.head and styles[m.path] == "vocab"}
    known |= {m.head: "replicate" for m in modules if m.head and styles[m.path] == "replicate"}
    norms = {m.path for m in modules if m.is_norm}
    few = {m.path for m in modules if 0 < m.heads < size}
    forward = forward_values(lowered.program)
    for scope, holder in _holders(lowered.program):
        producers = holder.producers()
        for node in holder.nodes:
            path = node.source.module
            style = known.get(path)
            if style is None or path in norms or path in few:
                continue
            if (scope, node.outputs[0]) not in forward:
                continue
            if style == "replicate" and _moves(node, tp):
                return f"{path} has no style, and needs {node.op} over {tp}  {node.source}"
            if style not in ("column", "fused_column", "row") or node.op != "mm":
                continue
            moves = _before(producers, node, set(known) - norms - {path}, tp)
            why = _entry(holder, moves, style, stream, tp)
            if why:
                return f"{path} is {style}, and {why}  {node.source}"
    return _split_whole(lowered, known, norms | few, tp)


def _split_whole(
    lowered: Lowered, known: Mapping[str, str], others: set[str], tp: str
) -> str | None:
    """A module without a style whose parameters meet split activations: their gradients would
    need a reduction that nothing writes."""
    for pair in lowered.pairs:
        path = pair.one.source.module
        if known.get(path) != "replicate" or path in others:
            continue
        if any(tp in bound(dim) for dim in pair.result.dims):
            return f"{path} has no style, and works on a split activation  {pair.one.source}"
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
        return f"takes an activation that is not split as the stream, {stream}"
    if moves[0].attrs["dim"] == len(holder.types[moves[0].outputs[0]].shape) - 1:
        return f"needs its input gathered over {tp} along the last dim"
    return None


def _moves(node: Node, tp: str) -> bool:
    return node.op in MOVES and node.attrs["mesh_dim"] == tp


def _holders(program: Program) -> list[tuple[str, Program]]:
    bodies = [(n.outputs[0], n.body) for n in program.nodes if n.body is not None]
    return [("", program), *bodies]
