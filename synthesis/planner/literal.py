"""A style as it stands: the module's code on local tensors, with no collective inside it and
no reduction after it. Such a program is built to be judged, never to be emitted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from shardproof.synthesis.lower.local_attributes import Reading, localize, regroup_whole
from shardproof.synthesis.lower.share import share
from shardproof.synthesis.planner.assign import PlanError, split
from shardproof.synthesis.planner.roles import Module
from shardproof.verifier.kernel.contract import Contract
from shardproof.verifier.kernel.layout import Layout, bound, split_leading, whole
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.builder import Builder
from shardproof.verifier.kernel.program.errors import IRError
from shardproof.verifier.kernel.program.program import Node, Program, live
from shardproof.verifier.kernel.program.types import Mesh


class LiteralError(ValueError):
    """A style that the module's code cannot be run with on local tensors."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The forward pass on one device and on the ranks."""

    sequential: Program
    distributed: Program
    contract: Contract


def literal(program: Program, module: Module, style: str, tp: str, size: int) -> Pair:
    """The forward pass with one module split as a style says and everything else whole.

    `row`, and a split of a vector, take their activation split along its last dim; the others take
    it whole. What the module returns is used as it is: gathered where it came out split.

    Raises:
        LiteralError: extents that do not divide, or code with no local counterpart.
    """
    one = forward(program)
    mesh = Mesh.of(**{tp: size})
    try:
        layouts = {p.name: split(module, p, style, tp, size) for p in module.params}
    except PlanError as error:
        raise LiteralError(str(error)) from None
    stacks = style == "row" or module.use == "other"
    setting = _Setting(module, mesh, tp, size, stacks, layouts)
    try:
        many = setting.written(one)
    except (IRError, ValueError) as error:
        raise LiteralError(f"{module.path} cannot be run on local tensors: {error}") from None
    if not setting.met:
        raise LiteralError(f"{module.path} does nothing in the forward pass")
    inputs = {
        i.name: _stacked(layouts[i.name], i.type.shape)
        if i.name in layouts
        else Layout.replicate(i.type.shape)
        for i in one.inputs
    }
    outputs = {
        f"{o.role}:{o.path}": Layout.replicate(one.types[o.value].shape) for o in one.outputs
    }
    return Pair(one, many, Contract(inputs, outputs))


def forward(program: Program) -> Program:
    """Outputs and loss alone, with what they need."""
    kept = tuple(o for o in program.outputs if o.role in ("output", "loss"))
    if not kept:
        raise LiteralError("the program has no output but gradients")
    lean = share(live(replace(program, outputs=kept)))
    read = {v for n in lean.nodes for v in n.inputs} | {o.value for o in lean.outputs}
    items = tuple(i for i in lean.inputs if i.name in read)
    gone = {i.name for i in lean.inputs} - {i.name for i in items}
    types = {v: t for v, t in lean.types.items() if v not in gone}
    return replace(lean, inputs=items, types=types)


def _stacked(layout: Layout, shape: tuple[int, ...]) -> Layout:
    more = shape[: len(shape) - len(layout.dims)]
    return Layout((*(whole(n) for n in more), *layout.dims)) if more else layout


@dataclass
class _Setting:
    module: Module
    mesh: Mesh
    tp: str
    size: int
    takes_split: bool
    """Whether the activation that the module takes is split along its last dim."""
    layouts: Mapping[str, Layout]
    met: bool = False

    def written(self, program: Program, names: Mapping[str, str] | None = None) -> Program:
        """The program of the ranks; `names` maps inputs of a body to the parameters they are."""
        origin = {i.name: i.name for i in program.inputs if i.role == "param"} | dict(names or {})
        builder = Builder(program.name, self.mesh)
        builder.reserve(program.types)
        scope = _Scope(self, program, builder, origin)
        for item in program.inputs:
            layout = self.layouts.get(origin.get(item.name, ""))
            type = item.type
            if layout is not None:
                layout = _stacked(layout, type.shape)
                type = replace(type, shape=layout.local_shape)
                scope.local[item.name] = layout
            builder.input(item.name, type, item.role, item.path)
        for node in program.nodes:
            scope.add(node)
        for out in program.outputs:
            builder.output(scope.whole(out.value), out.role, out.path)
        return builder.build()


@dataclass
class _Scope:
    setting: _Setting
    program: Program
    builder: Builder
    origin: Mapping[str, str]
    local: dict[str, Layout] = field(default_factory=dict[str, Layout])
    """Values that the module makes or owns, as its code takes them to be laid out."""
    entered: dict[str, str] = field(default_factory=dict[str, str])
    gathered: dict[str, str] = field(default_factory=dict[str, str])
    summed: set[str] = field(default_factory=set[str])
    """Sums over a dim that is split."""

    def add(self, node: Node) -> None:
        if node.body is not None:
            self._scan(node)
        elif self._ours(node):
            self._local(node)
        else:
            inputs = [self.whole(v) for v in node.inputs]
            self.builder.append(replace(node, inputs=tuple(inputs)))

    def _ours(self, node: Node) -> bool:
        """A node of the module, or a view of its weight."""
        return node.source.module == self.setting.module.path

    def _scan(self, node: Node) -> None:
        body = node.block
        names = {
            item.name: self.origin[v]
            for item, v in zip(body.inputs, node.inputs, strict=True)
            if v in self.origin
        }
        written = self.setting.written(body, names)
        stacked = scan_parts(node.attrs, len(node.inputs))[1]
        inputs = tuple(
            v if at in range(stacked.start, stacked.stop) or v in self.origin else self.whole(v)
            for at, v in enumerate(node.inputs)
        )
        self.builder.append(replace(node, inputs=inputs, body=written))

    def whole(self, name: str) -> str:
        """A value as the rest of the program reads it: gathered where it is split."""
        layout = self.local.get(name)
        if layout is None or name in self.origin:
            if layout is not None and layout.sharded:
                raise LiteralError(f"{name} is read outside of its module")
            return name
        dims = [d for d, atoms in enumerate(layout.dims) if bound(atoms)]
        if not dims:
            return name
        if name not in self.gathered:
            (dim,) = dims
            made = self.builder.add("all_gather", name, dim=dim, mesh_dim=self.setting.tp)
            self.gathered[name] = made
        return self.gathered[name]

    def _enter(self, name: str) -> tuple[str, Layout]:
        """An operand as the module takes it."""
        known = self.local.get(name)
        if known is not None:
            return name, known
        layout = Layout.replicate(self.program.types[name].shape)
        shape = layout.global_shape
        if not self.setting.takes_split or len(shape) < 2 or name in self.origin:
            return name, layout
        chunk = split_leading(layout.dims[-1], self.setting.size, self.setting.tp)
        if chunk is None or shape[-1] == 1:
            return name, layout
        if name not in self.entered:
            over = {"dim": len(shape) - 1, "mesh_dim": self.setting.tp}
            self.entered[name] = self.builder.add("shard_slice", name, **over)
        return self.entered[name], layout.with_dim(len(shape) - 1, chunk)

    def _local(self, node: Node) -> None:
        self.setting.met = True
        entered = [self._enter(v) for v in node.inputs]
        layouts = tuple(layout for _, layout in entered)
        whole_shape = self.program.types[node.outputs[0]].shape
        attrs = dict(node.attrs)
        if node.op in ("reshape", "take", "slice"):
            attrs = next(localize(node, layouts, Reading(whole_shape)), attrs)
        elif node.op == "mul_scalar" and node.inputs[0] in self.summed:
            attrs["value"] = cast("int | Fraction", attrs["value"]) * self.setting.size
        inputs = tuple(name for name, _ in entered)
        made = self.builder.append(replace(node, inputs=inputs, attrs=attrs))
        for name in made:
            self.local[name] = self._read(node, layouts, name)
        if node.op == "sum" and layouts and layouts[0].sharded:
            dims = cast("tuple[int, ...]", attrs["dims"])
            if any(bound(layouts[0].dims[d]) for d in dims):
                self.summed.update(made)

    def _read(self, node: Node, layouts: tuple[Layout, ...], name: str) -> Layout:
        """How the code takes a result to be laid out, read off its extents."""
        shape, local = self.program.types[name].shape, self.builder.types[name].shape
        if node.op == "reshape":
            regrouped = regroup_whole(layouts[0], shape)
            if regrouped is not None:
                return regrouped
        layout = Layout.replicate(shape)
        for dim, (extent, here) in enumerate(zip(shape, local, strict=True)):
            if extent == here:
                continue
            chunk = split_leading(layout.dims[dim], self.setting.size, self.setting.tp)
            if chunk is None or here * self.setting.size != extent:
                raise LiteralError(f"{node.op} gives {list(local)} on a rank for {list(shape)}")
            layout = layout.with_dim(dim, chunk)
        return layout
