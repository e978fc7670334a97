"""Modules by what their parameters do: which belong together, which dim of a weight is its output,
which weights are several fused in one."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.planner.uses import Use, owner, uses
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import TensorType
from shardproof.verifier.ops.classes import PRODUCTS

GATES = {"LSTM": 4, "LSTMCell": 4, "GRU": 3, "GRUCell": 3}
"""Gates of a recurrent module, whose weights are stacked."""
UNREAD = 1 << 30
"""The order of what no output depends on."""
LAYER = re.compile(r"\.\d+(?=\.|$)")
LINEAR = ("", "Linear", "Conv1D")
"""Classes that do no more than their product."""
LOOKS_UP = ("", "Embedding", "EmbeddingBag")
"""Classes that look up what they are given, though capture sees them work the rows out."""
ATTENTION = "MultiheadAttention"
"""The class that has the weights of queries, keys and values stacked, where all are as wide."""
KNOWN = frozenset((*LINEAR, *LOOKS_UP, ATTENTION, *GATES))
"""Classes whose code is known."""
GATED = re.compile(r"(.*\.)?(weight|bias)_[ih]h(_l\d+(_reverse)?)?$")


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a module."""

    name: str
    """Input name in the program."""
    path: str
    shape: tuple[int, ...]
    """Of one layer, where stacked."""
    stacked: bool


@dataclass
class Module:
    """A module with its parameters and what its weight is used for."""

    path: str
    kind: str
    use: str
    """`linear`, `conv`, `channels` (a number or two for each), `embedding`, `experts`, `recurrent`
    or `other`."""
    out_dim: int = 0
    """Linear, conv: the dim of the weight that indexes outputs."""
    parts: int = 1
    """Linear: equal pieces that its output is cut into at once. Conv: its groups.
    Recurrent: gates."""
    pieces: int = 1
    """Conv: equal pieces that the channels which go out are cut into at once."""
    heads: int = 0
    """Linear: heads that its output (or each piece of it) is reshaped into, 0 where it is not.
    Embedding: heads for each of which it holds a bias, one a column."""
    follows: frozenset[str] = frozenset()
    """Linear, conv, channels: the weights of those that all it reads comes from, with no norm and
    no residual in between; none where there is more."""
    near: frozenset[str] = frozenset()
    """Linear: the same where numbers that modules hold may come between."""
    beside: frozenset[str] = frozenset()
    """Conv: the weights of those whose channels it reads with more, or some of."""
    met: bool = False
    """Linear: what it gives meets what another product gives before it is an output."""
    params: list[Param] = field(default_factory=list[Param])
    order: int = 0
    head: str = ""
    """Embedding whose weight is the output projection too: the path of that projection."""
    holds: bool = False
    """Whether there are modules inside it."""
    own_index: bool = False
    """Embedding that looks up rows which it works out itself: it has a forward of its own."""
    in_order: bool = False
    """Embedding of which the rows of some places are read, one after the other."""
    raw: bool = False
    """`experts` of which code of its own multiplies by several matrices: heads, hidden units."""
    own: bool = False
    """Linear with code of its own, which has no other matrix, and no part with any."""
    made: bool = False
    """Conv whose weight is worked out of its parameters, as a normalized one."""
    splits: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Experts: for each parameter, by its own name, the dim that holds the hidden units of every
    expert, and the equal parts that are stacked along it."""
    whole: tuple[str, ...] = ()
    """`raw`: parameters by their own names that are neither split nor added to what goes out."""

    @property
    def is_norm(self) -> bool:
        """A module of its own whose parameters are vectors, none of them in a product."""
        return bool(self.path) and self.use == "other" and len(self.weight.shape) == 1

    @property
    def is_plain_norm(self) -> bool:
        """Likewise, with no modules inside."""
        return not self.holds and self.is_norm

    @property
    def weight(self) -> Param:
        return max(self.params, key=lambda p: (len(p.shape), prod(p.shape)))

    @property
    def made_outside(self) -> bool:
        """Whether its weight is `made` before its forward, by a hook or a parametrization: not of
        a piece, by code that knows none."""
        return self.made and all(p.path != f"{self.path}.weight" for p in self.params)

    def along(self, param: Param, dim: int) -> int | None:
        """The dim of a parameter that is split where the weight is split along a dim: its own, of
        numbers that the weight's are scaled by; None where it has these once for all."""
        shape = self.weight.shape
        if len(param.shape) == len(shape) > 1:
            return dim if param.shape[dim] == shape[dim] else None
        return 0 if dim == self.out_dim and param.shape[:1] == shape[dim : dim + 1] else None


def modules(program: Program, kinds: Mapping[str, str] | None = None) -> list[Module]:
    """The modules that own parameters, in order of first use. `kinds` maps paths to class names."""
    found: dict[str, Module] = {}
    found_uses, biases = uses(program)
    grains: dict[str, int] = {}
    stacked = _stacked(program)
    for item in program.inputs:
        if item.role != "param":
            continue
        path = owner(item.path)
        shape = item.type.shape[1:] if item.name in stacked else item.type.shape
        module = found.setdefault(
            path, Module(path, (kinds or {}).get(path, ""), "other", order=UNREAD)
        )
        module.params.append(Param(item.name, item.path, shape, item.name in stacked))
        for use in found_uses.get(item.name, ()):
            module.order = min(module.order, use.order)
            if use.kind == "embedding":
                module.use = "embedding"
                module.own_index = module.own_index or use.own_index
                module.in_order = module.in_order or use.in_order
                module.heads = use.heads
                module.out_dim = use.out_dim if use.heads else 0
            elif use.kind == "linear":
                if module.use == "embedding":
                    module.head = module.head if use.scaled else use.module
                else:
                    module.use, module.out_dim, module.parts = "linear", use.out_dim, use.parts
                    module.heads, module.follows, module.met = use.heads, use.follows, use.met
                    module.near = use.near
                    module.own |= use.scaled or module.kind not in LINEAR
            elif use.kind == "conv" or (use.kind == "channels" and module.use == "other"):
                module.use, module.out_dim = use.kind, use.out_dim
                module.parts, module.follows = use.parts, use.follows
                module.pieces, module.beside = use.pieces, use.beside
                module.made |= use.scaled
            elif use.kind == "expert":
                name = item.path.removeprefix(f"{path}.")
                module.splits[name] = use.out_dim, use.parts
                grains[item.name] = use.grain
    holders = {path.rpartition(".")[0] for path in kinds or ()}
    for module in found.values():
        module.holds = module.path in holders
        raw = module.holds or (module.in_order and module.kind not in LOOKS_UP)
        if raw and module.use == "embedding":
            module.use, module.heads, module.out_dim = "other", 0, 0  # a table of code of its own
        _settle_own(module, found)
        _settle_experts(module, biases, grains)
        if module.use in ("other", "linear") and not (module.own or module.holds):
            _settle_raw(module, program, found_uses, biases)
        if module.kind == ATTENTION:
            _settle_attention(module, program)
        if module.kind in GATES and all(GATED.match(p.path) for p in module.params):
            module.use, module.parts, module.heads = "recurrent", GATES[module.kind], 0
        if module.use == "channels" and len({p.shape for p in module.params}) > 1:
            module.use = "other"
    _without_single(found.values())
    _adopt(found, biases)
    _like_others(found.values())
    return sorted((m for m in found.values() if m.params), key=lambda m: m.order)


def _without_single(found: Iterable[Module]) -> None:
    """One head is one where others have several as wide: keys that all queries share. Elsewhere a
    dim of 1 is only that."""
    linear = [m for m in found if m.use == "linear" and m.heads]
    wide = {m.weight.shape[m.out_dim] // m.parts // m.heads for m in linear if m.heads > 1}
    for m in linear:
        if m.heads == 1 and m.weight.shape[m.out_dim] // m.parts not in wide:
            m.heads = 0


def _like_others(found: Iterable[Module]) -> None:
    """What no output depends on runs all the same, on what it is given: its use is that of its like
    in another layer."""
    like: dict[object, Module] = {}
    for m in found:
        key = LAYER.sub(".*", m.path), m.kind, tuple(p.shape for p in m.params)
        if m.params and m.order < UNREAD:
            like[key] = m
        elif key in like and LAYER.search(m.path):
            o = like[key]
            m.use, m.out_dim, m.parts, m.pieces, m.heads, m.follows = (
                o.use, o.out_dim, o.parts, o.pieces, o.heads, o.follows,
            )  # fmt: skip


def _settle_own(module: Module, found: Iterable[str]) -> None:
    """A linear with code of its own is split where there is nothing else to split."""
    matrices = sum(len(p.shape) > 1 for p in module.params)
    inside = any(path.startswith(f"{module.path}.") for path in found)
    if module.own and (not module.path or matrices > 1 or inside):
        module.use, module.own = "other" if module.kind in LINEAR else "linear", False


def _settle_attention(module: Module, program: Program) -> None:
    """Queries, keys and values are three parts, each of all heads. Those are as many as the width
    of one goes into that of a part; none where there are other parameters."""
    names = {p.path.rpartition(".")[2] for p in module.params}
    own = ((h, n) for h, n in program.walk() if n.source.module == module.path)
    inner = next((h.types[n.inputs[0]].shape for h, n in own if n.op in ("sdpa", "bmm")), None)
    module.use, module.out_dim, module.parts, module.heads = "other", 0, 1, 0
    if names <= {"in_proj_weight", "in_proj_bias"} and inner is not None:
        module.use, module.parts = "linear", 3
        module.heads = module.weight.shape[0] // 3 // inner[-1]


def _settle_experts(module: Module, biases: Mapping[str, str], grains: Mapping[str, int]) -> None:
    """Experts are two weights for each, the second on what the first gives, and their biases:
    hidden units split along the outputs of the one are split along the inputs of the other."""
    deep = {p.name: p for p in module.params if len(p.shape) > 2}
    if deep and module.use == "embedding":
        module.use = "other"
    added = {p.name: p for p in module.params if biases.get(p.name) in deep}
    if len(module.splits) != 2 or len(deep) != 2 or len(module.params) != len(deep) + len(added):
        module.splits = {}
        return
    own = {p.path.rpartition(".")[2]: p for p in deep.values()}
    (first, (up, parts)), (second, (down, pieces)) = module.splits.items()
    wide, narrow = own[first].shape[up], own[second].shape[3 - down]
    if pieces == 1 and wide == narrow * parts * grains[own[first].name]:
        module.use = "experts"
        module.splits = {first: (up, parts), second: (3 - down, 1)}
        for bias in added.values():
            if biases[bias.name] == own[first].name:
                module.splits[bias.path.rpartition(".")[2]] = 1, parts


def _settle_raw(
    module: Module, program: Program, found: Mapping[str, list[Use]], biases: Mapping[str, str]
) -> None:
    """Matrices of a module's own: each rank has some of what all but the last give, as heads or
    hidden units, and a share of what that one gives."""
    matrices = [p for p in module.params if len(p.shape) > 1]
    used = {p.name: u for p in matrices for u in found.get(p.name, ())}
    if module.kind in KNOWN or len(matrices) < 2 or any(u.kind == "expert" for u in used.values()):
        return
    products = {name: use for name, use in used.items() if use.kind == "linear"}
    turns = _in_turn(module, program)
    if turns is None:
        return
    places = _inner_extents(module, turns[0].types, turns[1])
    if len(products) == len(matrices) and all(len(p.shape) == 2 for p in matrices):
        last = max(products, key=lambda name: products[name].order)
        places = [(p, products[p.name].out_dim) for p in matrices if p.name != last]
        places += [(p, 1 - products[last].out_dim) for p in matrices if p.name == last]
        places += [(p, 0) for p in module.params if biases.get(p.name, last) != last]
    if places:
        module.use, module.raw = "experts", True
        module.splits = {p.path.rpartition(".")[2]: (dim, 1) for p, dim in places}
        left = {p.name: p.path.rpartition(".")[2] for p in module.params}
        added = _added_last(*turns, left)
        whole = (n for p, n in left.items() if p not in added and n not in module.splits)
        module.whole = tuple(whole)


def _added_last(at: Program, own: Sequence[Node], params: Mapping[str, str]) -> set[str]:
    """The parameters that are added to what the last product gives."""
    made, held, found = set(own[-1].outputs), {name: name for name in params}, set[str]()
    for node in at.nodes[at.nodes.index(own[-1]) + 1 :]:
        if node.op == "add" and not made.isdisjoint(node.inputs):
            found |= {held[v] for v in node.inputs if v in held}
        if not made.isdisjoint(node.inputs):
            made.update(node.outputs)
        elif len(node.inputs) == 1 and node.inputs[0] in held:
            held |= dict.fromkeys(node.outputs, held[node.inputs[0]])
    return found


def _in_turn(module: Module, program: Program) -> tuple[Program, list[Node]] | None:
    """The products of a module's forward, of which the last multiplies what another gives, and
    where they are; None where it does not."""
    path, forward = module.path, {v for _, v in forward_values(program)}
    own = [(h, n) for h, n in program.walk() if n.source.module == path and n.op in PRODUCTS]
    at = next((h for h, n in own if n.outputs[0] in forward), None)
    own = [n for h, n in own if h is at and n.outputs[0] in forward]
    if at is None or len(own) < 2:
        return None
    made = {v for n in own[:-1] for v in n.outputs}
    for node in at.nodes:
        if node is own[-1]:
            break
        made.update(node.outputs if not made.isdisjoint(node.inputs) else ())
    return (at, own) if not made.isdisjoint(own[-1].inputs) else None


def _inner_extents(
    module: Module, types: Mapping[str, TensorType], own: Sequence[Node]
) -> list[tuple[Param, int]]:
    """The dims of the extent that most parameters have, of those that neither enter the first
    product nor leave the last; several matrices have it."""
    outer = types[own[0].inputs[0]].shape[-1], types[own[-1].outputs[0]].shape[-1]
    places: dict[int, list[tuple[Param, int]]] = {}
    for param in module.params:
        for dim, extent in enumerate(param.shape):
            if param.shape.count(extent) == 1 and extent > 1 and extent not in outer:
                places.setdefault(extent, []).append((param, dim))
    several = [at for at in places.values() if sum(len(p.shape) > 1 for p, _ in at) > 1]
    return min(several, key=lambda at: (-len(at), sum(d for _, d in at))) if several else []


def heads(found: list[Module]) -> frozenset[str]:
    """Paths of the output projection: a tied one, or the last product, where that is of a linear
    outside repeated blocks whose result meets no other's, and no matrix of a module."""
    tied = {m.head for m in found if m.head}
    works = ("linear", "conv", "other")
    read = [m for m in found if m.use in works and m.order < UNREAD]
    wide = [m for m in read if any(len(p.shape) > 1 for p in m.params)]
    last = max(wide, key=lambda m: m.order) if wide else None
    if tied or last is None or last.use != "linear" or last.weight.stacked or last.met:
        return frozenset(tied)
    return frozenset({last.path})


def _adopt(found: dict[str, Module], biases: Mapping[str, str]) -> None:
    """Give a bias that another module owns (a tied output bias) to the module of its weight."""
    owners = {p.name: m for m in found.values() for p in m.params}
    for bias, weight in biases.items():
        if owners[bias] is not owners[weight]:
            param = next(p for p in owners[bias].params if p.name == bias)
            owners[bias].params.remove(param)
            owners[weight].params.append(param)


def _stacked(program: Program) -> set[str]:
    return {
        v
        for node in program.nodes
        if node.op == "scan"
        for v in node.inputs[scan_parts(node.attrs, len(node.inputs))[1]]
    }
