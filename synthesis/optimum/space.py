"""Every placement of the ops of a program that the placement rules accept, as an integer program.

A value is made in one layout; readers take it in that layout, or in one that it is moved to, and
readers of one scope share a move. Repeated blocks are one scope, so the size does not grow with
depth. Seconds are counted in picoseconds, whole numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Choices, Placed
from shardproof.synthesis.lower.emission import place, readings
from shardproof.synthesis.lower.local_attributes import (
    beside,
    regroup_whole,
    source_layout,
    split as split_over,
    without,
)
from shardproof.synthesis.lower.redistribute import path, volumes
from shardproof.synthesis.lower.state import Setting, State, scope_state
from shardproof.synthesis.optimum.linear import Linear
from shardproof.synthesis.planner.assign import (
    batch_extent,
    batch_split,
    options,
    split,
    split_states,
)
from shardproof.synthesis.planner.cost import adam_bytes
from shardproof.synthesis.planner.scoring import Search
from shardproof.verifier.kernel.layout import Layout, bound, whole
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import ITEMSIZE, TensorType
from shardproof.verifier.ops.classes import ALIGNED, REARRANGING, SPREADING, TRANSPARENT

PICO = 1e12

Made = dict[Layout, list[int]]
"""The layouts that a value is made in -> variables of which one is 1 where it is that layout."""
Key = tuple[str, str]
"""(scope, value)."""


class SpaceError(Exception):
    """An op that no placement rule accepts in any layout."""


def _seam(node: Node, layout: Layout) -> tuple[object, ...]:
    """What the layouts of all operands of a concat have in common, whatever their extents along its
    dim: no rule joins others."""
    at = node.number("dim")
    along = layout.dims[at]
    return *layout.dims[:at], along if bound(along) else None, *layout.dims[at + 1 :]


def _alike(
    node: Node, pools: Sequence[Sequence[Layout]], zeros: Sequence[bool]
) -> Iterator[tuple[Layout, ...]]:
    """Layouts of the operands of a concat, of which there may be many. Those of zeros are no part
    of a pending sum."""
    by = [{(_seam(node, x), x.partial): x for x in pool} for pool in pools]
    for seam, partial in dict.fromkeys(key for found in by for key in found):
        made = [
            found.get((seam, partial)) or (found.get((seam, ())) if zero else None)
            for found, zero in zip(by, zeros, strict=True)
        ]
        whole = [x for x in made if x is not None]
        if len(whole) == len(made):
            yield tuple(whole)


@dataclass(frozen=True)
class Restriction:
    """What placements of the space may do."""

    styles: Mapping[str, str] = field(default_factory=dict[str, str])
    """Modules whose style is fixed, by path."""
    parameters: float | None = None
    """Bytes of parameters that a rank keeps at most."""
    memory: float | None = None
    """Bytes of parameters, gradients, optimizer states and kept activations at most."""
    weights_move: bool = True
    """Whether a weight may be gathered over tp inside a block."""


@dataclass
class Space:
    """The integer program, and what its variables mean."""

    state: Search
    restriction: Restriction
    linear: Linear = field(default_factory=Linear)
    placed: dict[int, tuple[Key, tuple[Layout, ...], Layout]] = field(
        default_factory=dict[int, "tuple[Key, tuple[Layout, ...], Layout]"]
    )
    """Variable -> a node's value with the layouts of its operands and of itself."""
    entered: dict[int, tuple[Key, Layout]] = field(default_factory=dict[int, "tuple[Key, Layout]"])
    """Variable -> an input of the program or a body, or a stacked result, and its layout."""

    def __post_init__(self) -> None:
        state = self.state
        self.compute: list[tuple[int, int]] = []
        self.data: list[tuple[int, int]] = []
        self.memory: list[tuple[int, int]] = []
        self.kept: list[tuple[int, int]] = []
        self.one = self.linear.variable()
        self.linear.row([(self.one, 1)], 1, 1)
        self.setting = Setting(
            state.mesh,
            Choices({}, {}, {}, "R", state.tp, state.dp),
            state.prices,
            state.lowering.memo,
            frozenset(forward_values(state.program)),
        )
        self.moves: dict[tuple[Layout, Layout, str], tuple[int, int] | None] = {}
        self.stacked = {
            v
            for n in state.program.nodes
            if n.body is not None
            for v in (
                *n.inputs[scan_parts(n.attrs, len(n.inputs))[1]],
                *n.outputs[n.number("carry") :],
            )
        }
        self._build()

    def _build(self) -> None:
        state, top = self.state, _Scope(self, self.state.program, 1, "")
        batch = batch_extent(state.program)
        parameters: dict[str, dict[Layout, list[int]]] = {}
        for item in state.program.inputs:
            if item.role == "param":
                parameters[item.path] = self._parameter(top, item.name)
            else:
                layout = batch_split(state.program, item, batch, state.mesh, state.dp)
                top.made[item.name] = {layout: [self.one]}
        self.gradients = {
            o.value: list(parameters[o.path]) for o in state.program.outputs if o.role == "grad"
        }
        top.run()
        for out in state.program.outputs:
            if out.role == "grad":
                for layout, choice in parameters[out.path].items():
                    self._needs(choice[0], top.available(out.value, layout))
                continue
            self._output(top, out.value, out.role)
        self._totals()

    def _parameter(self, top: _Scope, name: str) -> dict[Layout, list[int]]:
        """Choose the layout of a parameter; returns what it is stored in."""
        state = self.state
        module, param = state.owners[name]
        size = state.mesh[state.tp] if state.tp else 1
        styles = options(module, size) if state.tp else ["replicate"]
        fixed = self.restriction.styles.get(module.path)
        layouts = [split(module, param, s, state.tp or "", size) for s in styles]
        layouts += self.around(Layout.replicate(param.shape))
        if fixed is not None:
            layouts = [split(module, param, fixed, state.tp or "", size)]
        made: Made = {}
        held: dict[Layout, list[int]] = {}
        shape, dtype = state.program.types[name].shape, state.program.types[name].dtype
        for layout in dict.fromkeys(layouts):
            keep = split_states(layout, state.dp, state.mesh[state.dp]) if state.dp else layout
            if param.stacked:
                layout, keep = (Layout((whole(shape[0]), *x.dims)) for x in (layout, keep))
            variable = self.linear.variable()
            self.entered[variable] = (("", name), layout)
            made[layout] = [variable]
            held.setdefault(keep, []).append(variable)
            local = TensorType(keep.local_shape, dtype)
            self.memory.append((variable, 2 * local.nbytes + adam_bytes(local)))
            self.kept.append((variable, local.nbytes))
            if state.dp:
                # A stacked parameter is gathered where a block reads it, forward and backward.
                times = shape[0] * self._readers(name) if param.stacked else 1
                gathered = layout.local_shape[1:] if param.stacked else layout.local_shape
                nbytes = TensorType(gathered, dtype).nbytes
                if keep != layout:
                    seconds = state.prices.collective("all_gather", (state.dp,), nbytes)
                    self.data.append((variable, round(seconds * times * PICO)))
        self.linear.one_of([v for vs in made.values() for v in vs])
        top.made[name] = made
        top.weights.add(name)
        return {
            keep: [self._sum(variables)] if len(variables) > 1 else variables
            for keep, variables in held.items()
        }

    def _readers(self, name: str) -> int:
        return sum(name in n.inputs for n in self.state.program.nodes if n.body is not None)

    def _sum(self, variables: list[int]) -> int:
        total = self.linear.variable()
        self.linear.same([total], variables)
        return total

    def _output(self, top: _Scope, name: str, role: str) -> None:
        state = self.state
        ways: list[int] = []
        for layout in top.pool(name):
            names = layout.mentioned if role == "loss" else layout.pending
            if not state.loss_parallel and state.tp in layout.mentioned:
                continue
            way = None if names else top.available(name, layout)
            if way is not None:
                ways.append(way)
        self.linear.row([(v, 1) for v in ways], 1, None)

    def _needs(self, choice: int, available: int | None) -> None:
        """A choice is open only where a value is available."""
        if available is None:
            self.linear.row([(choice, 1)], 0, 0)
        else:
            self.linear.at_most([choice], [available])

    def _totals(self) -> None:
        """What a step waits for beside its ops, and the bounds on memory."""
        state, linear = self.state, self.linear
        prices, most = state.prices, sum(linear.cost) + 1
        host = prices.machine.constants.layer_s * prices.kernels.layers
        waiting = linear.variable(1, round(host * PICO))
        linear.row([(waiting, 1), *self.compute], round(host * PICO), None)
        if self.data:
            share = prices.hidden[1]
            most += sum(c for _, c in self.data)
            rest = linear.variable(1, most)
            left = [(v, -round(c * (1 - share))) for v, c in self.data]
            linear.row([(rest, 1), *left], 0, None)
            work = [(v, round(c * share)) for v, c in self.compute]
            linear.row([(rest, 1), *work, *((v, -c) for v, c in self.data)], 0, None)
        for limit, terms in (
            (self.restriction.parameters, self.kept),
            (self.restriction.memory, self.memory),
        ):
            if limit is not None:
                linear.row(terms, None, round(limit))

    def around(self, layout: Layout) -> list[Layout]:
        """The layout with tp taken out, and split over it along each dim that divides."""
        tp, mesh = self.state.tp, self.state.mesh
        if not tp:
            return [layout]
        plain = without(layout, (tp,))
        dims = range(len(plain.dims))
        splits = (split_over(plain, tp, mesh[tp], d) for d in dims)
        return [plain, *(x for x in splits if x is not None)]

    def move(self, source: Layout, target: Layout, dtype: str) -> tuple[int, int] | None:
        """Picoseconds of a move: exposed ones over all but dp, all of those over dp."""
        key = (source, target, dtype)
        if key not in self.moves:
            steps = path(source, target, self.state.mesh)
            self.moves[key] = None if steps is None else self._priced(volumes(source, steps), dtype)
        return self.moves[key]

    def _priced(self, steps: Iterable[tuple[str, str, int]], dtype: str) -> tuple[int, int]:
        prices, sent, data = self.state.prices, 0, 0
        for op, name, count in steps:
            seconds = prices.collective(op, (name,), count * ITEMSIZE[dtype])
            if name == "dp":
                data += round(seconds * PICO)
            else:
                sent += round(seconds * (1 - prices.hidden[0]) * PICO)
        return sent, data

    def decided(self, values: Sequence[float]) -> Placed:
        """The placements that a solution chooses."""
        nodes = {self.placed[v][0]: self.placed[v][1:] for v in self.placed if values[v] > 0.5}
        inputs = {self.entered[v][0]: self.entered[v][1] for v in self.entered if values[v] > 0.5}
        return Placed(nodes, inputs)


class _Scope:
    """The program or a body: what its values are made in, and what they are moved to."""

    def __init__(self, space: Space, program: Program, times: int, name: str) -> None:
        self.space, self.program, self.times, self.name = space, program, times, name
        self.state: State = scope_state(space.setting, program, name)
        self.made: dict[str, Made] = {}
        self.free: dict[str, Callable[[Layout], int | None]] = {}
        self.weights: set[str] = set()
        self.shared: dict[tuple[str, Layout, Layout], int] = {}
        self.ways: dict[tuple[str, Layout], int | None] = {}

    def run(self) -> None:
        for node in self.program.nodes:
            if node.body is not None:
                self._scan(node, node.body)
            elif node.op in SPREADING:
                self._lazy(node)
            elif node.op in REARRANGING and node.inputs[0] in self.free:
                self._lazy_view(node)
            else:
                self._op(node)

    def pool(self, name: str) -> list[Layout]:
        """Layouts worth having a value in."""
        if name in self.free:
            plain, state = Layout.replicate(self.program.types[name].shape), self.space.state
            bases = [plain]
            if state.dp and plain.dims:  # for what each sequence reads: positions
                bases += filter(None, [split_over(plain, state.dp, state.mesh[state.dp], 0)])
            return [x for base in bases for x in self.space.around(base)]
        made = list(self.made[name])
        dp = self.space.state.dp
        made += [without(x, (dp,)) for x in made if dp in x.pending]
        return list(dict.fromkeys([*made, *(x for m in made for x in self.space.around(m))]))

    def reach(self, name: str, source: Layout, target: Layout) -> bool:
        """Whether a value may be moved between two layouts."""
        if source == target:
            return True
        if name in self.weights and not self.space.restriction.weights_move:
            return False
        if not self.name and name in self.space.stacked:
            return False
        return self.space.move(source, target, self.program.types[name].dtype) is not None

    def moved(self, name: str, source: Layout, target: Layout) -> int:
        """The variable of a move, which all readers share."""
        key = (name, source, target)
        if key not in self.shared:
            cost = self.space.move(source, target, self.program.types[name].dtype)
            assert cost is not None
            variable = self.space.linear.variable(cost[0] * self.times)
            if cost[1]:
                self.space.data.append((variable, cost[1] * self.times))
            self.shared[key] = variable
        return self.shared[key]

    def available(self, name: str, layout: Layout) -> int | None:
        """A variable that is 1 only where a value is to be had in a layout; None if it is not."""
        key = (name, layout)
        if key not in self.ways:
            self.ways[key] = self._available(name, layout)
        return self.ways[key]

    def _available(self, name: str, layout: Layout) -> int | None:
        if name in self.free:
            return self.free[name](layout)
        linear, ways = self.space.linear, list[int]()
        for source, variables in self.made[name].items():
            if source == layout:
                ways += variables
            elif self.reach(name, source, layout):
                move = linear.variable()
                linear.at_most([move], variables)
                linear.at_most([move], [self.moved(name, source, layout)])
                ways.append(move)
        if not ways:
            return None
        out = linear.variable()
        linear.at_most([out], ways)
        return out

    def _lazy(self, node: Node) -> None:
        name, shape = node.outputs[0], self.program.types[node.outputs[0]].shape
        if not node.inputs:
            self.free[name] = lambda layout: None if layout.partial else self.space.one
            return
        source = node.inputs[0]
        inner = self.program.types[source].shape
        extra = len(shape) - len(inner)

        def expanded(layout: Layout) -> int | None:
            dims = tuple(layout.dims[extra + i] if n != 1 else () for i, n in enumerate(inner))
            return self.available(source, Layout(dims, layout.partial))

        self.free[name] = expanded

    def _lazy_view(self, node: Node) -> None:
        source = node.inputs[0]
        shape = self.program.types[source].shape

        def viewed(layout: Layout) -> int | None:
            inner = source_layout(node, layout, shape)
            return None if inner is None else self.available(source, inner)

        self.free[node.outputs[0]] = viewed

    def _operands(self, node: Node) -> Iterator[tuple[Layout, ...]]:
        """Layouts of all operands to try: those made from nothing follow the others."""
        types, inputs = self.program.types, node.inputs
        follows = node.op in ALIGNED
        free = [i for i, v in enumerate(inputs) if v in self.free and follows]
        if len(free) == len(inputs):
            free = []
        fixed = [i for i in range(len(inputs)) if i not in free]
        rank = max((len(types[v].shape) for v in inputs), default=0)
        pools = [self._pool_of(inputs[i]) for i in fixed]
        zeros = [self.state.is_zero(inputs[i]) for i in fixed]
        joined = node.op == "concat"
        for choice in _alike(node, pools, zeros) if joined else product(*pools):
            taken = dict(zip(fixed, choice, strict=True))
            ways = [self._following(inputs[i], choice, rank) for i in free]
            if joined:
                ways = [
                    [x for x in way if _seam(node, x) == _seam(node, choice[0])] for way in ways
                ]
            for rest in product(*ways):
                taken |= zip(free, rest, strict=True)
                yield tuple(taken[i] for i in range(len(inputs)))

    def _pool_of(self, name: str) -> list[Layout]:
        out = self.pool(name)
        if name in self.free:
            out += [x for x in self._naturals(name) if x not in out]
        return out

    def _naturals(self, name: str) -> Iterator[Layout]:
        """Layouts of a broadcast, or a view of one, that need no move of what it repeats."""
        node, shape = self.state.producer[name], self.program.types[name].shape
        if not node.inputs:
            return
        for inner in self._pool_of(node.inputs[0]):
            if node.op == "reshape":
                made = regroup_whole(inner, shape)
            elif node.op == "permute":
                dims = node.numbers("dims")
                made = Layout(tuple(inner.dims[int(d)] for d in dims), inner.partial)
            else:
                extra = len(shape) - len(inner.dims)
                spread = [
                    inner.dims[i - extra] if i >= extra and inner.dims[i - extra] else whole(n)
                    for i, n in enumerate(shape)
                ]
                made = Layout(tuple(spread), inner.partial)
            if made is not None:
                yield made

    def _following(self, name: str, others: Sequence[Layout], rank: int) -> list[Layout]:
        shape = self.program.types[name].shape
        out = [beside(shape, others, rank)]
        out += [x for x in self._naturals(name) if not x.partial]
        return list(dict.fromkeys(out))

    def _op(self, node: Node) -> None:
        space, linear = self.space, self.space.linear
        name, types = node.outputs[0], self.program.types
        best: dict[tuple[tuple[Layout, ...], Layout], int] = {}
        for layouts in self._operands(node):
            for wanted in readings(self.state, node):
                placed = place(self.state, node, layouts, wanted)
                if placed is None:
                    continue
                result = placed[0].layouts[0]
                operands = [TensorType(x.local_shape, types[v].dtype) for x, v in
                            zip(layouts, node.inputs, strict=True)]  # fmt: skip
                local = [TensorType(result.local_shape, types[name].dtype)]
                seconds = space.state.prices.op((self.name, name), operands, local)
                best[layouts, result] = round(seconds * PICO) * self.times
        made, chosen = defaultdict[Layout, list[int]](list), list[int]()
        reads: list[dict[Layout, list[int]]] = [defaultdict(list) for _ in node.inputs]
        waits: list[dict[int, list[int]]] = [defaultdict(list) for _ in node.inputs]
        for (layouts, result), cost in best.items():
            ways = self._ways(node, layouts)
            if ways is None:
                continue
            choice = linear.variable(cost)
            if cost:
                space.compute.append((choice, cost))
            space.placed[choice] = ((self.name, name), layouts, result)
            chosen.append(choice)
            made[result].append(choice)
            for at, (layout, way) in enumerate(zip(layouts, ways, strict=True)):
                if way is None:
                    reads[at][layout].append(choice)
                else:
                    waits[at][way].append(choice)
        if not chosen:
            raise SpaceError(f"{node.op} at {node.source}")
        linear.one_of(chosen)
        for at, by_layout in enumerate(reads):
            if by_layout:
                self._flow(node.inputs[at], by_layout)
        for by_way in waits:
            for way, choices in by_way.items():
                linear.at_most(choices, [way])
        self.made[name] = dict(made)
        self._balance(name)
        if node.op in TRANSPARENT and node.inputs[0] in self.weights:
            self.weights.add(name)
        self._keep(name)

    def _ways(self, node: Node, layouts: tuple[Layout, ...]) -> list[int | None] | None:
        """For each operand the variable it waits for, None where it flows; None if one is not to
        be had."""
        out: list[int | None] = []
        for name, layout in zip(node.inputs, layouts, strict=True):
            if name in self.free:
                way = self.available(name, layout)
                if way is None:
                    return None
                out.append(way)
            elif any(self.reach(name, source, layout) for source in self.made[name]):
                out.append(None)
            else:
                return None
        return out

    def _flow(self, name: str, readers: Mapping[Layout, list[int]]) -> None:
        """From the layouts that a value is made in to those that one op reads it in."""
        linear = self.space.linear
        leaving, coming = defaultdict[Layout, list[int]](list), defaultdict[Layout, list[int]](list)
        for source in self.made[name]:
            for target in readers:
                if self.reach(name, source, target):
                    flow = linear.variable()
                    leaving[source].append(flow)
                    coming[target].append(flow)
                    if source != target:
                        linear.at_most([flow], [self.moved(name, source, target)])
        for source, variables in self.made[name].items():
            linear.same(leaving[source], variables)
        for target, choices in readers.items():
            linear.same(coming[target], choices)

    def _balance(self, name: str) -> None:
        """A count of labels may be taken for its share of the whole, as FSDP does: for nothing."""
        dp = self.space.state.dp
        if not dp or name not in self.state.counts:
            return
        for layout, choices in list(self.made[name].items()):
            if layout.fold(dp) == "sum":
                plain = layout.with_partial(p for p in layout.partial if p[0] != dp)
                self.made[name].setdefault(plain, []).extend(choices)
                del self.made[name][layout]

    def _keep(self, name: str) -> None:
        """Bytes of a value that is kept for backward."""
        if (self.name, name) in self.space.state.prices.kernels.kept:
            dtype = self.program.types[name].dtype
            for layout, choices in self.made[name].items():
                nbytes = TensorType(layout.local_shape, dtype).nbytes * self.times
                self.space.memory += [(choice, nbytes) for choice in choices]

    def _scan(self, node: Node, body: Program) -> None:
        space, linear = self.space, self.space.linear
        carried, stacked, _ = scan_parts(node.attrs, len(node.inputs))
        length = node.number("length")
        inner = _Scope(space, body, self.times * length, node.outputs[0])
        for k, (item, name) in enumerate(zip(body.inputs, node.inputs, strict=True)):
            is_stacked = stacked.start <= k < stacked.stop
            made: Made = {}
            for layout in self._entries(name, k < carried.stop, is_stacked):
                outer = Layout((whole(length), *layout.dims), layout.partial)
                zero = k < carried.stop and self.state.is_zero(name)
                way = space.one if zero else self.available(name, outer if is_stacked else layout)
                if way is not None:
                    choice = linear.variable()
                    linear.at_most([choice], [way])
                    space.entered[choice] = ((inner.name, item.name), layout)
                    made[layout] = [choice]
            linear.one_of([v for vs in made.values() for v in vs])
            inner.made[item.name] = made
            if name in self.weights:
                inner.weights.add(item.name)
            inner._keep(item.name)
        inner.run()
        for k, (out, name) in enumerate(zip(body.outputs, node.outputs, strict=True)):
            if k < carried.stop:
                self.made[name] = inner.made[body.inputs[k].name]
                for layout, choice in self.made[name].items():
                    space._needs(choice[0], inner.available(out.value, layout))  # pyright: ignore[reportPrivateUsage]
                continue
            made = {}
            final = space.gradients.get(name, ()) if not self.name else ()
            wanted = [Layout(x.dims[1:], x.partial) for x in final]
            for layout in dict.fromkeys([*inner.pool(out.value), *wanted]):
                way = inner.available(out.value, layout)
                if way is not None:
                    choice = linear.variable()
                    linear.at_most([choice], [way])
                    space.entered[choice] = ((self.name, name), layout)
                    made[Layout((whole(length), *layout.dims), layout.partial)] = [choice]
            linear.one_of([v for vs in made.values() for v in vs])
            self.made[name] = made

    def _entries(self, name: str, carried: bool, stacked: bool) -> list[Layout]:
        """Layouts that an input of a body may come in."""
        if stacked and name in self.made:
            return [Layout(x.dims[1:], x.partial) for x in self.made[name]]
        if not stacked:
            return self.pool(name)
        shape = self.program.types[name].shape[1:]
        return self.space.around(Layout.replicate(shape))
