"""How a one-device program uses its parameters: in products, as tables, for how many heads."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.planner.dims import dim_of
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.ops.classes import PRODUCTS, REARRANGING, SCALING

NEAR = 12
"""How many values behind a product are looked at."""
PIECE = re.compile(r"(?<=[^.])\[(\d+):\d+\]")
"""Behind the name of a module: rows of its parameters."""
PARAMETRIZED = ".parametrizations."
"""What torch.nn.utils.parametrize puts behind a module, before a weight that is worked out."""


@dataclass
class Use:
    kind: str
    out_dim: int
    parts: int
    order: int
    heads: int = 0
    module: str = ""
    follows: frozenset[str] = frozenset()
    near: frozenset[str] = frozenset()
    """Products: those that it reads from when numbers that modules hold may meet them."""
    beside: frozenset[str] = frozenset()
    """Products that it reads with more, or some channels of."""
    own_index: bool = False
    in_order: bool = False
    """Lookups: of the rows of some places, one after the other."""
    scaled: bool = False
    """Products: what it multiplies by is worked out of the weight, number by number."""
    met: bool = False
    """Products: what it gives is added to what another gives, or enters one that keeps its
    columns, before it is an output."""
    pieces: int = 1
    """Convolutions: equal pieces that the channels which go out are cut into at once."""
    grain: int = 1
    """Experts: entries of a row, side by side, that are of one hidden unit."""


@dataclass
class _Found:
    """What was found so far, in all scopes."""

    uses: dict[str, list[Use]] = field(default_factory=dict[str, list[Use]])
    biases: dict[str, str] = field(default_factory=dict[str, str])
    owners: dict[str, str] = field(default_factory=dict[str, str])
    """The module of each parameter."""
    norms: frozenset[str] = frozenset()
    """The modules that hold vectors and nothing else."""
    count: int = 0
    """Nodes that were passed."""


def uses(program: Program) -> tuple[dict[str, list[Use]], dict[str, str]]:
    """Uses of each parameter, and the weight that each bias goes with."""
    held = [i for i in program.inputs if i.role == "param"]
    owners = {i.name: owner(i.path) for i in held}
    stacked = {v for n in program.nodes if n.body is not None for v in n.inputs}
    wide = {owner(i.path) for i in held if len(i.type.shape) > 1 + (i.name in stacked)}
    found = _Found(owners=owners, norms=frozenset(owners.values()) - wide)
    forward = frozenset(v for _, v in forward_values(program))
    params = {i.name: i.name for i in program.inputs if i.role == "param"}
    _Scope(program, params, forward).visit(found)
    return found.uses, found.biases


def owner(path: str) -> str:
    """The module of a parameter."""
    module, parametrized, _ = path.partition(PARAMETRIZED)
    return module if parametrized else path.rpartition(".")[0]


def module_of(module: str, span: tuple[int, int]) -> str:
    """What the rows of the parameters of a module are called, as a module."""
    return f"{module}[{span[0]}:{span[1]}]"


def whole_path(path: str) -> str:
    """The module, or the parameter, that one is a piece of."""
    return PIECE.sub("", path)


def first_row(path: str) -> int:
    """Where the rows begin that a module has of fused weights."""
    found = PIECE.search(path)
    return int(found[1]) if found else 0


def multiplications(program: Program) -> dict[str, float]:
    """Those of the products of the forward pass, by module, on one device."""
    out: dict[str, float] = {}
    for (_, _, path), times in products(program).items():
        out[path] = out.get(path, 0.0) + times
    return out


def products(program: Program) -> dict[tuple[str, str, str], float]:
    """The multiplications of each product of the forward pass on one device, by its scope, its
    value and its module.

    A sum over `n` by a matrix that no input is in, as of sines, is a transform: it is counted with
    the `log2(n)` for each result that a fast one takes.
    """
    forward, out = forward_values(program), dict[tuple[str, str, str], float]()

    def visit(scope: str, held: Program, times: float) -> None:
        fixed = set[str]()
        for node in held.nodes:
            if node.body is not None:
                visit(node.outputs[0], node.body, times * node.number("length"))
                continue
            fixed |= set(node.outputs if fixed.issuperset(node.inputs) else ())
            if node.op in PRODUCTS and (scope, node.outputs[0]) in forward:
                summed = held.types[node.inputs[0]].shape[-1]
                each = math.log2(max(summed, 2)) if node.inputs[1] in fixed else summed
                result = math.prod(held.types[node.outputs[0]].shape)
                out[scope, node.outputs[0], node.source.module] = times * result * each

    visit("", program, 1.0)
    return out


def _passes(node: Node) -> bool:
    """Whether an op leaves numbers as they are, or nearly."""
    return node.op in REARRANGING or node.op in SCALING


def _even(spans: list[tuple[int, int]], width: int) -> int:
    """How many equal pieces of a dim these are, side by side; 1 where they are not."""
    k = len(spans)
    even = [(i * width // k, (i + 1) * width // k) for i in range(k)]
    return k if k and width % k == 0 and sorted(spans) == even else 1


class _Scope:
    """A program, or the body of a repeated block, whose inputs `params` are parameters."""

    def __init__(
        self, program: Program, params: Mapping[str, str], forward: frozenset[str]
    ) -> None:
        self.program, self.params, self.forward = program, params, forward
        self.producers = program.producers()
        self.readers: dict[str, list[Node]] = {}
        for node in program.nodes:
            for v in node.inputs:
                self.readers.setdefault(v, []).append(node)
        self.origin = {v: (p, tuple(range(len(self.shape(v))))) for v, p in params.items()}
        """For each value that is a parameter, which one, and its dims in this order."""
        self.kernels: dict[str, int] = {}
        """Groups of the convolution that each of these weights is the kernel of."""
        self.pieced: set[str] = set()
        """The kernels of convolutions whose channels are cut into equal pieces."""
        self.rows: set[str] = set()
        """Values that are some rows of a weight."""
        self.scaled: set[str] = set()
        """Values that are worked out of a weight, number by number: a masked one."""
        self.given = {i.name for i in program.inputs if i.role in ("input", "const")}
        """Values that are worked out of inputs alone."""
        for node in program.nodes:
            if self.given.issuperset(node.inputs):
                self.given.update(node.outputs)
        self.multiplied = set[str]()
        """Values that what a product gives is in."""
        for node in program.nodes:
            if node.op in PRODUCTS or not self.multiplied.isdisjoint(node.inputs):
                self.multiplied.update(node.outputs)
        self.alone = {v: {p} for v, p in params.items()} | {
            i.name: set[str]() for i in program.inputs if i.role == "const"
        }
        """The parameters that each value depends on, where it depends on nothing else."""

    def shape(self, value: str) -> tuple[int, ...]:
        return self.program.types[value].shape

    def read(self, value: str) -> list[Node]:
        return self.readers.get(value, [])

    def passed_on(self, value: str) -> list[Node]:
        """The readers of a value that leave its numbers as they are, or nearly."""
        return [n for n in self.read(value) if _passes(n)]

    def visit(self, found: _Found) -> None:
        for node in self.program.nodes:
            found.count += 1
            if node.body is not None:
                if not node.attrs.get("reverse"):
                    pairs = zip(node.body.inputs, node.inputs, strict=True)
                    inner = {i.name: self.params[v] for i, v in pairs if v in self.params}
                    _Scope(node.body, inner, self.forward).visit(found)
            else:
                self._node(node, found)

    def _node(self, node: Node, found: _Found) -> None:
        origin, first = self.origin, node.inputs[0] if node.inputs else ""
        if all(v in self.alone for v in node.inputs):
            held = set[str]().union(*(self.alone[v] for v in node.inputs))
            self.alone |= dict.fromkeys(node.outputs, held)
        if node.op == "permute" and first in origin:
            name, dims = origin[first]
            if self._is_depthwise(node):
                dims, self.kernels[name] = (2, 0, 1), self.shape(first)[0]
            origin[node.outputs[0]] = (name, tuple(dims[d] for d in node.numbers("dims")))
            self.rows |= {node.outputs[0]} if first in self.rows else set()
            self.scaled |= {node.outputs[0]} if first in self.scaled else set()
        elif first in origin and self._some_rows(node):
            origin[node.outputs[0]] = origin[first]
            self.rows.add(node.outputs[0])
        elif (node.op == "cast" or self._deep(node)) and first in origin:
            origin[node.outputs[0]] = origin[first]
            self.scaled |= {node.outputs[0]} if first in self.scaled else set()
        elif (scaled := self._scales(node, found.owners)) is not None:
            origin[node.outputs[0]] = origin[scaled]
            self.scaled.add(node.outputs[0])
        elif first in origin and (dims := self._kernel(node)) is not None:
            name, _ = origin[node.outputs[0]] = (origin[first][0], dims)
            self.kernels[name] = self.shape(node.outputs[0])[0] if len(dims) == 3 else 1
            self.scaled |= {node.outputs[0]} if first in self.scaled else set()
        elif use := self._use(node, found):
            found.uses.setdefault(use[0], []).append(use[1])

    def _use(self, node: Node, found: _Found) -> tuple[str, Use] | None:
        """The parameter that a node uses, and how."""
        origin, at = self.origin, found.count
        held = [origin[v] for v in node.inputs if v in origin]
        if not held:
            return None
        name, dims = held[0]
        scaled = not self.scaled.isdisjoint(node.inputs)
        if scaled and (node.op not in PRODUCTS or node.inputs[1] not in self.scaled):
            return name, Use("other", 0, 1, at)
        if node.op in PRODUCTS and node.inputs[1] in origin and name in self.kernels:
            if any(u.kind == "conv" for u in found.uses.get(name, ())):
                return None
            last = 1 if self.kernels[name] == 1 else None
            alone, beside = self._read_from(node.inputs[0], last, channels=True)
            groups, pieces = self.kernels[name], self._channel_pieces(node)
            self.pieced |= {name} if pieces > 1 else set()
            use = Use("conv", dims[-1], groups, at, follows=alone, beside=beside, pieces=pieces)
            return name, replace(use, scaled=scaled)
        if node.op == "reshape" and (narrow := self._per_channel(node)) is not None:
            return name, Use("channels", 0, 1, at, follows=narrow)
        if node.op == "bmm" and not any(u.kind == "expert" for u in found.uses.get(name, ())):
            side = 1 + (node.inputs[0] not in origin)
            parts, grain = self._stacked_parts(node), self._grain(node)
            return name, Use("expert", dims[side], parts, at, grain=grain)
        if node.op == "take" and (weight := self._looked_up_bias(node)) is not None:
            found.biases[name] = weight
            return name, Use("other", 0, 1, at)
        if node.op == "take" and node.inputs[0] in origin:
            own, heads = self._own_index(node), self._bias_heads(node)
            return name, Use("embedding", 1, 1, at, heads, own_index=own)
        if self._is_table_in_order(node, found):
            return name, Use("embedding", 1, 1, at, own_index=True, in_order=True)
        if node.op == "mm" and node.inputs[1] in origin:
            name, dims = origin[node.inputs[1]]
            if any(u.kind == "linear" for u in found.uses.get(name, ())):
                return None
            if node.inputs[1] in self.rows:
                return name, Use("other", 0, 1, at)
            parts, heads = self._fused(node) or (self._pieces(node), self._heads(node))
            follows, _ = self._read_from(node.inputs[0], 1)
            near = follows or self._read_from(node.inputs[0], 1, held=found.norms)[0]
            use = Use("linear", dims[1], parts, at, heads, node.source.module, follows, near)
            return name, replace(use, scaled=scaled, met=self._meets(node))
        weight = self._product_before(node)
        if weight is not None and len(self.shape(node.inputs[0])) > 1:
            found.biases[name] = weight
        return name, Use("other", 0, 1, at)

    def _meets(self, node: Node) -> bool:
        """Whether what a product gives is added to what another gives, or enters another that keeps
        its columns."""
        value, dim = node.outputs[0], len(self.shape(node.outputs[0])) - 1
        for _ in range(8):
            users = [n for n in self.read(value) if n.outputs[0] in self.forward]
            if len(users) != 1:
                return False
            others = [v for v in users[0].inputs if v != value]
            after = self._dim_after(users[0], value, dim)
            if after is None or users[0].op in PRODUCTS:
                return after is not None
            if users[0].op == "add" and not self.multiplied.isdisjoint(others):
                return True
            value, dim = users[0].outputs[0], after
        return False

    def _bias_heads(self, node: Node) -> int:
        """Columns of a table of which each is for one head (Raffel et al. 2020): the last dim of
        what is looked up becomes a dim of whole matrices. 0 where it does not."""
        value = node.outputs[0]
        columns = self.shape(value)[-1]
        for _ in range(4):
            moved = next(iter(self.passed_on(value)), None)
            if moved is None:
                return 0
            if moved.op == "permute":
                last = len(self.shape(value)) - 1
                dims = moved.numbers("dims")
                return columns if dims[-1] != last and dims.index(last) == len(dims) - 3 else 0
            value = moved.outputs[0]
        return 0

    def _looked_up_bias(self, node: Node) -> str | None:
        """The weight of the batched product that rows of a table are added to."""
        users = self.read(node.outputs[0])
        return self._product_before(users[0], "bmm") if users else None

    def _deep(self, node: Node) -> bool:
        """Whether a lookup takes whole matrices, one for each entry of its index."""
        return node.op == "take" and [len(self.shape(v)) for v in node.inputs] == [3, 1]

    def _stacked_parts(self, node: Node) -> int:
        """Into how many equal pieces the rows of a batched product are cut at once. Rows of one
        with vectors are those of a matrix."""
        rows = [n for n in self.read(node.outputs[0]) if n.op == "reshape"]
        flat = next((n for n in rows if len(self.shape(n.outputs[0])) == 2), None)
        return self._pieces(flat if flat is not None and 1 in self.shape(node.outputs[0]) else node)

    def _grain(self, node: Node) -> int:
        """Into how many entries of each unit the rows of a batched product are taken apart."""
        value = node.outputs[0]
        for _ in range(4):
            onward = self.passed_on(value)
            if not onward:
                return 1
            value, before = onward[0].outputs[0], self.shape(value)
            last = len(self.shape(value)) - 1
            users = self.read(value)
            cut = [u for u in users if u.op == "slice" and u.attrs["dim"] == last]
            if len(self.shape(value)) > len(before) and users and len(cut) == len(users):
                return self.shape(value)[last]
        return 1

    def _own_index(self, node: Node) -> bool:
        """Whether the rows that a lookup takes are worked out in its module, or are constants."""
        made = self.producers.get(node.inputs[1])
        if made is None:
            return False
        return self._of_places(node) or made.source.module == node.source.module

    def _is_table_in_order(self, node: Node, found: _Found) -> bool:
        """Whether a module takes rows of a table that it holds, one after the other, as those of
        places in a sequence."""
        name, _ = self.origin.get(node.inputs[0], ("", ()))
        along = node.op == "slice" and node.number("dim") == 0
        own = found.owners.get(name) == node.source.module
        return along and own and len(self.shape(node.inputs[0])) == 2

    def _of_places(self, node: Node) -> bool:
        """Whether the rows that a lookup takes depend on no input: on places in a sequence, say."""
        todo = [node.inputs[1]]
        while todo:
            value = todo.pop()
            made = self.producers.get(value)
            if made is None and not self._constant(value):
                return False
            todo += made.inputs if made is not None else ()
        return True

    def _pieces(self, node: Node) -> int:
        """Into how many equal pieces the last dim of a product is cut at once, with what is worked
        out entry by entry in between; 1 where it is not."""
        value = node.outputs[0]
        width, todo = self.shape(value)[-1], [value]
        for value in todo:
            users = self.read(value)
            slices = [u for u in users if u.op == "slice"]
            if len(slices) > 1 and len(slices) == len(users):
                last = len(self.shape(value)) - 1
                along = [u for u in slices if u.number("dim") == last]
                return _even([(u.number("start"), u.number("stop")) for u in along], width)
            alike = (u for u in users if u.op in REARRANGING or lookup(u.op).kind == "map")
            wide = (u.outputs[0] for u in alike if self.shape(u.outputs[0])[-1:] == (width,))
            todo += (v for v in wide if v not in todo and len(todo) < NEAR)
        return 1

    def _channel_pieces(self, node: Node) -> int:
        """Into how many equal pieces the channels of a convolution are cut at once; 1 where not."""
        value = node.outputs[0]
        width, dim = self.shape(value)[-1], len(self.shape(value)) - 1
        for _ in range(6):
            users = self.read(value)
            cut = [u for u in users if u.op == "slice" and u.number("dim") == dim]
            if len(cut) > 1 and len(cut) == len(users):
                return _even([(u.number("start"), u.number("stop")) for u in cut], width)
            onward = [u for u in users if u.op == "add" or _passes(u)]
            if len(users) != 1 or not onward:
                return 1
            after = self._dim_after(onward[0], value, dim)
            if after is None:
                return 1
            value, dim = onward[0].outputs[0], after
        return 1

    def _dim_after(self, node: Node, operand: str, dim: int) -> int | None:
        """The dim of the result that a dim of an operand becomes."""
        dims = range(len(self.shape(node.outputs[0])))
        whole = self.shape(operand)[dim]
        return next(
            (
                d
                for d in dims
                if self.shape(node.outputs[0])[d] == whole and self._dim_of(node, operand, d) == dim
            ),
            None,
        )

    def _fused(self, node: Node) -> tuple[int, int] | None:
        """(parts, heads) of a product reshaped to (parts, d), (parts, heads, d) or (heads, parts,
        d) and selected from; None where it is not. Parts inside heads are no obstacle to dealing
        out heads: 1."""
        value = node.outputs[0]
        width = self.shape(value)[-1]
        for _ in range(4):
            for user in self.read(value):
                shape = self.shape(user.outputs[0])
                inner = next((j for j in range(len(shape)) if math.prod(shape[j:]) == width), None)
                if user.op == "reshape" and inner is not None and len(shape) - inner >= 2:
                    dim = self._selected(user)
                    if len(shape) - inner == 2:
                        if dim == inner:
                            return shape[inner], 0
                        continue
                    if dim == inner:
                        return shape[inner], shape[inner + 1]
                    if dim is not None and dim > inner:
                        return 1, shape[inner]
            onward = self.passed_on(value)
            if not onward:
                return None
            value = onward[0].outputs[0]
        return None

    def _selected(self, node: Node) -> int | None:
        """The dim of a value whose entries are taken out one by one, read through permutes and
        reshapes of what comes after it."""
        value = node.outputs[0]
        order = tuple(range(len(self.shape(value))))
        for _ in range(3):
            slices = [u.number("dim") for u in self.read(value) if u.op == "slice"]
            if len(slices) > 1 and len(set(slices)) == 1:
                return order[slices[0]] if slices[0] < len(order) else None
            moved = next((u for u in self.read(value) if u.op in ("permute", "reshape")), None)
            if moved is None:
                return None
            if moved.op == "permute":
                dims = moved.numbers("dims")
                order = tuple(order[d] for d in takewhile(range(len(order)).__contains__, dims))
            else:
                both = zip(self.shape(value), self.shape(moved.outputs[0]), strict=False)
                order = order[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))]
            value = moved.outputs[0]
        return None

    def _heads(self, node: Node) -> int:
        """Heads that the last dim of a product (or of its first piece) is reshaped into."""
        value = node.outputs[0]
        for _ in range(6):
            onward: list[str] = []
            *rest, width = self.shape(value)
            for user in self.read(value):
                shape = self.shape(user.outputs[0])
                split = [*shape[:-2], math.prod(shape[-2:])] == [*rest, width]
                if user.op == "reshape" and len(shape) > 3 and split:
                    return shape[-2]
                first = user.op == "slice" and user.attrs["start"] == 0
                if (first and user.attrs["dim"] == len(shape) - 1) or (
                    _passes(user) and shape[-1:] == (width,)
                ):
                    onward.append(user.outputs[0])
            if not onward:
                return 0
            value = onward[0]
        return 0

    def _scales(self, node: Node, owners: Mapping[str, str]) -> str | None:
        """The weight that a node works with number by number, beside constants and what is worked
        out of parameters of its own module alone: its norms, and how long these are to be."""
        shape = self.shape(node.outputs[0])
        like = (v for v in node.inputs if v in self.origin and self.shape(v) == shape)
        weight = next(like, None)
        if weight is None or len(shape) < 2 or lookup(node.op).kind != "map":
            return None
        if not all(v in self.alone for v in node.inputs):
            return None
        beside = set[str]().union(*(self.alone[v] for v in node.inputs))
        return weight if len({owners[p] for p in beside}) == 1 else None

    def _some_rows(self, node: Node) -> bool:
        """Whether a node takes rows of a matrix for products."""
        readers = self.read(node.outputs[0])
        along = node.op == "slice" and node.number("dim") == 0 and len(self.shape(node.inputs[0]))
        return along == 2 and all(n.op in ("mm", "permute") for n in readers)

    def _kernel(self, node: Node) -> tuple[int, ...] | None:
        """The dims of a weight [out, in / groups, *kernel] as [groups, out / groups, in / groups *
        kernel] or, where patches tile the input, as [out, in * kernel]; 2 stands for the groups."""
        whole, shape = self.shape(node.inputs[0]), self.shape(node.outputs[0])
        if node.op != "reshape" or len(whole) < 3:
            return None
        if shape == (whole[0], math.prod(whole[1:])):
            return 0, 1
        grouped = len(shape) == 3 and shape[2] == math.prod(whole[1:])
        return (2, 0, 1) if grouped and shape[0] * shape[1] == whole[0] else None

    def _is_depthwise(self, node: Node) -> bool:
        """Whether a weight [groups, 1, kernel] is turned for a product of each group: a filter of
        one channel, which no reshape takes apart."""
        groups, *rest = self.shape(node.inputs[0])
        readers = self.read(node.outputs[0])
        filters = len(rest) == 2 and rest[0] == 1 and self.origin[node.inputs[0]][1] == (0, 1, 2)
        return (
            filters
            and bool(readers)
            and all(n.op == "bmm" and n.inputs[1] == node.outputs[0] for n in readers)
            and groups > 1
        )

    def _per_channel(self, node: Node) -> frozenset[str] | None:
        """Of a vector with an entry for each channel, the products that what it meets comes from;
        None where it is no such."""
        (width, *more), shape = self.shape(node.inputs[0]) or (0,), self.shape(node.outputs[0])
        if more or math.prod(shape) != width or len(shape) < 2:
            return None
        value = node.outputs[0]
        readers = self.read(value)
        if readers and readers[0].op == "expand":
            value = readers[0].outputs[0]
            readers = self.read(value)
        met = [v for v in readers[0].inputs if v != value] if readers else []
        return self._read_from(met[0], 1, channels=True)[0] if met else frozenset()

    def _read_from(
        self,
        value: str,
        dim: int | None,
        *,
        channels: bool = False,
        held: frozenset[str] | None = None,
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The weights of the products that an activation depends on, where it depends on nothing
        else but biases that each head looks up, numbers for each channel, what integers choose, and
        what all entries along the dim are combined with alike, as a mask of tokens.

        There are none with a norm's own parameter on the way, a carry or an input of the program,
        nor with joined `channels`, a sum over all of them, one over `dim`, as of a norm without
        parameters, or a product whose columns `dim` are not. Then, and where some channels are
        read, the second are those of the products that were met. Where modules `held` are given,
        parameters are no obstacle, nor are sums over `dim` in one of these that all is read by.
        """
        origin = self.origin
        weights = {p for p, dims in origin.values() if len(dims) > 1}
        width = self.shape(value)[-1]
        dims: dict[str, int | None] = {value: dim}
        todo, seen, alone = [(value, False)], set[tuple[str, bool]](), True
        found, parts = set[str](), set[str]()
        while todo:
            value, cut = todo.pop()
            if (value, cut) in seen or not self.program.types[value].is_float:
                continue
            seen.add((value, cut))
            made, at = self.producers.get(value), dims.get(value)
            if made is None:
                item = next((i for i in self.program.inputs if i.name == value), None)
                outer = item is None or item.role in ("carry", "input", "cotangent")
                alone = alone and not outer and (held is not None or value not in origin)
                continue
            if made.op == "take" and made.inputs[0] in origin and self._is_bias(made):
                continue
            if made.op == "reshape" and made.inputs[0] in origin:
                continue
            if made.op == "take" and self._constant(made.inputs[1]):
                todo.append((made.inputs[0], cut))
                continue
            if made.op in PRODUCTS and made.inputs[1] in origin:
                weight = origin[made.inputs[1]][0]
                first = 0 if self.kernels.get(weight, 1) > 1 else None  # of groups
                alone = alone and at in (None, first, len(self.shape(value)) - 1)
                found.add(weight)
                parts |= {weight} if cut and weight not in self.pieced else set()
                continue
            vectors = [v for v in made.inputs if v in origin and origin[v][0] not in weights]
            wide = any(self.shape(v)[-1:] == (width,) for v in vectors)
            hidden = made.op in ("scan", "take")
            mixes, path = self._mixes(made, at, channels), made.source.module
            if mixes and held is not None and path in held:
                mixes = not self._is_inner(path)
            alone = alone and not (hidden or mixes)
            wide = wide and held is None and self._product_before(made) is None
            alone = alone and not wide
            if not (alone or channels):
                break
            if hidden:
                continue
            cut = cut or (channels and made.op == "slice" and made.number("dim") == 1)
            onward = [v for v in made.inputs if v not in vectors]
            onward = [
                v
                for v in onward
                if not (self._is_broadcast(made, v, at, channels) or self._is_score_bias(made, v))
            ]
            dims |= {v: self._dim_of(made, v, at) for v in onward}
            todo += ((v, cut) for v in onward)
        return frozenset(found if alone else ()), frozenset(parts if alone else found)

    def _is_inner(self, path: str) -> bool:
        """Whether all that a module takes is read by it alone: no residual passes it by."""
        own = [n for n in self.program.nodes if n.source.module == path]
        made = {v for n in own for v in n.outputs}
        taken = {v for n in own for v in n.inputs} - made - self.origin.keys()
        read = (n for v in taken for n in self.read(v) if n.outputs[0] in self.forward)
        return all(n.source.module == path for n in read)

    def _is_broadcast(self, node: Node, operand: str, dim: int | None, channels: bool) -> bool:
        """Whether an operand is worked out of inputs, and one for all channels or for all entries
        along a dim."""
        before, after = self.shape(operand), self.shape(node.outputs[0])
        if operand not in self.given or lookup(node.op).kind != "map" or len(node.inputs) < 2:
            return False
        if channels:
            return len(before) == len(after) > 2 and before[1] == 1 < after[1]
        if dim is None:
            return any(self._is_spread(operand, d) for d in range(len(before)))
        at = self._dim_of(node, operand, dim)
        return after[dim] > 1 and (at is None or before[at] == 1)

    def _is_score_bias(self, node: Node, operand: str) -> bool:
        """Whether a module adds what it is given to scores, products of activations in it."""
        made, path = self.producers.get(operand), node.source.module
        scores = next((self.producers.get(v) for v in node.inputs if v != operand), None)
        while scores is not None and _passes(scores):
            scores = self.producers.get(scores.inputs[0])
        is_scores = (
            scores is not None and scores.op == "bmm" and scores.inputs[1] not in self.origin
        )
        given = made is not None and not f"{made.source.module}.".startswith(f"{path}.")
        return node.op == "add" and bool(path) and is_scores and given

    def _is_spread(self, value: str, dim: int) -> bool:
        """Whether dims are joined in one, and all entries along one of them are alike: those of a
        mask that all heads share."""
        made = self.producers.get(value)
        wide = self.producers.get(made.inputs[0]) if made and made.op == "reshape" else None
        if made is None or wide is None or wide.op != "expand":
            return False
        shape, held = self.shape(value), self.shape(made.inputs[0])
        outer, inner = math.prod(shape[:dim]), math.prod(shape[: dim + 1])
        ends = [math.prod(held[:i]) for i in range(len(held) + 1)]
        joined = [i for i in range(len(held)) if outer <= ends[i] < ends[i + 1] <= inner]
        more = len(held) - len(self.shape(wide.inputs[0]))
        spread = (i < more or self.shape(wide.inputs[0])[i - more] < held[i] for i in joined)
        return len(joined) > 1 and any(spread)

    def _mixes(self, node: Node, dim: int | None, channels: bool) -> bool:
        """Whether a node joins channels, or sums up all of them or a `dim`."""
        joined = channels and node.op == "concat" and node.number("dim") == 1
        summed = node.op == "sum" and self._summed(node, dim)
        return joined or summed or (channels and self._over_all(node))

    def _dim_of(self, node: Node, operand: str, dim: int | None) -> int | None:
        return dim_of(self.program, node, operand, dim)

    def _summed(self, node: Node, dim: int | None) -> bool:
        """Whether a sum is over the dim of its operand that a dim of its result was."""
        whole = self._dim_of(node, node.inputs[0], dim)
        return whole in node.numbers("dims") and self.shape(node.inputs[0])[whole] > 1

    def _is_bias(self, node: Node) -> bool:
        """Whether rows of a table are a bias of each head, or are chosen by places alone."""
        return self._bias_heads(node) > 0 or self._of_places(node)

    def _over_all(self, node: Node) -> bool:
        """Whether a node sums up each entry of a batch, as a norm over all channels does."""
        if node.op != "sum" or 0 in node.numbers("dims"):
            return False
        return math.prod(self.shape(node.outputs[0])) == self.shape(node.inputs[0])[0]

    def _constant(self, value: str) -> bool:
        """Whether a value is a table of the program."""
        item = next((i for i in self.program.inputs if i.name == value), None)
        return item is not None and item.role == "const"

    def _product_before(self, node: Node, product: str = "mm") -> str | None:
        """The weight of the product that an `add` of its own module comes right after."""
        for value in node.inputs if node.op == "add" else ():
            made = self.producers.get(value)
            while made is not None and made.op == "reshape":
                made = self.producers.get(made.inputs[0])
            if made is None or made.op != product or made.source.module != node.source.module:
                continue
            for held in made.inputs:
                if held in self.origin:
                    return self.origin[held][0]
        return None
