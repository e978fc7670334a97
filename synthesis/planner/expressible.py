"""Whether a candidate can be written as module styles.

Collectives of the forward pass stand only where a module begins or ends, since the owner's code
between modules runs on local tensors; what a module takes and gives is what its style says, and
what has no style moves nothing and splits nothing.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Lowered
from shardproof.synthesis.planner.arguments import reading, taken
from shardproof.synthesis.planner.dims import dim_of
from shardproof.synthesis.planner.roles import Module, heads
from shardproof.synthesis.planner.shared import Shared, ends
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import (
    ALONG,
    PIECES,
    PRODUCTS,
    REARRANGING,
    REDUCING,
    SCATTERS,
    VIEWS,
)


class Obstacle(NamedTuple):
    """What no module style says."""

    module: str
    """Where it stands."""
    text: str
    before: bool = False
    """Whether what makes its operand is at fault."""
    makers: frozenset[str] = frozenset()
    """The modules that the other operands of what asks for it come from."""
    piece: tuple[str, int] | None = None
    """The parameter of which a rank works on its piece, along this dim."""


@dataclass(frozen=True)
class Passed:
    """A forward pass that is looked at, as far as it is lowered."""

    lowered: Lowered
    since: int = 0
    """The first op that is looked at; those before it were."""
    ended: bool = True

    @property
    def named(self) -> bool:
        """Whether ops say which module they are of."""
        return any(n.source.module for _, n in self.lowered.program.walk())

    @cached_property
    def steps(self) -> list[tuple["Scope", Node]]:
        """The nodes, with the program or the body that holds them."""
        program = self.lowered.program
        forward = forward_values(program, state=False, since=self.since)
        top, found = Scope(program), list[tuple[Scope, Node]]()
        for node in program.nodes[self.since :]:
            scope = node.outputs[0]
            if ("", scope) in forward:
                found.append((top, node))
            if node.body is not None:
                names = (i.name for i in node.body.inputs)
                held = Scope(node.body, dict(zip(names, node.inputs, strict=True)))
                inside = (n for n in node.body.nodes if (scope, n.outputs[0]) in forward)
                found += ((held, inner) for inner in inside)
        return found


@dataclass(frozen=True)
class Scope:
    """A program or a body, with who makes and who reads its values."""

    program: Program
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of a body, the value outside that each input is, or is a layer of."""

    @cached_property
    def producers(self) -> dict[str, Node]:
        return self.program.producers()

    def is_moved(self, value: str, tp: str) -> bool:
        made = self.producers.get(value)
        return made is not None and _moves(made, tp)

    def readers(self, value: str) -> Iterator[Node]:
        return (n for n in self.program.nodes if value in n.inputs)


def obstacle(
    passed: Passed,
    modules: Sequence[Module],
    kinds: Mapping[str, str],
    tp: str,
    size: int,
    gathered: frozenset[str] = frozenset(),
    pieces: Collection[str] = (),
) -> Obstacle | None:
    """The first collective over tp that no module style can stand for, if any.

    Modules that are `gathered` have one behind their product, and norms of whose parameters a rank
    has `pieces` have theirs inside.
    """
    if not passed.named:
        return None
    moves = [(scope, node) for scope, node in passed.steps if _moves(node, tp)]
    if not moves:
        return None
    parents = {path.rpartition(".")[0] for path in kinds}
    owners = {m.path for m in modules}
    leaves = owners | {path for path in kinds if path not in parents}
    few_heads = {m.path.rpartition(".")[0] for m in modules if 0 < m.heads < size}
    whole = heads(list(modules)) | gathered
    plain = {m.path for m in modules if m.use == "other"}
    raw = {m.path for m in modules if m.path in plain and m.params and not m.is_plain_norm}
    recurrent = {m.path for m in modules if m.use == "recurrent"}
    last, _ = returned(passed) or (None, 0)
    own = {m.path for m in modules if m.own}
    made = {m.path for m in modules if m.made}
    norms = {m.path: m for m in modules if m.params and m.is_plain_norm}
    cut_norms = {p for p, m in norms.items() if m.weight.name in pieces}
    for scope, node in moves:
        module = node.source.module
        if module in cut_norms and node.op != "shard_slice":
            if node.op == "all_reduce" and _within(scope, node):
                continue  # statistics of all features, in code that runs on DTensors
            return Obstacle(module, f"needs {node.op} over {tp} in the norm of {node.source}")
        if node.op == "all_reduce" and any(f"{module}.".startswith(f"{p}.") for p in own):
            continue  # code that runs on DTensors
        if any(f"{module}.".startswith(f"{p}.") for p in made) and _of_params(passed, scope, node):
            continue  # weights that are worked out whole
        if node.op == "shard_slice" and (module in few_heads or _is_made_local(scope, node)):
            continue
        if node.op == "shard_slice" and taken(passed, scope, node, modules):
            continue
        if node.op == "shard_slice" and _enters(scope, node, recurrent):
            continue  # a step takes its share of the state it is given
        if (not module and node.op == "all_reduce") or node is last:
            continue
        piece = _piece(passed, scope, node, tp)
        cut = piece is not None and module in raw
        if module in leaves and node.op != "shard_slice" and not cut:
            if passed.ended and module in plain and _within(scope, node):
                text = f"needs {node.op} over {tp} in the middle of {node.source}"
                norm = norms.get(module)
                return Obstacle(module, text, piece=(norm.weight.name, 0) if norm else None)
            bare = module not in owners and _made_in(scope, node) == module
            if module in whole or not (bare or _gathers_product(scope, node)):
                continue
        asking = _asking(scope, node)
        where = str(asking.source) or f"the model itself, on %{node.inputs[0]}"
        makers = _makers(scope, asking, node, owners)
        text = f"needs {node.op} over {tp} inside {where}"
        return Obstacle(module, text, makers=makers, piece=piece)
    return None


def _piece(passed: Passed, scope: Scope, node: Node, tp: str) -> tuple[str, int] | None:
    """The parameter, with the dim, of which a rank would take its piece: a whole value that is cut
    is worked out of it, or what is gathered meets one that is; None where there is no such."""
    if node.op == "shard_slice":
        return _cut_of(passed, scope, node.inputs[0], node.number("dim"), tp)
    todo = [(node.outputs[0], node.number("dim"))] if node.op == "all_gather" else []
    while todo:
        made, dim = todo.pop()
        for reader in scope.readers(made):
            dims = range(len(scope.program.types[reader.outputs[0]].shape))
            along = [d for d in dims if dim_of(scope.program, reader, made, d) == dim]
            if reader.op in REARRANGING:
                todo += ((reader.outputs[0], d) for d in along[:1])
            others = [v for v in reader.inputs if v != made and lookup(reader.op).kind == "map"]
            for other, at in ((v, d) for v in others for d in along):
                place = dim_of(scope.program, reader, other, at)
                found = None if place is None else _cut_of(passed, scope, other, place, tp)
                if found is not None:
                    return found
    return None


def _cut_of(passed: Passed, scope: Scope, value: str, dim: int, tp: str) -> tuple[str, int] | None:
    """The parameter, with its dim, that a value is worked out of, number by number along a dim."""
    extent = scope.program.types[value].shape[dim]
    while (made := scope.producers.get(value)) is not None:
        kind = lookup(made.op).kind
        if made.op == "all_gather" and not _moves(made, tp):  # over dp, where it is stored
            value = made.inputs[0]
            continue
        along = lookup(made.op).with_defaults(made.attrs).get("dim")
        looked_up = kind == "index" and made.op not in SCATTERS and along not in (None, dim)
        if kind not in ("map", "view") and not looked_up:
            return None
        read = made.inputs[:1] if looked_up else made.inputs
        at = [(v, dim_of(scope.program, made, v, dim)) for v in read]
        along = [(v, d) for v, d in at if d is not None and not scope.is_moved(v, tp)]
        along = [(v, d) for v, d in along if scope.program.types[v].shape[d] == extent]
        if len(along) != 1:
            return None
        value, dim = along[0]
    outer = scope.given.get(value, value)
    params = {i.name for i in passed.lowered.program.inputs if i.role == "param"}
    return (outer, dim) if outer in params and extent > 1 else None


def returned(passed: Passed) -> tuple[Node, int] | None:
    """The gather of the one tensor that a model returns, with its dim there. No op of the forward
    pass reads that, or what is gathered, but views on the way."""
    program = passed.lowered.program
    buffers = {i.path or i.name for i in program.inputs if i.role == "const"}
    outputs = [o for o in program.outputs if o.role in ("output", "loss") and o.path not in buffers]
    if len(outputs) != 1 or not passed.ended:
        return None
    value, top = outputs[0].value, Scope(program)
    dims: dict[int, int | None] = {d: d for d in range(len(program.types[value].shape))}
    forward = [node for scope, node in passed.steps if scope.program is program]
    read = 0
    while (made := top.producers.get(value)) is not None:
        if sum(value in node.inputs for node in forward) != read:
            return None
        if made.op == "all_gather":
            found = [d for d, at in dims.items() if at == made.attrs["dim"]]
            return (made, found[0]) if len(found) == 1 else None
        if made.op not in REARRANGING:
            return None
        dims = {d: dim_of(program, made, made.inputs[0], at) for d, at in dims.items()}
        value, read = made.inputs[0], 1
    return None


def of_whole_batch(lowered: Lowered, dp: str) -> Node | None:
    """What gathers rows of all ranks of `dp` in the forward pass: no patch exchanges activations
    there."""
    passed = Passed(lowered)
    gathers = (
        (scope, node)
        for scope, node in passed.steps
        if node.op == "all_gather" and _moves(node, dp) and node.attrs["dim"] == 0
    )
    return next((n for scope, n in gathers if not _of_params(passed, scope, n)), None)


def _is_made_local(scope: Scope, node: Node) -> bool:
    """Whether code that is told of local extents makes the piece of a rank: of tables that capture
    worked out, of what is broadcast along a dim, or of both, entry by entry."""
    dim = None if "dim" not in node.attrs else node.number("dim")
    return _local(scope, node.inputs[0], dim, dim is not None)


def _local(scope: Scope, value: str, dim: int | None, known: bool) -> bool:
    """Likewise of a value along a dim, which is `known` where the piece is along one dim."""
    made, types = scope.producers.get(value), scope.program.types
    if made is None:
        item = next((i for i in scope.program.inputs if i.name == value), None)
        return item is not None and item.role == "const" and item.name.startswith("const.")
    each = [(v, dim_of(scope.program, made, v, dim)) for v in made.inputs]
    broadcast = [v for v, at in each if known and (at is None or types[v].shape[at] == 1)]
    lines = made.op in ALONG and dim != made.number("dim")
    if not made.inputs or lookup(made.op).kind == "map" or lines:
        return all(v in broadcast or _local(scope, v, at, known) for v, at in each)
    if made.op != "shard_slice" and made.op not in VIEWS:
        return False
    return (made.op == "expand" and bool(broadcast)) or _local(scope, *each[0], known)


def _enters(scope: Scope, node: Node, modules: Collection[str]) -> bool:
    """Whether some modules alone work on what is sliced, past views of it."""
    found = reading(scope, node)
    return bool(found) and found.issubset(modules)


def _makers(scope: Scope, asking: Node, moved: Node, owners: Collection[str]) -> frozenset[str]:
    """The modules with parameters that the operands of an op come from, with none between; not the
    one that is moved."""
    todo, seen, found = [v for v in asking.inputs if v not in moved.outputs], set[str](), set[str]()
    while todo:
        made = scope.producers.get(value := todo.pop())
        if made is None or value in seen:
            continue
        seen.add(value)
        if made.source.module in owners:
            found.add(made.source.module)
        else:
            todo += made.inputs
    return frozenset(found)


def _asking(scope: Scope, node: Node) -> Node:
    """The op that a collective is for: a whole value is sliced because it, or a view of it, meets a
    split one."""
    asking, made = node, node
    while node.op == "shard_slice":
        readers = (n for n in scope.readers(made.outputs[0]) if n.source.file)
        reader = next(readers, None)
        if reader is None:
            break
        asking = made = reader
        if lookup(made.op).kind != "view" or len(made.inputs) > 1:
            break
    return asking


def _gathers_product(scope: Scope, node: Node) -> bool:
    """Whether a gather joins what a product of the same module made: between two column layers
    the styles have no word for it."""
    if node.op != "all_gather":
        return False
    made = scope.producers.get(node.inputs[0])
    while made is not None and (made.op in REARRANGING or made.op in ("add", "all_reduce")):
        made = scope.producers.get(made.inputs[0])
    return made is not None and made.op in PRODUCTS and made.source.module == node.source.module


def _of_params(passed: Passed, scope: Scope, node: Node) -> bool:
    """Whether what a collective moves is worked out of parameters alone."""
    params = {i.name for i in passed.lowered.program.inputs if i.role == "param"}
    todo, seen = [*node.inputs], set[str]()
    while todo:
        value = todo.pop()
        made = scope.producers.get(value)
        if made is None and scope.given.get(value, value) not in params:
            return False
        todo += () if made is None or value in seen else made.inputs
        seen.add(value)
    return True


def _made_in(scope: Scope, node: Node) -> str:
    """The module that a collective's operand is made in."""
    made = scope.producers.get(node.inputs[0])
    return made.source.module if made else ""


def _within(scope: Scope, node: Node) -> bool:
    """Whether a collective's operand and its readers all belong to its own module."""
    readers = scope.readers(node.outputs[0])
    around = [_made_in(scope, node), *(n.source.module for n in readers)]
    return all(module == node.source.module for module in around)


def unexpressed(
    passed: Passed,
    modules: Sequence[Module],
    styles: Mapping[str, str],
    stream: str,
    tp: str,
    size: int,
    program: Program,
) -> Obstacle | None:
    """The first module whose style says something else than the forward pass does."""
    known = with_heads(modules, styles)
    norms = {m.path for m in modules if m.is_norm}
    convs, made = {m.path for m in modules if m.use == "conv"}, {m.path for m in modules if m.made}
    few = {m.path for m in modules if 0 < m.heads < size}
    recurrent = {m.path for m in modules if m.use == "recurrent"}
    inner = {m.path for m in modules if m.raw}
    last, _ = returned(passed) or (None, 0)
    for scope, node in passed.steps:
        path = node.source.module
        style = known.get(path)
        if style is None or path in norms or path in few or node is last:
            continue
        pieces = _moves(node, tp) and node.op in PIECES and node.op in REDUCING
        if pieces and style == "experts" and path in inner:
            return Obstacle(path, f"{path} gives whole activations  {node.source}")
        bare = style in ("replicate", "channels") or path in convs
        free = node.op == "shard_slice" and (
            _is_made_local(scope, node)
            or _enters(scope, node, recurrent)
            or bool(taken(passed, scope, node, modules))
        )
        free |= path in made and _of_params(passed, scope, node)
        if _moves(node, tp) and bare and not free:
            word = "has no style" if style == "replicate" else f"is {style}"
            known_moves = (("row", "all_reduce"), ("gathered", "all_gather"))
            enters = style == "column" and gathers_channels(scope.producers, node)
            if (style, node.op) not in known_moves and not enters:
                why = f"{path} {word}, and needs {node.op} over {tp}  {node.source}"
                return Obstacle(path, why)
        if style not in ("column", "fused_column", "row", "gathered") or node.op != "mm":
            continue
        moves = _before(scope.producers, node, known.keys() - norms - {path}, tp)
        why = _entry(scope.program, moves, style, stream, tp)
        if why:
            late = style != "row" and stream == "R"
            return Obstacle(path, f"{path} as {style} {why}  {node.source}", before=late)
    raw = {m.path for m in modules if m.use in ("other", "embedding")}
    return _split_whole(passed.lowered, known, norms | few, raw, ends(modules), tp, program)


def gathers_channels(producers: Mapping[str, Node], node: Node) -> bool:
    """Whether a node makes whole what a convolution is about to read, or has put in order."""
    todo = list(node.inputs)
    while todo:
        made = producers.get(todo.pop())
        if made is not None and made.source.module == node.source.module:
            if made.op in PRODUCTS:
                return False
            todo += made.inputs
    return node.op == "all_gather"


def with_heads(modules: Sequence[Module], styles: Mapping[str, str]) -> dict[str, str]:
    """Styles of modules and of the output projections that are tied to embeddings."""
    heads_of = {"vocab": "column", "replicate": "replicate"}
    tied = {m.head: heads_of.get(styles[m.path]) for m in modules if m.head}
    return {m.path: styles[m.path] for m in modules} | {p: s for p, s in tied.items() if s}


def _split_whole(
    lowered: Lowered,
    known: Mapping[str, str],
    others: set[str],
    raw: set[str],
    ends: Collection[str],
    tp: str,
    program: Program,
) -> Obstacle | None:
    """A module without a style in which a whole activation meets a split one: its gradient would
    need a reduction that nothing writes. That of a parameter is summed, so the backward of a module
    whose `raw` parameters meet split activations is that of these."""
    found: Shared | None = None
    forward = forward_values(program)
    for pair in lowered.pairs:
        path = pair.one.source.module
        if known.get(path) != "replicate" or path in others or pair.one.body is not None:
            continue
        if tp not in pair.result.sharded:
            continue
        if path in raw and (pair.scope, pair.one.outputs[0]) not in forward:
            continue
        operands = zip(pair.one.inputs, pair.operands, strict=False)
        whole = [(pair.scope, v) for v, layout in operands if tp not in layout.sharded]
        if whole and found is None:
            found = Shared(program, lowered, known, ends, tp)
        if any(v not in found.alone and found.of(v) is None for v in whole if found):
            why = f"{path} has no style, and works on a split activation  {pair.one.source}"
            return Obstacle(path, why)
    return None


def _before(producers: Mapping[str, Node], product: Node, others: set[str], tp: str) -> list[Node]:
    """Collectives over tp between a product and what made its activation, without those that end
    another module; one that begins another module may be shared."""
    moves: list[Node] = []
    made = producers.get(product.inputs[0])
    while made is not None and (_moves(made, tp) or made.op in REARRANGING or made.op == "cast"):
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
        return f"needs an input sharded like the residual stream, {stream}"
    if moves[0].attrs["dim"] == len(holder.types[moves[0].outputs[0]].shape) - 1:
        return f"needs its input gathered over {tp} along the last dim"
    return None


def _moves(node: Node, tp: str) -> bool:
    return lookup(node.op).kind == "collective" and node.attrs["mesh_dim"] == tp
