"""Weights of unequal widths that are fused in one, planned as weights of modules of their own.

The rows [a:b] of the parameters of a module `m` are those of the module `m[a:b]`. All pieces of a
module are split, or none: then a patch splits each (`FusedColwiseParallel`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shardproof.synthesis.planner.assign import split_states
from shardproof.synthesis.planner.plan import ModulePlan, Plan
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.scoring import Asked, axes, within
from shardproof.synthesis.planner.uses import first_row, module_of, owner, whole_path
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import Layout, split_leading
from shardproof.verifier.kernel.ops.control import scan_parts
from shardproof.verifier.kernel.program.program import Input, Node, Output, Program
from shardproof.verifier.kernel.program.types import TensorType

WIDTHS = (
    "outputs split within each of the weights that are fused, so that every rank gets whole heads"
)
Span = tuple[int, int]
"""Rows of a weight, from one on and up to another."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A value, a parameter or its gradient, that is one piece for each span along a dim."""

    names: tuple[str, ...]
    spans: tuple[Span, ...]
    dim: int
    module: str
    """The module of the parameter."""

    def inside(self) -> "_Cut":
        """That of one step of a repeated block."""
        return replace(self, dim=self.dim - 1)

    def of(self, kind: TensorType) -> list[TensorType]:
        """The types of the pieces."""
        shape = kind.shape
        return [
            replace(kind, shape=(*shape[: self.dim], b - a, *shape[self.dim + 1 :]))
            for a, b in self.spans
        ]


def weights_apart(asked: Asked) -> Asked:
    """What is asked, with the pieces of fused weights as parameters of modules of their own; not
    where attention exchanges rows for heads, which is by the modules that it has."""
    program, kinds = asked.program, asked.kinds or {}
    cuts = dict(_fused(program, kinds))
    if not cuts or dict(asked.mesh.dims).get("cp", 1) > 1:
        return asked
    paths = {i.path: cuts[i.name] for i in program.inputs if i.name in cuts}
    outputs = {
        i: paths[o.path]
        for i, o in enumerate(program.outputs)
        if o.role == "grad" and o.path in paths
    }
    more = {module_of(c.module, span): kinds[c.module] for c in cuts.values() for span in c.spans}
    return replace(asked, program=_apart(program, cuts, outputs), kinds={**kinds, **more})


def _fused(program: Program, kinds: Mapping[str, str]) -> Iterator[tuple[str, _Cut]]:
    """The parameters of linear modules that are read in the same pieces each time, and whose
    gradients are made of these."""
    grads = {o.path: o.value for o in program.outputs if o.role == "grad"}
    found: dict[str, dict[str, _Cut]] = {}
    for item in program.inputs:
        module, leaf = owner(item.path), item.path.rpartition(".")[2]
        if item.role != "param" or kinds.get(module) != "Linear":
            continue
        dim = len(item.type.shape) - (2 if leaf == "weight" else 1)
        spans = tuple(sorted(_read(program, item.name, dim) or ()))
        ends = [0, *(b for _, b in spans)]
        if len(spans) < 2 or spans != tuple(pairwise(ends)) or ends[-1] != item.type.shape[dim]:
            continue
        names = tuple(f"{item.name}[{a}:{b}]" for a, b in spans)
        cut = _Cut(names, spans, dim, module)
        if item.path not in grads or _is_joined(program, grads[item.path], cut):
            found.setdefault(module, {})[item.name] = cut
    for module, cuts in found.items():
        own = [i.name for i in program.inputs if i.role == "param" and owner(i.path) == module]
        if set(own) == cuts.keys() and len({c.spans for c in cuts.values()}) == 1:
            yield from cuts.items()


def _read(program: Program, value: str, dim: int) -> set[Span] | None:
    """The pieces in which a value is read; None where it is read otherwise."""
    found = set[Span]()
    if any(o.value == value for o in program.outputs):
        return None
    for node in program.nodes:
        for at, operand in enumerate(node.inputs):
            if operand != value:
                continue
            if node.body is not None:
                xs = scan_parts(node.attrs, len(node.inputs))[1]
                steps = xs.start <= at < xs.stop
                inner = _read(node.body, node.body.inputs[at].name, dim - 1) if steps else None
                if inner is None:
                    return None
                found |= inner
            elif node.op == "slice" and (node.attrs["dim"], node.attrs["step"]) == (dim, 1):
                found.add((node.number("start"), node.number("stop")))
            else:
                return None
    return found


def _is_joined(program: Program, value: str, cut: _Cut) -> bool:
    """Whether an output, that nothing reads, is a join of pieces."""
    maker = program.producers().get(value)
    read = any(value in n.inputs for n in program.nodes)
    if maker is None or read or sum(o.value == value for o in program.outputs) > 1:
        return False
    if maker.body is not None:
        at = maker.outputs.index(value)
        inner = maker.body.outputs[at].value
        return at >= maker.number("carry") and _is_joined(maker.body, inner, cut.inside())
    if maker.op != "concat" or maker.number("dim") != cut.dim:
        return False
    widths = [program.types[v].shape[cut.dim] for v in maker.inputs]
    return widths == [b - a for a, b in cut.spans]


def _apart(program: Program, cuts: Mapping[str, _Cut], outputs: Mapping[int, _Cut]) -> Program:
    """The program with inputs and outputs, by name and by index, in pieces. Values that are of one
    piece are of its module."""
    types, makers = dict(program.types), program.producers()
    inputs, nodes, results = list[Input](), list[Node](), list[Output]()
    pieces: dict[str, str] = {}
    names: dict[str, str] = {}
    for item in program.inputs:
        cut = cuts.get(item.name)
        if cut is None:
            inputs.append(item)
            continue
        for name, span, kind in zip(cut.names, cut.spans, cut.of(item.type), strict=True):
            path = f"{module_of(cut.module, span)}.{item.path.rpartition('.')[2]}"
            inputs.append(Input(name, kind, item.role, path, item.where))
            types[name], pieces[name] = kind, module_of(cut.module, span)
    parts: dict[str, tuple[str, ...]] = {}
    made: dict[str, dict[int, _Cut]] = {}
    for index, cut in outputs.items():
        value = program.outputs[index].value
        maker = makers[value]
        modules = [module_of(cut.module, span) for span in cut.spans]
        if maker.body is None:
            parts[value] = maker.inputs
            pieces |= zip(maker.inputs, modules, strict=True)
            continue
        kept = tuple(f"{value}[{a}:{b}]" for a, b in cut.spans)
        types |= zip(kept, cut.of(types[value]), strict=True)
        made.setdefault(maker.outputs[0], {})[maker.outputs.index(value)] = cut
        parts[value] = kept
    for node in program.nodes:
        if node.op == "slice" and (cut := cuts.get(node.inputs[0])) is not None:
            span = node.number("start"), node.number("stop")
            names[node.outputs[0]] = cut.names[cut.spans.index(span)]
            continue
        if node.body is None:
            given = tuple(names.get(v, v) for v in node.inputs)
            module = next((pieces[v] for v in (*given, *node.outputs) if v in pieces), "")
            source = node.source
            if module and whole_path(module) == source.module:
                pieces |= dict.fromkeys(node.outputs, module)
                source = replace(source, module=module)
            nodes.append(replace(node, inputs=given, source=source))
            continue
        nodes.append(_scan(node, cuts, made.get(node.outputs[0], {}), names, parts))
    for index, out in enumerate(program.outputs):
        cut = outputs.get(index)
        if cut is None:
            results.append(replace(out, value=names.get(out.value, out.value)))
            continue
        for value, span in zip(parts[out.value], cut.spans, strict=True):
            path = f"{module_of(cut.module, span)}.{out.path.rpartition('.')[2]}"
            results.append(Output(names.get(value, value), out.role, path))
    made_of = {i.name for i in inputs} | {v for n in nodes for v in n.outputs}
    return replace(
        program,
        inputs=tuple(inputs),
        nodes=tuple(nodes),
        outputs=tuple(results),
        types={v: t for v, t in types.items() if v in made_of},
    )


def _scan(
    node: Node,
    cuts: Mapping[str, _Cut],
    outputs: Mapping[int, _Cut],
    names: Mapping[str, str],
    parts: Mapping[str, tuple[str, ...]],
) -> Node:
    """A repeated block that is given pieces, and gives them."""
    given = list(zip(node.inputs, node.block.inputs, strict=True))
    inside = {
        item.name: replace(
            cuts[v].inside(), names=tuple(f"{item.name}[{a}:{b}]" for a, b in cuts[v].spans)
        )
        for v, item in given
        if v in cuts
    }
    if not inside and not outputs:
        return replace(node, inputs=tuple(names.get(v, v) for v in node.inputs))
    operands = [n for v, _ in given for n in (cuts[v].names if v in cuts else (names.get(v, v),))]
    results = [n for i, v in enumerate(node.outputs) for n in (parts[v] if i in outputs else (v,))]
    body = _apart(node.block, inside, {i: cut.inside() for i, cut in outputs.items()})
    more = sum(len(cuts[v].spans) - 1 for v, _ in given if v in cuts)
    attrs = {**node.attrs, "xs": node.number("xs") + more}
    return replace(node, inputs=tuple(operands), outputs=tuple(results), attrs=attrs, body=body)


def put_together(plan: Plan, modules: Sequence[Module]) -> Plan:
    """The plan with one entry for the pieces of a module."""
    pieces: dict[str, list[Module]] = {}
    for module in modules:
        if whole_path(module.path) != module.path:
            pieces.setdefault(whole_path(module.path), []).append(module)
    found: dict[str, list[ModulePlan]] = {}
    for m in plan.modules:
        found.setdefault(whole_path(m.path), []).append(m)
    entries = [_fused_column(path, m, pieces.get(path, [])) for path, m in found.items()]
    params = {path: placed for path, placed in plan.params.items() if path == whole_path(path)}
    for path, placed in plan.params.items():
        held = params.setdefault(whole_path(path), placed)
        params[whole_path(path)] = {n: p if p != "R" else held[n] for n, p in placed.items()}
    used = (replace(c, where=whole_path(c.where)) for c in plan.collectives)
    attention = tuple(dict.fromkeys(map(whole_path, plan.whole_attention)))
    return replace(
        plan,
        modules=tuple(entries),
        params=params,
        collectives=tuple(used),
        whole_attention=attention,
    )


def _fused_column(path: str, entries: Sequence[ModulePlan], pieces: list[Module]) -> ModulePlan:
    """The entry of a module for those of its pieces, of which some are split."""
    split = {m.path: m for m in entries if m.style in ("column", "fused_column")}
    if not pieces or not split:
        return replace(entries[0], path=path)
    widths, kept = list[tuple[int, int]](), list[int]()
    for module in sorted(pieces, key=lambda m: first_row(m.path)):
        if module.path not in split:
            kept.append(len(widths))
        rows, parts = module.weight.shape[0], module.parts if module.path in split else 1
        widths.append((parts, rows // parts))
    first = next(iter(split.values()))
    return replace(
        first,
        path=path,
        style="fused_column",
        parts=1,
        widths=tuple(widths),
        kept=tuple(kept),
        reason=WIDTHS,
        shared=any(m.shared for m in split.values()),
        leaves_shares=any(m.leaves_shares for m in split.values()),
    )


def contract_of(contract: Contract, program: Program, asked: Asked) -> Contract:
    """The contract of a plan of pieces, as one of a program with their weights whole. A weight of
    which pieces are split is stored in rows, and gathered to be cut."""
    mesh = within(asked.mesh)
    tp, dp = axes(mesh)
    inputs, outputs = dict(contract.inputs), dict(contract.outputs)
    pieces = [n for n in inputs if n != whole_path(n)]
    for item in program.inputs:
        own = [n for n in pieces if whole_path(n) == item.name]
        if not own:
            continue
        stacked = len(item.type.shape) - len(_own(item.type.shape, item.path))
        layout = Layout.replicate(_own(item.type.shape, item.path))
        if tp and any(tp in inputs[n].sharded for n in own):
            rows = split_leading(layout.dims[0], mesh[tp], tp)
            layout = layout.with_dim(0, rows or layout.dims[0])
        layout = split_states(layout, dp, mesh[dp]) if dp else layout
        layers = Layout.replicate(item.type.shape[:stacked]).dims
        inputs[item.name] = outputs[f"grad:{item.path}"] = Layout((*layers, *layout.dims))
    names = {i.name for i in program.inputs}
    keys = set(map(output_key, program.outputs))
    return replace(
        contract,
        inputs={n: layout for n, layout in inputs.items() if n in names},
        outputs={k: layout for k, layout in outputs.items() if k in keys},
    )


def _own(shape: tuple[int, ...], path: str) -> tuple[int, ...]:
    """The dims that are a parameter's own, behind those of stacked layers."""
    return shape[-2:] if path.endswith(".weight") else shape[-1:]
