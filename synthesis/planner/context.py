"""Context parallelism: which attention exchanges rows for heads, and what of a plan is local then.

Each rank of `cp` has its rows of every sequence. In attention it has all rows of its heads (Jacobs
et al. 2023, arXiv 2309.14509), so what stands there is written as tensor parallelism over so many
more ranks has it, and nowhere else does the source change.
"""

from dataclasses import replace

from shardproof.synthesis.autodiff.forward import forward_values
from shardproof.synthesis.planner.assign import PlanError, Point, misfit
from shardproof.synthesis.planner.constraints import ConstraintError
from shardproof.synthesis.planner.extents import local_extents
from shardproof.synthesis.planner.plan import AttentionPlan, LocalExtent, Plan
from shardproof.synthesis.planner.roles import Module
from shardproof.synthesis.planner.scoring import Asked, Refusal, axes, prepare, within
from shardproof.synthesis.planner.search import Found
from shardproof.verifier.kernel.contract import Contract, output_key
from shardproof.verifier.kernel.layout import split_leading
from shardproof.verifier.kernel.program.program import Program
from shardproof.verifier.kernel.program.types import Mesh

CP = "cp"


def along_sequence(plan: Plan, found: Found, asked: Asked) -> Plan:
    """The plan of a search on all dims of a mesh but `cp`, with the sequence split over that.

    Raises:
        PlanError: a sequence or heads that do not divide, no attention that is recognised.
    """
    size = dict(asked.mesh.dims).get(CP, 1)
    if size == 1:
        return replace(plan, mesh=asked.mesh)
    length = sequence(found.program)
    if length is None or length % size:
        got = "no [batch, rows]" if length is None else f"{length} rows, which do not divide"
        raise PlanError(f"a sequence cannot be split over {CP}={size}: inputs have {got}")
    context, extents = _attention(asked, size * plan.tp_size)
    inner = {_place(e) for e in extents}
    outer = (e for e in plan.local_extents if _place(e) not in inner)
    mesh = asked.mesh
    return replace(
        plan,
        mesh=mesh,
        cp=CP,
        context=context,
        data="fsdp",
        zero=asked.pricing.zero,
        local_extents=(*outer, *extents),
    )


def rows_apart(asked: Asked) -> Asked:
    """What is asked, with activations between blocks whole over `tp` where `cp` splits them.

    Raises:
        ConstraintError: they are to be split over both.
    """
    if dict(asked.mesh.dims).get(CP, 1) == 1:
        return asked
    if asked.constraints.sequence_parallel:
        hint = f"without it, {CP} alone splits the sequence"
        raise ConstraintError(f"not with {CP}", "constrain sequence_parallel", hint=hint)
    return replace(asked, constraints=replace(asked.constraints, sequence_parallel=False))


def sequence(program: Program) -> int | None:
    """Rows of the first input that is [batch, rows, ...]; None where there is none."""
    shapes = (i.type.shape for i in program.inputs if i.role == "input")
    return next((shape[1] for shape in shapes if len(shape) > 1), None)


def _place(extent: LocalExtent) -> tuple[str, int, str, str, tuple[int, ...]]:
    return extent.file, extent.line, extent.op, extent.module, extent.whole


def _attention(
    asked: Asked, ranks: int
) -> tuple[tuple[AttentionPlan, ...], tuple[LocalExtent, ...]]:
    """Attention whose heads divide over so many ranks, and the extents that are local there."""
    mesh = within(asked.mesh)
    dp = axes(mesh)[1]
    data = ((dp, mesh[dp]),) if dp else ()
    state = prepare(replace(asked, mesh=Mesh((*data, ("tp", ranks))), split_loss=False))
    styles = {m.path: "replicate" for m in state.modules}
    out: list[AttentionPlan] = []
    for path in dict.fromkeys(m.path.rpartition(".")[0] for m in state.modules):
        inside = [m for m in state.modules if m.path.rpartition(".")[0] == path]
        heads = [m for m in inside if m.use == "linear" and m.heads]
        weights = {p.name for m in heads for p in m.params}
        last = [m for m in inside if m.use == "linear" and m.follows and m.follows <= weights]
        if not heads or len(last) != 1:
            continue
        chosen = {m.path: "fused_column" if m.parts > 1 else "column" for m in heads}
        chosen |= {last[0].path: "row"}
        for m in (*heads, *last):
            if (why := misfit(m, chosen[m.path], ranks)) is not None:
                raise PlanError(f"{m.path}: {why}, ranks that attention splits heads over")
        styles |= chosen
        out.append(AttentionPlan(path, tuple((_own(m), m.parts) for m in heads), _own(last[0])))
    if not out:
        raise PlanError(
            f"a sequence cannot be split over {CP}: no module holds projections of heads, and one "
            "that takes what attention gives"
        )
    found = state.score(Point(tuple(styles.items())), CP)
    if isinstance(found, Refusal):
        raise PlanError(f"attention on the heads of {ranks} ranks: {found.reason}")
    forward = forward_values(state.program)
    return tuple(out), local_extents(found.lowered, forward, state.modules, "tp", dp)


def _own(module: Module) -> str:
    return module.path.rpartition(".")[2]


def split_outputs(contract: Contract, program: Program, plan: Plan) -> Contract:
    """The contract of a plan without `cp`, with each output that has rows split over it."""
    length = sequence(program)
    outputs = dict(contract.outputs)
    for out in program.outputs:
        key = output_key(out)
        layout = outputs.get(key)
        if plan.cp is None or layout is None or out.role != "output" or len(layout.dims) < 2:
            continue
        rows = split_leading(layout.dims[1], plan.mesh[plan.cp], plan.cp)
        if rows is not None and layout.global_shape[1] == length:
            outputs[key] = layout.with_dim(1, rows)
    return replace(contract, outputs=outputs)
