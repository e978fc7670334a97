"""Lowers a one-device program to a distributed one, given where its inputs live.

Walks the program in order. Every value keeps the layouts it is available in; each op takes the
layouts its rule accepts at the least cost, and collectives are inserted where a layout has to
change. A change of layout travels up through views, so that a gather happens on the tensor the
owner wrote. The result is a candidate: only the verifier decides whether it is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

from synthesis.cost import collective_seconds, op_seconds
from synthesis.forward import forward_values
from synthesis.hardware import Cluster
from synthesis.localize import LAZY, VIEWS, Reading, localize, regroup_whole, source_layout
from synthesis.redistribute import path, volumes
from verifier.contract import Balanced, Contract, output_key
from verifier.ir.builder import Builder
from verifier.ir.program import Node, Program
from verifier.ir.types import ITEMSIZE, Mesh, TensorType
from verifier.layout import Layout, bound, normal, whole
from verifier.ops import Operands, Placed, Refused, lookup
from verifier.ops.control import scan_parts

ONE = Fraction(1)
MAX_TRIES = 160
LATE = 1e3
"""Seconds charged for putting off a reduction that the next op would have to repeat."""


class LoweringError(Exception):
    """No distribution of an op was found: which op, where, and why the last attempt failed."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(f"{node.op} at {node.source or 'an unknown place'}: {why}")
        self.node = node


@dataclass(frozen=True)
class Choices:
    """What a plan decides: layouts of inputs, of outputs, and of the carries of repeated blocks."""

    inputs: Mapping[str, Layout]
    """As stored between steps, by input name."""
    compute: Mapping[str, Layout]
    """As used by the ops, where that differs (parameters gathered over dp)."""
    outputs: Mapping[str, Layout]
    """By output key."""
    stream: str = "R"
    """Layout of the residual stream on tp: `R` or `S(1)`."""
    tp: str | None = None
    dp: str | None = None
    local_mean: bool = True
    """Data parallel ranks divide by their own count of labels and average, as FSDP does."""
    leaves: frozenset[str] = frozenset()
    """Modules that own parameters: a sum pending in one is taken before its result leaves."""
    whole: frozenset[str] = frozenset()
    """Modules whose result leaves them whole on tp: an output projection before a whole loss."""
    gather_outputs: bool = True
    """Outputs of the model are whole on tp; otherwise they stay as they come."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A one-device node beside the node that does its work on a rank."""

    scope: str
    """First result of the enclosing scan of the one-device program, '' at the top."""
    one: Node
    local: Node
    operands: tuple[Layout, ...]
    result: Layout


@dataclass(frozen=True)
class Lowered:
    program: Program
    contract: Contract
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the distributed program: its layout, and the factor it stands at."""

    name: str
    layout: Layout
    factor: Fraction = ONE


class Lowering:
    """The state of one lowering. Bodies of repeated blocks get one of their own."""

    def __init__(
        self,
        program: Program,
        mesh: Mesh,
        choices: Choices,
        cluster: Cluster,
        memo: dict[Any, Any],
    ) -> None:
        self.program, self.mesh, self.choices, self.cluster = program, mesh, choices, cluster
        self.memo = memo
        self.b = Builder(program.name, mesh)
        self.b.reserve(program.types)
        self.values: dict[str, list[Value]] = {}
        self.producer: dict[str, Node] = program.producers()
        self.read: dict[tuple[str, str], Layout] = {}
        self.wanted: dict[str, Layout] = {}
        self.balanced: set[str] = set()
        self.counts = self._counts()
        self.pairs: list[Pair] = []
        self.scope = ""
        self.forward: set[tuple[str, str]] = set()
        self.extents: dict[tuple[str, int], Layout] = {}

    # values

    def bind(self, name: str, value: Value) -> None:
        self.values.setdefault(name, []).append(value)

    def primary(self, name: str) -> Value:
        """The first layout a value has; values made from nothing are made whole."""
        if name not in self.values:
            node = self.producer[name]
            self._materialise(node, self._natural(node))
        return self.values[name][0]

    def _natural(self, node: Node) -> Layout:
        shape = self.program.types[node.outputs[0]].shape
        if not node.inputs:
            return Layout.replicate(shape)
        source = self.primary(node.inputs[0]).layout
        extra = len(shape) - len(source.dims)
        dims = [
            source.dims[i - extra] if i >= extra and source.dims[i - extra] else whole(n)
            for i, n in enumerate(shape)
        ]
        return Layout(tuple(dims), source.partial)

    def _materialise(self, node: Node, layout: Layout) -> Value:
        """Make a constant or a broadcast in a wanted layout."""
        name = node.outputs[0]
        inputs: list[str] = []
        factor = ONE
        if node.inputs:
            shape = self.program.types[node.inputs[0]].shape
            extra = len(layout.dims) - len(shape)
            dims = tuple(layout.dims[extra + i] if n != 1 else () for i, n in enumerate(shape))
            source = self.get(node.inputs[0], Layout(dims, layout.partial))
            if source is None:
                raise LoweringError(node, f"its operand is not to be had as {Layout(dims)}")
            inputs, factor = [source.name], source.factor
        readings = localize(node, (), self.mesh, self._reading(node, (), layout))
        attrs = next(r.attrs for r in readings)
        value = self._add(node, inputs, attrs, (), layout)
        made = Value(value, layout, factor)
        self.bind(name, made)
        return made

    def get(self, name: str, layout: Layout) -> Value | None:
        """The value in a layout, with the collectives it takes; None where there is no way."""
        node = self.producer.get(name)
        if name not in self.values and node is not None and node.op in LAZY:
            return self._materialise(node, layout)
        for value in self.values[name]:
            if value.layout == layout:
                return value
        best, cost = self._cheapest(name, layout)
        if best is None:
            return self._through_view(name, layout)
        if cost and node is not None and node.op in VIEWS and len(self.values[name]) == 1:
            through = self._through_view(name, layout, limit=cost)
            if through is not None:
                return through
        return self._move(name, best, layout)

    def _cheapest(self, name: str, layout: Layout) -> tuple[Value | None, float]:
        best: Value | None = None
        least = float("inf")
        for value in self.values[name]:
            cost = self.move_cost(value.layout, layout, self.program.types[name].dtype)
            if cost < least:
                best, least = value, cost
        return best, least

    def move_cost(self, source: Layout, target: Layout, dtype: str) -> float:
        key = ("move", source, target, dtype)
        found = self.memo.get(key)
        if found is None:
            steps = path(source, target, self.mesh)
            if steps is None:
                found = float("inf")
            else:
                found = sum(
                    collective_seconds(op, self.mesh, (n,), size * ITEMSIZE[dtype], self.cluster) + 1e-9
                    for op, n, size in volumes(source, steps)
                )
            self.memo[key] = found
        return found

    def _move(self, name: str, value: Value, layout: Layout) -> Value:
        dp = self.choices.dp
        mean = dp if dp and value.factor == self.mesh[dp] and value.layout.fold(dp) else None
        steps = path(value.layout, layout, self.mesh, mean)
        assert steps is not None
        current, factor = value.name, value.factor
        source = self.producer[name].source if name in self.producer else None
        for step in steps:
            (current,) = self.b.add_node(step.op, [current], dict(step.attrs), source=source)
            if dict(step.attrs).get("reduce") == "avg":
                factor /= self.mesh[str(dict(step.attrs)["mesh_dim"])]
            if step.layout.global_shape == layout.global_shape:
                self.bind(name, Value(current, step.layout, factor))
        return self.values[name][-1]

    def _through_view(self, name: str, layout: Layout, limit: float = float("inf")) -> Value | None:
        """Change the layout of a view by changing the layout of what it views."""
        node = self.producer.get(name)
        if node is None or node.op not in VIEWS:
            return None
        source = node.inputs[0]
        if source not in self.values and self.producer[source].op not in LAZY:
            return None
        wanted = source_layout(node, layout, self.program.types[source].shape)
        if wanted is None:
            return None
        if limit != float("inf"):
            if source not in self.values:
                return None
            _, cost = self._cheapest(source, wanted)
            if cost >= limit and self._cheapest(source, wanted)[0] is not None:
                return None
        value = self.get(source, wanted)
        if value is None:
            return None
        made = self._emit(node, [value], Reading(layout.global_shape, layout))
        if made is None or made.layout != layout:
            return None
        return made

    # ops

    def _reading(self, node: Node, layouts: Sequence[Layout], result: Layout | None = None) -> Reading:
        shape = self.program.types[node.outputs[0]].shape
        return Reading(shape, result, self._rows(node, layouts))

    def _rows(self, node: Node, layouts: Sequence[Layout]) -> Layout | None:
        """For an adjoint lookup: the layout its forward lookup read its rows in."""
        if node.op in ("index_add", "put_along"):
            size = node.attrs["size"]
            assert isinstance(size, int)
            return self.extents.get((node.op, size))
        return None

    def place(self, node: Node, layouts: tuple[Layout, ...], reading: Reading) -> tuple[Placed, dict[str, Any]] | None:
        """The reading of a local op that means the one-device op, if the rule accepts it."""
        op = lookup(node.op)
        attrs = tuple(sorted(op.with_defaults(node.attrs).items()))
        key = ("place", node.op, attrs, layouts, reading)
        if key in self.memo:
            return self.memo[key]
        found: tuple[Placed, dict[str, Any]] | None = None
        zeros = frozenset(
            i for i, v in enumerate(node.inputs) if self._is_zero(v)
        )
        for option in localize(node, layouts, self.mesh, reading):
            given = tuple(sorted(op.with_defaults(option.attrs).items()))
            try:
                placed = op.place(op, Operands(layouts, given, self.mesh, zeros))
            except Refused:
                continue
            match = next((p for p in placed if tuple(sorted(p.attrs)) == attrs and _fits(p, reading)), None)
            if match is not None:
                found = match, option.attrs
                break
        self.memo[key] = found
        return found

    def _is_zero(self, name: str) -> bool:
        node = self.producer.get(name)
        return node is not None and node.op == "full" and node.attrs["value"] == 0

    def _emit(self, node: Node, values: Sequence[Value], reading: Reading) -> Value | None:
        placed = self.place(node, tuple(v.layout for v in values), reading)
        if placed is None:
            return None
        option, attrs = placed
        factor = self._factor(node, values)
        if factor is None:
            return None
        layouts = tuple(v.layout for v in values)
        name = self._add(node, [v.name for v in values], attrs, layouts, option.layouts[0])
        made = Value(name, option.layouts[0], factor * option.scale)
        self.bind(node.outputs[0], made)
        return made

    def _factor(self, node: Node, values: Sequence[Value]) -> Fraction | None:
        """The factor of a result; None where the op does not carry the factors of its operands."""
        factors = [v.factor for v in values]
        if all(f == 1 for f in factors):
            return ONE
        if node.op == "div":
            return factors[0] / factors[1]
        if node.op == "reciprocal":
            return 1 / factors[0]
        groups = lookup(node.op).linear
        if node.op in VIEWS or node.op == "concat":
            groups = (frozenset(range(len(values))),)
        out, covered = ONE, set[int]()
        for group in groups:
            inside = {factors[i] for i in group if not self._is_zero(node.inputs[i])}
            if len(inside) > 1:
                return None
            out *= inside.pop() if inside else ONE
            covered |= group
        if any(f != 1 for i, f in enumerate(factors) if i not in covered):
            return None
        return out

    def _unit(self, name: str, value: Value) -> Value:
        """The value with its factor multiplied out."""
        if value.factor == 1:
            return value
        scaled = self.b.add("mul_scalar", value.name, value=1 / value.factor)
        made = Value(scaled, value.layout)
        self.bind(name, made)
        return made

    def _add(
        self,
        node: Node,
        inputs: list[str],
        attrs: Mapping[str, Any],
        operands: tuple[Layout, ...],
        result: Layout,
    ) -> str:
        name = node.outputs[0] if node.outputs[0] not in self.b.types else self.b.fresh("again")
        self.b.add_node(node.op, inputs, dict(attrs), outputs=(name,), source=node.source)
        self.pairs.append(Pair(self.scope, node, self.b.nodes[-1], operands, result))
        return name

    def run(self) -> None:
        for node in self.program.nodes:
            if node.op == "scan":
                self._scan(node)
            elif node.op not in LAZY:
                self._op(node)

    def _op(self, node: Node) -> None:
        lazy = [
            i
            for i, v in enumerate(node.inputs)
            if v not in self.values and self.producer[v].op in LAZY
        ]
        kind = lookup(node.op).kind
        if kind != "map" or len(lazy) == len(node.inputs):
            for i in lazy:
                self.primary(node.inputs[i])
            lazy = []
        fixed = [i for i in range(len(node.inputs)) if i not in lazy]
        best: tuple[float, tuple[Layout, ...]] | None = None
        for combo in self._combinations(node, fixed):
            layouts = self._complete(node, fixed, combo, lazy)
            if layouts is None:
                continue
            cost = self._price(node, fixed, layouts, best[0] if best else float("inf"))
            if cost is not None and (best is None or cost < best[0]):
                best = (cost, layouts)
                if cost == 0:
                    break
        if best is None:
            shown = ", ".join(str(self.primary(v).layout) for v in node.inputs)
            raise LoweringError(node, f"no rule accepts its operands as {shown}")
        values: list[Value] = []
        for v, layout in zip(node.inputs, best[1], strict=True):
            value = self.get(v, layout)
            if value is None:
                raise LoweringError(node, f"%{v} is not to be had as {layout}")
            values.append(value)
        reading = self._reading(node, best[1])
        made = self._emit(node, values, reading)
        if made is None:
            values = [self._unit(v, x) for v, x in zip(node.inputs, values, strict=True)]
            made = self._emit(node, values, reading)
        if made is None:
            raise LoweringError(node, "its operands stand at different factors")
        if node.op in ("take", "take_along"):
            adjoint = "index_add" if node.op == "take" else "put_along"
            dim = node.attrs.get("dim", 0)
            assert isinstance(dim, int)
            rows = values[0].layout.dims[dim]
            size = self.program.types[node.inputs[0]].shape[dim]
            if bound(rows):
                self.extents[adjoint, size] = Layout((rows,))
        self._balance(node, made)

    def _counts(self) -> frozenset[str]:
        """Sums that depend on index inputs alone: counts of labels."""
        index: set[str] = {i.name for i in self.program.inputs if not i.type.is_float}
        constant: set[str] = set()
        counts: set[str] = set()
        for node in self.program.nodes:
            if node.op in ("full", "iota"):
                constant |= set(node.outputs)
            elif node.op != "scan" and all(v in index or v in constant for v in node.inputs):
                if any(v in index for v in node.inputs):
                    index |= set(node.outputs)
                    if node.op == "sum":
                        counts |= set(node.outputs)
                else:
                    constant |= set(node.outputs)
        return frozenset(counts)

    def _balance(self, node: Node, made: Value) -> None:
        """Take a local count of labels for its share of the whole, as FSDP does."""
        dp = self.choices.dp
        name = node.outputs[0]
        if dp and self.choices.local_mean and name in self.counts and made.layout.fold(dp) == "sum":
            rest = (p for p in made.layout.partial if p[0] != dp)
            even = Value(made.name, made.layout.with_partial(rest), made.factor / self.mesh[dp])
            self.values[name].insert(0, even)
            self.balanced.add(name)

    def _combinations(self, node: Node, fixed: list[int]) -> Iterator[tuple[Layout, ...]]:
        """Layouts to try for the operands: as they are first, then with changes."""
        present = [[v.layout for v in self._have(node.inputs[i])] for i in fixed]
        for combo in product(*present):
            yield combo
        pools: list[list[Layout]] = []
        for k, i in enumerate(fixed):
            pool = [*present[k], *self._variants(node, i, present, k)]
            pools.append(list(dict.fromkeys(pool)))
        ranked = product(*(range(len(p)) for p in pools))
        for picks in sorted(ranked, key=sum)[:MAX_TRIES]:
            if any(p >= len(have) for p, have in zip(picks, present, strict=True)):
                yield tuple(pool[p] for pool, p in zip(pools, picks, strict=True))

    def _have(self, name: str) -> list[Value]:
        self.primary(name)
        return self.values[name]

    def _variants(self, node: Node, i: int, present: list[list[Layout]], k: int) -> list[Layout]:
        out: list[Layout] = []
        mine = present[k][0]
        tp = self.choices.tp
        if tp and mine.fold(tp) == "sum" and len(mine.dims) == 3 and self.choices.stream != "R":
            split = place_on(without(mine, (tp,)), tp, self.mesh[tp], 1)
            out += [split] if split is not None else []
        for name in mine.mentioned:
            out.append(without(mine, (name,)))
        if len(mine.mentioned) > 1:
            out.append(without(mine, tuple(mine.mentioned)))
        if lookup(node.op).kind == "map":
            for other, layouts in enumerate(present):
                if other != k:
                    out += [x for x in (match(mine, o) for o in layouts) if x is not None]
        elif node.op in ("mm", "bmm") and len(present) == 2:
            from verifier.ops.linalg import parse

            factors, _ = parse(lookup(node.op).signature)
            for o in present[1 - k]:
                for a, f in enumerate(factors[k]):
                    if f in factors[1 - k]:
                        dim = o.dims[factors[1 - k].index(f)]
                        moved = aligned(mine, a, dim)
                        if moved is not None and moved != mine:
                            out.append(moved)
        elif node.op in ("take_along", "index_add", "put_along") and k == 1:
            out += [x for x in (match(mine, o) for o in present[0]) if x is not None]
        return out

    def _complete(
        self, node: Node, fixed: list[int], combo: tuple[Layout, ...], lazy: list[int]
    ) -> tuple[Layout, ...] | None:
        """Layouts of all operands: broadcasts take the layout of the others."""
        chosen = dict(zip(fixed, combo, strict=True))
        rank = max(len(self.program.types[v].shape) for v in node.inputs)
        for i in lazy:
            shape = self.program.types[node.inputs[i]].shape
            source = self.producer[node.inputs[i]]
            dims = [whole(n) for n in shape]
            for layout in combo:
                for at, n in enumerate(shape):
                    other = at + (rank - len(shape)) - (rank - len(layout.dims))
                    if other >= 0 and n != 1 and bound(layout.dims[other]):
                        dims[at] = layout.dims[other]
            if source.op == "expand":
                inner = self.primary(source.inputs[0]).layout
                extra = len(shape) - len(inner.dims)
                for at, dim in enumerate(inner.dims):
                    if dim and bound(dim) and not bound(dims[at + extra]):
                        dims[at + extra] = dim
            chosen[i] = Layout(tuple(dims))
        return tuple(chosen[i] for i in range(len(node.inputs)))

    def _leaves(self, name: str, node: Node, modules: frozenset[str]) -> bool:
        """Whether a value crosses from one of these modules, which made it, to another one."""
        made = self.producer.get(name)
        if made is None or not made.source.module or not self.program.types[name].is_float:
            return False
        ours = node.source.module
        return made.source.module in modules and made.source.module != ours

    def _later(self, node: Node, layouts: tuple[Layout, ...], result: Layout) -> float:
        """Seconds of the reduction that a product with a newly pending sum will need."""
        if node.op not in ("mm", "bmm"):
            return 0.0
        new = result.pending - {n for x in layouts for n in x.pending}
        size = ITEMSIZE[self.program.types[node.outputs[0]].dtype]
        for extent in result.local_shape:
            size *= extent
        return sum(
            collective_seconds("reduce_scatter", self.mesh, (n,), size, self.cluster) for n in new
        )

    def _early(self, node: Node, layouts: tuple[Layout, ...]) -> bool:
        """Whether an activation that waits for a sum would be scaled by a tensor: it is reduced
        first, so that its other readers find it reduced."""
        tp = self.choices.tp
        if not tp:
            return False
        if (self.scope, node.outputs[0]) in self.forward:
            for name, layout in zip(node.inputs, layouts, strict=True):
                pending = layout.fold(tp) == "sum" and self._leaves(name, node, self.choices.leaves)
                split = tp in layout.sharded and self._leaves(name, node, self.choices.whole)
                if pending or split:
                    return True
        if node.op != "mul":
            return False
        small = any(not any(x.local_shape) or x.local_shape == () for x in layouts)
        return not small and any(x.fold(tp) == "sum" for x in layouts)

    def _price(
        self, node: Node, fixed: list[int], layouts: tuple[Layout, ...], limit: float
    ) -> float | None:
        """Seconds for moving the operands and running the op, None where it cannot be."""
        total = 0.0
        for i in fixed:
            name = node.inputs[i]
            _, cost = self._cheapest(name, layouts[i])
            if cost == float("inf"):
                producer = self.producer.get(name)
                if producer is None or producer.op not in VIEWS:
                    return None
                source = source_layout(producer, layouts[i], self.program.types[producer.inputs[0]].shape)
                if source is None or producer.inputs[0] not in self.values:
                    return None
                _, cost = self._cheapest(producer.inputs[0], source)
                if cost == float("inf"):
                    return None
                cost += 1e-9
            total += cost
            if total >= limit:
                return None
        reading = self._reading(node, layouts)
        placed = self.place(node, layouts, reading)
        if placed is None:
            return None
        if self._early(node, layouts):
            return total + LATE
        total += self._later(node, layouts, placed[0].layouts[0])
        if total == 0.0:
            return 0.0
        result = placed[0].layouts[0]
        key = ("op", node.op, layouts, result)
        seconds = self.memo.get(key)
        if seconds is None:
            operands = [
                TensorType(x.local_shape, self.program.types[v].dtype)
                for x, v in zip(layouts, node.inputs, strict=True)
            ]
            results = [TensorType(result.local_shape, self.program.types[node.outputs[0]].dtype)]
            seconds = op_seconds(node.op, operands, results, placed[1], self.cluster)
            self.memo[key] = seconds
        return total + seconds

    # repeated blocks

    def _scan(self, node: Node) -> None:
        assert node.body is not None
        parts = scan_parts(node.attrs, len(node.inputs))
        carries, length = node.attrs["carry"], node.attrs["length"]
        assert isinstance(carries, int) and isinstance(length, int)
        xs: list[Value] = []
        for v in node.inputs[parts[1]]:
            value = self.primary(v)
            if value.layout.dims and bound(value.layout.dims[0]):
                value = self.get(v, Layout((whole(length), *value.layout.dims[1:]))) or value
            xs.append(value)
        consts = [self.primary(v) for v in node.inputs[parts[2]]]
        wanted = [self._carry_layout(v) for v in node.inputs[parts[0]]]
        starts = [self._start(v, w) for v, w in zip(node.inputs[parts[0]], wanted, strict=True)]
        for _ in range(6):
            inner, changed = self._body(node, starts, xs, consts)
            if changed is None:
                break
            starts = [
                s if c is None else self._start(v, c, s.factor)
                for v, s, c in zip(node.inputs[parts[0]], starts, changed, strict=True)
            ]
        else:
            raise LoweringError(node, "the layouts of the carries do not settle")
        body = inner.b.build()
        results = inner.results
        names = [v.name for v in (*starts, *xs, *consts)]
        outputs = self.b.add_node("scan", names, node.attrs, outputs=node.outputs, source=node.source, body=body)
        self.pairs += inner.pairs
        for k, name in enumerate(outputs):
            value = results[k]
            layout = value.layout
            if k >= carries:
                layout = Layout((whole(length), *layout.dims), layout.partial)
            self.bind(node.outputs[k], Value(name, layout, value.factor))

    def _carry_layout(self, name: str) -> Layout | None:
        """The residual stream is laid out as the plan says; other carries as they come."""
        tp, shape = self.choices.tp, self.program.types[name].shape
        if len(shape) != 3 or not tp or self.mesh[tp] == 1:
            return None
        base = self.primary(name).layout
        plain = without(base, (tp,))
        if self.choices.stream == "R":
            return plain
        return place_on(plain, tp, self.mesh[tp], 1)

    def _start(self, name: str, layout: Layout | None, factor: Fraction | None = None) -> Value:
        if layout is None:
            return self.primary(name)
        value = self.get(name, layout)
        if value is None:
            raise LoweringError(self.producer[name], f"%{name} is not to be had as {layout}")
        return value

    def _body(
        self, node: Node, starts: list[Value], xs: list[Value], consts: list[Value]
    ) -> tuple[BodyLowering, list[Layout | None] | None]:
        body = node.body
        assert body is not None
        inner = BodyLowering(body, self.mesh, self.choices, self.cluster, self.memo)
        inner.extents = self.extents
        inner.scope = node.outputs[0]
        inner.forward = self.forward
        given = [*starts, *(replace(x, layout=Layout(x.layout.dims[1:], x.layout.partial)) for x in xs), *consts]
        for item, value in zip(body.inputs, given, strict=True):
            inner.enter(item.name, value, item.type.dtype, item.role, item.path)
        for item, outer in zip(body.inputs[len(starts) :], node.inputs[len(starts) :], strict=True):
            computed = self.choices.compute.get(outer)
            if computed is not None:
                inner.compute(item.name, Layout(computed.dims[1:], computed.partial))
        inner.run()
        changed: list[Layout | None] = []
        results: list[Value] = []
        for k, out in enumerate(body.outputs):
            if k < len(starts):
                value = inner.get(out.value, starts[k].layout)
                natural = inner.primary(out.value)
                zero = self._is_zero(node.inputs[k])
                if value is None or (zero and natural.layout != starts[k].layout):
                    changed.append(natural.layout)
                    value = natural
                else:
                    changed.append(None)
                if value.factor != starts[k].factor and not zero:
                    value = inner.rescale(out.value, value, starts[k].factor)
            else:
                target = self._result_layout(node, k)
                value = inner.get(out.value, target) if target is not None else None
                value = value or inner.primary(out.value)
                if target is not None:
                    value = inner.rescale(out.value, value, ONE)
            results.append(value)
        for value, out in zip(results, body.outputs, strict=True):
            inner.b.output(value.name, out.role, out.path)
        inner.results = results
        return inner, changed if any(c is not None for c in changed) else None

    def _result_layout(self, node: Node, k: int) -> Layout | None:
        """For a stacked result that is an output of the program: its layout in one step."""
        for out in self.program.outputs:
            if out.value == node.outputs[k] and output_key(out) in self.choices.outputs:
                layout = self.choices.outputs[output_key(out)]
                return Layout(layout.dims[1:], layout.partial)
        return None

    def enter(self, name: str, value: Value, dtype: str, role: str, path: str) -> None:
        self.b.input(name, TensorType(value.layout.local_shape, dtype), role, path)
        self.bind(name, Value(name, value.layout, value.factor))

    def compute(self, name: str, layout: Layout) -> None:
        """Gather a stored parameter to the layout the ops use."""
        stored = self.values[name][0]
        if stored.layout != layout:
            self.get(name, layout)
            self.values[name].reverse()

    def rescale(self, name: str, value: Value, factor: Fraction) -> Value:
        if value.factor == factor:
            return value
        scaled = self.b.add("mul_scalar", value.name, value=factor / value.factor)
        made = Value(scaled, value.layout, factor)
        self.bind(name, made)
        return made


class BodyLowering(Lowering):
    """The lowering of one body, with the values that it returns."""

    results: list[Value]

    def _counts(self) -> frozenset[str]:
        return frozenset()


def _fits(placed: Placed, reading: Reading) -> bool:
    return reading.result is None or placed.layouts[0] == reading.result


def without(layout: Layout, names: tuple[str, ...]) -> Layout:
    """The layout with some mesh dims replicated."""
    from verifier.layout import Atom

    dims = tuple(
        normal(Atom(a.size) if a.mesh_dim in names else a for a in dim) for dim in layout.dims
    )
    return Layout(dims, tuple(p for p in layout.partial if p[0] not in names))


def place_on(layout: Layout, name: str, size: int, dim: int) -> Layout | None:
    """The layout with `dim` split over one more mesh dim."""
    from verifier.layout import split_leading

    chunk = split_leading(layout.dims[dim], size, name)
    return None if chunk is None else layout.with_dim(dim, chunk)


def match(mine: Layout, other: Layout) -> Layout | None:
    """`mine` laid out as `other` where their whole extents agree."""
    rank = max(len(mine.dims), len(other.dims))
    dims = list(mine.dims)
    whole_mine, whole_other = mine.global_shape, other.global_shape
    for at in range(rank):
        a, b = at - (rank - len(dims)), at - (rank - len(other.dims))
        if a >= 0 and b >= 0 and whole_mine[a] == whole_other[b]:
            dims[a] = other.dims[b]
        elif a >= 0 and bound(dims[a]) and b >= 0:
            return None
    used = [n for d in dims for n in bound(d)]
    if len(set(used)) != len(used):
        return None
    partial = tuple(p for p in mine.partial if p[0] not in used)
    made = Layout(tuple(dims), partial)
    return made if made != mine else None


def aligned(mine: Layout, at: int, dim: Any) -> Layout | None:
    """`mine` with one dim split as a dim of another operand is."""
    taken = set(bound(dim))
    rest = without(mine, tuple(taken))
    out = rest.with_dim(at, dim)
    used = [n for d in out.dims for n in bound(d)]
    return out if len(set(used)) == len(used) and out.global_shape == mine.global_shape else None


def lower(
    program: Program,
    mesh: Mesh,
    choices: Choices,
    cluster: Cluster,
    memo: dict[Any, Any] | None = None,
) -> Lowered:
    """Lower a one-device program (primitives only).

    Raises:
        LoweringError: an op for which no distribution was found.
    """
    top = Lowering(program, mesh, choices, cluster, memo if memo is not None else {})
    top.forward = forward_values(program)
    for item in program.inputs:
        top.enter(item.name, Value(item.name, choices.inputs[item.name]), item.type.dtype, item.role, item.path)
        computed = choices.compute.get(item.name)
        stacked = any(
            node.op == "scan" and item.name in node.inputs[scan_parts(node.attrs, len(node.inputs))[1]]
            for node in program.nodes
        )
        if computed is not None and not stacked:
            top.compute(item.name, computed)
    top.run()
    outputs: dict[str, Layout] = {}
    for out in program.outputs:
        key = output_key(out)
        target = choices.outputs.get(key) or _result(top.primary(out.value).layout, out.role, choices)
        value = top.get(out.value, target)
        if value is None:
            raise LoweringError(top.producer[out.value], f"{key} is not to be had as {target}")
        value = top.rescale(out.value, value, ONE)
        top.b.output(value.name, out.role, out.path)
        outputs[key] = value.layout
    assert choices.dp is not None or not top.balanced
    balanced = tuple(
        Balanced(name, choices.dp or "", "the number of labels that count")
        for name in sorted(top.balanced)
    )
    contract = Contract(dict(choices.inputs), outputs, balanced)
    return Lowered(top.b.build(), contract, tuple(top.pairs))


def _result(natural: Layout, role: str, choices: Choices) -> Layout:
    """Losses are whole everywhere; other outputs keep their batch split."""
    names = natural.mentioned if role == "loss" else natural.pending
    if choices.tp and choices.gather_outputs:
        names = names | {choices.tp}
    return without(natural, tuple(names))


__all__ = ["Choices", "Lowered", "LoweringError", "lower", "regroup_whole"]
