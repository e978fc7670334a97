"""A candidate of the search written down as a plan."""

from dataclasses import replace

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.lower import Lowered
from shardproof.synthesis.planner.arguments import own_arguments
from shardproof.synthesis.planner.assign import PIECES
from shardproof.synthesis.planner.context import along_sequence
from shardproof.synthesis.planner.cost import Estimate
from shardproof.synthesis.planner.dialects import DIALECTS
from shardproof.synthesis.planner.expressible import Passed, gathers_channels, returned, with_heads
from shardproof.synthesis.planner.extents import local_extents
from shardproof.synthesis.planner.fused_weights import put_together
from shardproof.synthesis.planner.groups import in_groups, sharded
from shardproof.synthesis.planner.partial_gradients import summed
from shardproof.synthesis.planner.plan import CollectiveUse, ModulePlan, Plan
from shardproof.synthesis.planner.roles import Module, heads
from shardproof.synthesis.planner.scoring import Asked, Candidate, StepPrice, axes, within
from shardproof.synthesis.planner.search import Found
from shardproof.synthesis.planner.shared import Shared, ends
from shardproof.synthesis.planner.shares import attention_left_whole, beside_column, shares
from shardproof.verifier.kernel.layout import Layout, bound
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh


def describe(found: Found, asked: Asked, baseline: StepPrice) -> Plan:
    """The plan of the best candidate as data."""
    best, mesh = found.best, within(asked.mesh)
    tp, dp = axes(mesh)
    stream = best.point.stream
    whole_loss = not _logits_split(best, tp)
    entries: list[ModulePlan] = []
    styles = with_heads(found.modules, dict(best.point.styles))
    meets, leave = frozenset[str](), frozenset[str]()
    taken = own_arguments(Passed(best.lowered), found.modules, tp) if tp else ()
    if tp and stream == "R":
        at = ends(found.modules)
        meets, leave = Shared(found.program, best.lowered, styles, at, tp, taken).modules()
    beside = summed(found.program, best.lowered, found.modules, tp) if tp else frozenset[str]()
    for module in found.modules:
        entry = _module(module, found, tp, mesh, stream, whole_loss)
        cut = [(p, d) for p in module.params for name, d in best.point.pieces if p.name == name]
        if cut and best.point.style(module.path) == "replicate":
            splits = tuple((p.path.removeprefix(f"{module.path}."), d, 1) for p, d in cut)
            how = (PIECES, "R", "R", 1, REASONS[PIECES])
            if module.is_plain_norm:
                how = ("product", "S(-1)", "S(-1)", 1, REASONS["norm"])
            entry = ModulePlan(module.path, module.kind, *how, splits)
        if entry is None and module.path in beside and not module.is_norm:
            entry = ModulePlan(module.path, module.kind, "summed", reason=REASONS["summed"])
        if module.path in meets and not (cut and module.is_plain_norm):
            entry = entry or ModulePlan(module.path, module.kind, "replicate")
            entry = replace(entry, shared=True)
        if entry is not None:
            entries.append(replace(entry, leaves_shares=module.path in leave))
        if module.head and best.point.style(module.path) == "vocab":
            gives = "R" if whole_loss else "S(-1)"
            kind = (asked.kinds or {}).get(module.head, "Linear")
            reason = "the embedding's weight, split by vocabulary rows"
            entries.append(ModulePlan(module.head, kind, "column", stream, gives, 1, reason))
    params = {
        param.path: {name: _placement(module, best, param.name, name) for name in mesh.names}
        for module in found.modules
        for param in module.params
    }
    forward = forward_values(found.program)
    plan = Plan(
        mesh=mesh,
        tp=tp,
        dp=dp,
        data="fsdp" if dp else "none",
        zero=asked.pricing.zero if dp else 0,
        recompute=asked.pricing.recompute,
        loss="sum" if DIALECTS[asked.constraints.dialect].added_up else "mean",
        sequence_parallel=stream != "R",
        loss_parallel=not whole_loss,
        modules=tuple(entries),
        output=_output(found) if tp else "R",
        params=params,
        local_extents=local_extents(best.lowered, forward, found.modules, tp, dp) if tp else (),
        arguments=taken,
        obligations=tuple(
            f"Have the same number of unmasked labels on every {b.mesh_dim} rank."
            for b in best.lowered.contract.balanced[:1]
        ),
        estimates=_estimates(best, baseline)
        | _bound(found)
        | (shares(found, tp, mesh[tp]) if tp else {}),
        collectives=_collectives(best.estimate, best.lowered.program),
        whole_attention=attention_left_whole(found, tp) if tp else (),
        dialect=asked.constraints.dialect,
    )
    plan = along_sequence(in_groups(put_together(plan, found.modules), asked.mesh), found, asked)
    shapes = {p.path: p.shape for m in found.modules for p in m.params}
    return sharded(plan, shapes) if plan.cp or plan.replicate else plan


def placed_as(layout: Layout, mesh_dim: str) -> str:
    """The placement over one mesh dim, in the words of a plan."""
    text = layout.placement(mesh_dim)
    if text == "Replicate":
        return "R"
    dim = int(text[text.index("(") + 1 : -1])
    parts = 1
    for atom in layout.dims[dim]:
        if atom.mesh_dim == mesh_dim:
            break
        parts *= atom.size if atom.mesh_dim is None else 1
    return f"S({dim})" + (f" in {parts} parts" if parts > 1 else "")


def _output(found: Found) -> str:
    """Placement of what the model returns, where no style of a module gathers it."""
    best = found.best
    styled = heads(found.modules) | {p for p, s in best.point.styles if s == "gathered"}
    last = returned(Passed(best.lowered))
    return f"S({last[1]})" if last and last[0].source.module not in styled else "R"


def _logits_split(best: Candidate, tp: str | None) -> bool:
    outputs = best.lowered.contract.outputs
    return bool(tp) and any(
        tp in layout.sharded for key, layout in outputs.items() if key.startswith("output:")
    )


def _placement(module: Module, best: Candidate, name: str, mesh_dim: str) -> str:
    layout = best.lowered.contract.inputs[name]
    stacked = next(p.stacked for p in module.params if p.name == name)
    if stacked:
        layout = Layout(layout.dims[1:], layout.partial)
    text = layout.placement(mesh_dim)
    if text.startswith("StridedShard"):
        before = [a.mesh_dim for d in layout.dims for a in d]
        at = before.index(mesh_dim)
        parts = module.pieces if module.use == "conv" else module.parts
        if any(m is None for m in before[:at]) and parts > 1:
            return f"S({text[13:-1]}) in {parts} parts"
        return f"S({text[13:-1]})"
    return {"Replicate": "R"}.get(text, f"S({text[6:-1]})" if text.startswith("Shard") else text)


REASONS = {
    "column": "outputs split; the input is whole, so nothing is sent on the way in",
    "fused_column": "outputs split within each fused part, so that every rank gets whole heads",
    "gathered": "outputs split and gathered: nothing that reads them works on a piece",
    "row": "inputs arrive split by the column layers before it; one reduction on the way out",
    "vocab": "rows of the vocabulary split; each rank looks up its own, one reduction",
    "experts": "every rank has a piece of the hidden layer of every expert; one reduction after it",
    "inner": "every rank has some heads or hidden units; one reduction after them",
    "recurrent": "every rank has some hidden units; their state is gathered at each step",
    "channels": "each channel, or group of them, is for itself, and every rank has some",
    "kv_column": "fewer key/value heads than ranks: each rank uses the head its queries need",
    "sequence": "works on each token alone, so it runs on a split activation",
    "pieces": "each rank works on its piece of what it holds, beside a split activation",
    "norm": "features split before and after it; what is taken over all of them is reduced in it",
    "summed": "whole on every rank, beside a split activation: its gradient is a sum over ranks",
}


def _module(
    module: Module, found: Found, tp: str | None, mesh: Mesh, stream: str, whole_loss: bool
) -> ModulePlan | None:
    best = found.best
    style = best.point.style(module.path)
    parts = module.parts if style not in ("channels", "gathered") else 1
    takes, gives = "R", "R"
    if tp is None:
        return None
    if style == "replicate":
        if module.use == "linear" and 0 < module.heads < mesh[tp] and beside_column(module, best):
            style, parts, takes, gives = "kv_column", module.heads, stream, "S(-1)"
        else:
            split = _token_split(module, best.lowered, tp) if module.is_norm else None
            if split is None:
                return None
            style, takes, gives = "sequence", split, split
    elif module.use in ("conv", "channels"):
        whole = style in ("column", "fused_column", "gathered")
        takes = "R" if whole and not _gathers(best.lowered, module.path, tp) else "S(1)"
        gives = "R" if style in ("row", "gathered") else "S(1)"
    elif style == "gathered":
        takes = "R" if module.use == "embedding" else stream
    elif style in ("column", "fused_column"):
        takes, gives = "R" if module.use == "embedding" else stream, "S(-1)"
        if whole_loss and module.path in heads(found.modules):
            gives = "R"
    elif style == "row":
        takes, gives = "S(-1)", stream
    elif style == "vocab":
        gives = stream
    elif style == "experts":
        takes = gives = stream
    splits = tuple((name, *how) for name, how in module.splits.items() if style == "experts")
    if module.own or module.use in ("conv", "channels") or module.kind == "EmbeddingBag":
        splits = _split_params(module, style)
    style = "inner" if module.raw and style == "experts" else style
    reason = REASONS[style]
    style = "product" if module.own else "column" if style == "gathered" else style
    made = module.made_outside and bool(splits)
    return ModulePlan(
        module.path, module.kind, style, takes, gives, parts, reason, splits, made=made,
        whole=module.whole if style == "inner" else (),
    )  # fmt: skip


def _gathers(lowered: Lowered, path: str, tp: str) -> bool:
    """Whether a convolution gathers the channels that it reads."""
    own = ((held, n) for held, n in lowered.program.walk() if n.source.module == path)
    moves = ((held, n) for held, n in own if n.attrs.get("mesh_dim") == tp)
    return any(gathers_channels(held.producers(), n) for held, n in moves)


def _split_params(module: Module, style: str) -> tuple[tuple[str, int, int], ...]:
    """(parameter, dim that is split, equal parts stacked along it) of what works on channels."""
    rows: list[tuple[str, int, int]] = []
    for param in module.params:
        is_weight = param is module.weight and module.use != "channels"
        wide = module.weight.shape[module.out_dim]
        out_dim = 1 if module.use == "embedding" else module.out_dim
        dim = 1 - out_dim if style == "row" else out_dim
        if not is_weight and module.made:
            dim = module.along(param, dim)
        elif not is_weight:
            whole = style == "row" or (module.own and param.shape != (wide,))
            dim = None if whole else 0
        if dim is None:
            continue
        parts = module.pieces if style == "fused_column" else 1
        rows.append((param.path.removeprefix(f"{module.path}."), dim, parts))
    return tuple(rows)


def _token_split(module: Module, lowered: Lowered, tp: str) -> str | None:
    """`S(d)` where the module's parameters meet an activation that is split over tp at dim d. One
    that holds others has ops that its own parameters have no say in."""
    names = {p.name for p in module.params}
    for pair in lowered.pairs:
        if pair.one.source.module != module.path or pair.one.op not in ("mul", "add"):
            continue
        if module.holds and not names & set(pair.one.inputs):
            continue
        for index, dim in enumerate(pair.result.dims):
            if tp in bound(dim):
                return f"S({index})"
        if names & set(pair.one.inputs):
            return None
    return None


def _estimates(best: Candidate, baseline: StepPrice) -> dict[str, float]:
    return {
        "step_s": best.price.seconds,
        "comm_s": best.price.exchange_s,
        "comm_bytes": float(best.estimate.comm_bytes),
        "memory_bytes_before": float(baseline.bytes),
        "memory_bytes_after": float(best.price.bytes),
        **{f"before_{k}": float(n) for k, n in baseline.held.items()},
        **{f"after_{k}": float(n) for k, n in best.price.held.items()},
        "one_device_step_s": baseline.seconds,
    }


def _bound(found: Found) -> dict[str, float]:
    """By what share the ops cost more than in any placement, where a bound is known and holds."""
    gap = found.bound.gap(found.best.estimate.step_s) if found.bound is not None else None
    return {} if gap is None else {"cost_gap": gap}


def _collectives(cost: Estimate, program: Program) -> tuple[CollectiveUse, ...]:
    forward = forward_values(program)
    merged: dict[tuple[str, str, str, str, int], int] = {}
    for use in cost.uses:
        phase = "forward" if (use.scope, use.node.outputs[0]) in forward else "backward"
        key = (use.node.op, ",".join(use.mesh_dims), use.node.source.module, phase, use.bytes)
        merged[key] = merged.get(key, 0) + use.count
    return tuple(
        CollectiveUse(op, dims, where, phase, size, count, _why(op, dims))
        for (op, dims, where, phase, size), count in merged.items()
    )


def _why(op: str, mesh_dim: str) -> str:
    return {
        "all_reduce": f"every rank along {mesh_dim} holds a share of a sum that is needed whole",
        "reduce_scatter": f"a sum over {mesh_dim} of which each rank keeps its own part",
        "all_gather": f"a value split over {mesh_dim} is needed whole",
        "all_to_all": f"a value split over {mesh_dim} is needed split along another dim",
    }.get(op, "")
