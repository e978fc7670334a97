"""From module styles to layouts: what a point of the search means for every tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shardproof.synthesis.lower import Choices
from shardproof.synthesis.planner.roles import Module, Param, heads
from shardproof.verifier.kernel.contract import output_key
from shardproof.verifier.kernel.layout import Atom, Layout, bound, normal, split_leading, whole
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Input, Program
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.ops.classes import PRODUCTS


class PlanError(ValueError):
    """A mesh that the model cannot use: which extent, expected, got, what to try."""


@dataclass(frozen=True)
class Point:
    """A point of the search: a style for each module, and the layout of the residual stream."""

    styles: tuple[tuple[str, str], ...]
    stream: str = "R"
    pieces: frozenset[tuple[str, int]] = frozenset()
    """Parameters (input names) of modules without a style that are split, and along which dim."""

    def style(self, path: str) -> str:
        return dict(self.styles)[path]

    def styled(self, styles: Mapping[str, str]) -> Point:
        """With these styles for the modules that are named."""
        return replace(self, styles=tuple((p, styles.get(p, s)) for p, s in self.styles))

    def with_style(self, path: str, style: str) -> Point:
        return self.styled({path: style})


PIECES = "pieces"
"""What a plan calls a module without a style of which parameters are split."""
STYLES = (
    "replicate",
    "vocab",
    "column",
    "fused_column",
    "row",
    "experts",
    "channels",
    "gathered",
    "recurrent",
)


def options(module: Module, tp: int) -> list[str]:
    """Styles that fit the extents of a module's weight."""
    return [style for style in STYLES if misfit(module, style, tp) is None]


def misfit(module: Module, style: str, tp: int) -> str | None:
    """Why a style does not fit a module on so many ranks; None where it fits."""
    shape = module.weight.shape
    if style == "replicate":
        return None
    if module.use == "experts" and style == "experts":
        sizes = {p.path.rpartition(".")[2]: p.shape for p in module.params}
        for name, (dim, parts) in module.splits.items():
            if sizes[name][dim] % (parts * tp):
                return f"dim {dim} of {name}, {sizes[name][dim]}, does not divide by {parts * tp}"
        return None
    if style == "gathered" and module.use in ("linear", "embedding", "conv"):
        wide = shape[_wide(module)]
        return f"output width {wide} does not divide by {tp}" if wide % tp else None
    if style == "channels" or module.use in ("channels", "conv"):
        return _misfit_channels(module, style, tp)
    if style == "recurrent" and module.use == "recurrent":
        units = shape[0] // module.parts
        return f"{units} hidden units do not divide by {tp}" if units % tp else None
    if (
        style in ("experts", "gathered", "recurrent")
        or module.use == "recurrent"
        or module.use == "experts"
    ):
        return f"{style} is not for {module.kind or module.use}"
    if module.use == "other":
        what = "a norm" if module.is_norm else module.kind or "this module"
        return f"{what} has no product that {style} could split"
    if module.use == "embedding":
        if style == "column" and module.heads:
            uneven = module.heads % tp
            return f"{module.heads} heads do not divide by {tp}" if uneven else None
        if module.heads:
            return f"a table of {module.heads} heads is split by heads (column), not {style}"
        if style != "vocab":
            return f"an embedding is split by vocabulary rows (vocab), not {style}"
        if module.in_order:
            return "the rows of places are read one after the other, on no rank alone"
        if shape[0] % tp:
            return f"{shape[0]} rows of the vocabulary do not divide by {tp}"
        return None
    if style == "vocab" or len(shape) != 2:
        return (
            f"{style} is for embeddings" if style == "vocab" else f"a weight of {len(shape)} dims"
        )
    wide, deep = shape[module.out_dim], shape[1 - module.out_dim]
    if style == "row":
        return f"input width {deep} does not divide by {tp}" if deep % tp else None
    if module.heads and module.heads % tp:
        return f"{module.heads} heads do not divide by {tp}"
    if style in ("column", "fused_column") and (style == "column") != (module.parts == 1):
        return _fused_or_not(style, module.parts)
    ways = module.parts * tp
    return f"output width {wide} does not divide by {ways}" if wide % ways else None


def _fused_or_not(style: str, parts: int) -> str:
    """Why a column style is the wrong one of two."""
    if style == "column":
        return f"{parts} weights are fused in one: a plain cut would mix them (fused_column)"
    return "one weight, nothing is fused (column)"


def _wide(module: Module) -> int:
    """The dim of a weight that is split where the result is gathered."""
    return 1 if module.use == "embedding" else module.out_dim


def _misfit_channels(module: Module, style: str, tp: int) -> str | None:
    """The same for what works on channels: those that come in are split, those that go out, or
    both, as groups are."""
    shape, grouped = module.weight.shape, module.use == "channels" or module.parts > 1
    known = ("column", "fused_column", "row", "channels")
    if module.use not in ("channels", "conv") or style not in known:
        return f"{style} is not for {module.kind or module.use}"
    if grouped != (style == "channels") or (grouped and module.out_dim):
        how = "channel by channel (channels)" if grouped else "over all channels (column, row)"
        return f"it works {how}, not {style}"
    if style in ("column", "fused_column") and (style == "column") != (module.pieces == 1):
        return _fused_or_not(style, module.pieces)
    dim = 1 - module.out_dim if style == "row" else module.out_dim
    if style == "fused_column":
        uneven = shape[dim] % (module.pieces * tp)
        return f"{shape[dim]} channels do not divide by {module.pieces * tp}" if uneven else None
    count = module.parts if module.use == "conv" and grouped else shape[dim]
    return f"{count} channels do not divide by {tp}" if count % tp else None


def split(module: Module, param: Param, style: str, name: str, size: int) -> Layout:
    """Layout on tp of one parameter (of one layer) under a style."""
    layout = Layout.replicate(param.shape)
    if style == "replicate" or size == 1:
        return layout
    if style == "experts":
        dim, parts = module.splits.get(param.path.rpartition(".")[2], (None, 1))
        if dim is None:
            return layout
        inner = param.shape[dim] // parts // size
        return layout.with_dim(dim, normal((Atom(parts), Atom(size, name), Atom(inner))))
    is_weight = param is module.weight and len(param.shape) > 1 and style != "recurrent"
    linear = module.use != "embedding" and len(module.weight.shape) == 2
    column = style in ("column", "fused_column", "gathered") and linear
    if column and not is_weight and param.shape[:1] != (module.weight.shape[module.out_dim],):
        return layout  # numbers of another meaning
    if module.made and not is_weight:
        dim = module.along(param, module.out_dim if style != "row" else 1 - module.out_dim)
    elif style == "row":
        dim = (1 - module.out_dim) if is_weight else None
    elif style == "gathered":
        dim = _wide(module) if is_weight else 0
    elif style == "vocab":
        dim = 0 if param.shape[:1] == module.weight.shape[:1] else None
    else:
        dim = module.out_dim if is_weight else 0
    if dim is None:
        return layout
    if style in ("fused_column", "recurrent"):
        parts = module.pieces if module.use == "conv" else module.parts
        inner = param.shape[dim] // parts // size
        return layout.with_dim(dim, normal((Atom(parts), Atom(size, name), Atom(inner))))
    chunk = split_leading(layout.dims[dim], size, name)
    if chunk is None:
        raise PlanError(
            f"{param.path}: dim {dim} of extent {param.shape[dim]} does not divide by {size}"
        )
    return layout.with_dim(dim, chunk)


def split_states(layout: Layout, dp: str, size: int) -> Layout:
    """The layout with the first dim that divides split by data parallelism, of those that tp does
    not split part by part; as it is where none does."""
    for index, dim in enumerate(layout.dims):
        in_parts = bool(bound(dim)) and dim[0].mesh_dim is None
        chunk = None if in_parts else split_leading(dim, size, dp)
        if chunk is not None:
            return layout.with_dim(index, chunk)
    return layout


def batch_extent(program: Program) -> int | None:
    """The first extent of the first input that has dims: the batch."""
    shapes = [i.type.shape for i in program.inputs if i.role == "input" and i.type.shape]
    found = next((s for s in shapes if len(s) > 1), next(iter(shapes), None))
    return found[0] if found else None


def leads_with_batch(program: Program, batch: int | None, item: Input) -> bool:
    """Whether the batch comes first in an input, or in the output that a cotangent is of. Its rows
    may be joined with what follows it: logits `[batch * tokens, classes]`."""
    shape = item.type.shape
    if item.role not in ("input", "cotangent") or not shape or not batch:
        return False
    if item.role == "input" or shape[0] == batch or shape[0] % batch:
        return shape[0] == batch
    makers = program.producers()
    value = next((o.value for o in program.outputs if o.path == item.path), "")
    while (node := makers.get(value)) is not None and program.types[value].shape[0] != batch:
        op, first = lookup(node.op), program.types[value].shape[0]
        same = [v for v in node.inputs if program.types[v].shape[:1] == (first,)]
        if op.kind == "map" and same:
            value = same[0]
        elif node.op in PRODUCTS or node.op == "reshape":
            value = node.inputs[0]
        else:
            return False
        if program.types[value].shape[0] % batch:
            return False
    return value in program.types and program.types[value].shape[:1] == (batch,)


def batch_split(
    program: Program, item: Input, batch: int | None, mesh: Mesh, dp: str | None
) -> Layout:
    """The layout of an input that is no parameter: its batch is split over dp.

    Raises:
        PlanError: a batch that does not divide.
    """
    shape = item.type.shape
    layout = Layout.replicate(shape)
    if not dp or not leads_with_batch(program, batch, item):
        return layout
    chunk = split_leading(layout.dims[0], mesh[dp], dp) if shape[0] == batch else None
    if shape[0] != batch and batch and batch % mesh[dp] == 0:
        chunk = split_leading(layout.dims[0], mesh[dp], dp)
    if chunk is None:
        raise PlanError(
            f"the batch of {shape[0]} does not divide by {dp}={mesh[dp]}; "
            f"capture with --batch {mesh[dp]} or a multiple"
        )
    return layout.with_dim(0, chunk)


def _laid(
    item: Input,
    module: Module,
    param: Param,
    style: str,
    piece: int | None,
    mesh: Mesh,
    tp: str | None,
    dp: str | None,
) -> tuple[Layout, Layout]:
    """A parameter as it is stored and as ops use it; `piece` is the dim along which one without a
    style is split."""
    layout = Layout.replicate(param.shape)
    if tp and style == "replicate" and piece is not None:
        chunk = split_leading(layout.dims[piece], mesh[tp], tp)
        layout = layout.with_dim(piece, chunk or layout.dims[piece])
    elif tp:
        layout = split(module, param, style, tp, mesh[tp])
    stored = split_states(layout, dp, mesh[dp]) if dp else layout
    if param.stacked:
        layers = whole(item.type.shape[0])
        layout, stored = (Layout((layers, *x.dims)) for x in (layout, stored))
    return stored, layout


def choices(
    program: Program,
    owners: Mapping[str, tuple[Module, Param]],
    point: Point,
    mesh: Mesh,
    tp: str | None,
    dp: str | None,
    loss_parallel: bool,
    memo: dict[Any, Any] | None = None,
) -> Choices:
    """Layouts of every input and of the gradients at a point of the search. `memo` may be shared
    between points of one program."""
    memo = memo if memo is not None else {}
    inputs: dict[str, Layout] = {}
    compute: dict[str, Layout] = {}
    grads: dict[str, Layout] = {}
    state = {i.path or i.name: i.type.shape for i in program.inputs if i.role == "const"}
    kept = [o for o in program.outputs if o.role == "output" and o.path in state]
    grads |= {output_key(o): Layout.replicate(state[o.path]) for o in kept}
    batch, styles, pieces = batch_extent(program), dict(point.styles), dict(point.pieces)
    leaves = frozenset(module.path for module, _ in owners.values())
    for item in program.inputs:
        if item.role != "param":
            inputs[item.name] = batch_split(program, item, batch, mesh, dp)
            continue
        module, param = owners[item.name]
        style, piece = styles[module.path], pieces.get(item.name)
        key = ("laid", item.name, style, piece)
        if key not in memo:
            memo[key] = _laid(item, module, param, style, piece, mesh, tp, dp)
        stored, layout = memo[key]
        inputs[item.name], compute[item.name] = stored, layout
        grads[f"grad:{item.path}"] = stored
    gathered = frozenset[str]()
    if not loss_parallel:
        gathered = heads(list({m.path: m for m, _ in owners.values()}.values()))
    gathered |= {path for path, style in point.styles if style in ("gathered", "recurrent")}
    return Choices(
        inputs,
        compute,
        grads,
        point.stream,
        tp,
        dp,
        leaves=leaves,
        whole=gathered,
        gather_outputs=not loss_parallel,
    )
