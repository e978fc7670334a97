"""Writes a plan in the words of transformers: a tensor-parallel plan of styles by module name."""

import re
from collections.abc import Sequence

from shardproof.synthesis.emit.facts import ModelFacts, ModuleFact
from shardproof.synthesis.emit.form import Form, call, literal
from shardproof.synthesis.emit.parallelize import (
    Change,
    Code,
    definitions,
    head_norms,
    in_order,
    normal,
    on_mesh,
)
from shardproof.synthesis.emit.patch import COMMENT, EmitError, unsaid
from shardproof.synthesis.planner.dialects import TRANSFORMERS
from shardproof.synthesis.planner.plan import ModulePlan, Plan

CONFIGURATION = "transformers.distributed.configuration_utils"
APPLIED = "transformers.distributed.tensor_parallel"
LAST = "S(-1)"
_STYLES = {
    ("column", "Linear", "R", LAST): "colwise",
    ("column", "Linear", "R", "R"): "colwise_gather_output",
    ("gathered", "Linear", "R", "R"): "colwise_gather_output",
    ("row", "Linear", LAST, "R"): "rowwise",
    ("row", "Linear", "R", "R"): "rowwise_split_input",
    ("fused_column", "Linear", "R", LAST): "packed_colwise",
    ("vocab", "Embedding", "R", "R"): "embedding_rowwise",
    ("column", "Embedding", "R", "R"): "embedding_colwise",
    ("gathered", "Embedding", "R", "R"): "embedding_colwise",
}
"""By style, class, and placement of what goes in and comes out."""
WHOLE = {
    "replicate": "replicate",
    "sequence": "replicated_with_grad_allreduce",
    "summed": "replicated_with_grad_allreduce",
}
"""Of modules whose parameters stay whole."""


def tp_plan(facts: ModelFacts, plan: Plan) -> dict[str, str]:
    """{name of a module or a parameter, `*` for the index of a layer: style of transformers}. Rules
    of the class's own plan are kept where none stands beside them, so each has one here.

    Raises:
        EmitError: what it has no words for, with the dialect that has.
    """
    found: dict[str, str] = {}
    for m in in_order(facts, plan, [*plan.modules, *head_norms(facts, plan)]):
        for path, style in _rules(normal(m, facts), facts.find(m.path)).items():
            name = re.sub(r"\.\d+(?=\.|$)", ".*", path)
            if found.setdefault(name, style) != style:
                raise _unsaid(m, f"layers of {name} differ, which it cannot tell apart")
    return {**found, **{name: "replicate" for name in facts.ruled if name not in found}}


def _rules(m: ModulePlan, fact: ModuleFact | None) -> dict[str, str]:
    if fact is None:
        raise EmitError(f"{m.path}: the model has no such module")
    if m.shared or m.leaves_shares:
        raise _unsaid(m, "the gradient of what it gives is a sum over ranks")
    if m.style in WHOLE:
        return {m.path: WHOLE[m.style]}
    if m.style == "experts":
        pieces = {f"{m.path}.{name}": _piece(m, fact, name, *at) for name, *at in m.splits}
        return {**pieces, m.path: "moe_tp_experts"}
    style = _STYLES.get((m.style, fact.base, m.input, m.output))
    if style is None or m.made or m.splits:
        raise _unsaid(m, f"{m.style} of {m.kind} from {m.input} to {m.output}")
    if m.style == "fused_column" and (m.parts != 2 or "bias" in fact.params):
        raise _unsaid(m, f"{m.parts} fused weights{' with a bias' * ('bias' in fact.params)}")
    return {m.path: style}


def _piece(m: ModulePlan, fact: ModuleFact, name: str, dim: int, parts: int) -> str:
    """The style of a parameter of experts that is split along a dim."""
    last = len(fact.params[name]) - 1
    if (last, dim) == (2, 1) and parts <= 2:
        return "packed_colwise" if parts == 2 else "colwise"
    if (last, dim, parts) == (2, 2, 1):
        return "rowwise"
    raise _unsaid(m, f"{name} in {parts} parts along dim {dim}")


def _unsaid(m: ModulePlan, what: str) -> EmitError:
    return unsaid(TRANSFORMERS.name, m.path, what)


def tp_plan_code(plan: Plan, facts: ModelFacts, changes: Sequence[Change], form: Form) -> Code:
    """The plan, `from_pretrained` with it, and a function that applies it to a model.

    Raises:
        EmitError: what a plan of transformers has no words for.
    """
    if changes:
        raise EmitError(
            f"{changes[0].path or facts.class_name}: a plan of transformers changes no code, and "
            "this holds extents of one device; --dialect pytorch"
        )
    if plan.tp is None or plan.output != "R":
        raise EmitError("a plan of transformers splits modules over one mesh dim")
    rules = tp_plan(facts, plan)
    line, needs, imports = on_mesh(plan, form)
    given = ["folder", "distributed_config=distributed()", "**options"]
    ties = [
        f"    model{facts.code(path)} = nn.Parameter(model{facts.code(path)}.detach())"
        for paths in facts.tied
        for path in paths[1:]
    ]
    body = [
        COMMENT,
        call(
            "def parallelize",
            [f"model: {facts.class_name}", "mesh: DeviceMesh | None = None"],
            0,
            f" -> {facts.class_name}:",
            form.width,
        ),
        f'    """Split `model` in place as `from_pretrained` does, on a mesh {plan.mesh}."""',
        line,
        *["    # Each name of a shared weight is split; then they are tied again."] * bool(ties),
        *ties,
        "    rules, _, _ = model._resolve_parallel_plans(distributed())",
        f'    apply_tensor_parallelism(model, mesh["{plan.tp}"], rules)',
        *["    model.tie_weights(recompute_mapping=False)"] * bool(ties),
        "    return model",
        "",
        "",
        f"def from_pretrained(folder: str, **options) -> {facts.class_name}:",
        '    """The weights of a checkpoint: each rank loads its shards."""',
        call(f"return {facts.class_name}.from_pretrained", given, 4, width=form.width),
        "",
    ]
    texts, more = definitions(needs, form.inline)
    made = (
        "def distributed() -> DistributedConfig:\n"
        f"    return DistributedConfig(tp_size={plan.tp_size}, tp_plan=TP_PLAN)"
    )
    imports += [
        ("torch.distributed.device_mesh", "DeviceMesh"),
        (CONFIGURATION, "DistributedConfig"),
        (APPLIED, "apply_tensor_parallelism"),
        *[("torch", "nn")] * bool(ties),
        *more,
    ]
    text = f"TP_PLAN = {literal(rules)}"
    return Code("\n".join(body), (*texts, text, made), tuple(dict.fromkeys(imports)))
