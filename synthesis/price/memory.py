"""Bytes of the fullest rank, by kind."""

from dataclasses import dataclass, fields, replace

from shardproof.synthesis.price.compute import HALF, fused, sequence_ranks
from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan


@dataclass(frozen=True)
class Memory:
    """Peak bytes of one rank by what they are for."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    """Saved for backward, of all micro-batches in flight."""
    logits: float
    transient: float
    """Gathered parameters of ZeRO-3, and the layer that runs."""
    margin: float
    """Context, communication buffers, and what the allocator loses to fragments."""

    @property
    def total(self) -> float:
        states = self.parameters + self.gradients + self.optimizer
        return states + self.activations + self.logits + self.transient + self.margin

    @property
    def largest(self) -> str:
        """The kind that takes most."""
        return max((f.name for f in fields(self)), key=lambda name: getattr(self, name))


def settled(machine: Machine, model: Model, plan: Plan) -> Plan:
    """The plan with what it leaves open: the least recomputation, then ZeRO, with which it fits;
    all of both where nothing does."""
    if not plan.open:
        return plan
    closed = replace(plan, open=())
    stages = sorted({plan.zero, 1, 3} - set(range(plan.zero)))
    kinds = ("none", "selective", "full") if "recompute" in plan.open else (plan.recompute,)
    for zero in stages if "zero" in plan.open and plan.dp > 1 and plan.pp == 1 else (plan.zero,):
        for kind in kinds:
            closed = replace(closed, zero=zero, recompute=kind)
            if memory(machine, model, closed).total <= machine.cluster.device.memory_bytes:
                return closed
    return closed


def memory(machine: Machine, model: Model, plan: Plan) -> Memory:
    """The fullest rank: of the first stage, which has most micro-batches in flight, or the last,
    which has the logits."""
    plan = settled(machine, model, plan)
    first = _stage(machine, model, plan, last=False)
    if plan.pp == 1 or machine.constants.last < 0.5:
        return first
    return max(first, _stage(machine, model, plan, last=True), key=lambda m: m.total)


def stage_parameters(model: Model, plan: Plan, *, last: bool) -> tuple[float, float]:
    """Parameters of a rank of the first or the last stage: without routed experts, and of them."""
    layers = stage_layers(model, plan)
    table = model.vocab * model.hidden
    embed = table * (1 if model.tied else 2) if plan.pp == 1 else table
    moe = model.expert_parameters * model.moe_layers / model.layers * layers / plan.ep
    return (model.layer_parameters * layers + embed) / plan.tp, moe


def stage_layers(model: Model, plan: Plan) -> float:
    """Layers of the fullest stage."""
    return -(-model.layers // plan.pp)


def in_flight(plan: Plan) -> float:
    """Micro-batches whose activations the first stage keeps, in whole stages.

    1F1B and interleaving: Narayanan et al. 2021, section 2.2, and Korthikanti et al. 2022,
    section 4.2.3; zero bubble: Qi et al. 2023, tables 1 and 4.
    """
    pp, m, v = plan.pp, plan.micro_batches, plan.chunks
    if plan.schedule == "gpipe":
        return m
    if plan.schedule == "zb-2p":
        return min(m, 2 * pp - 1)
    if plan.schedule == "dualpipe":
        return min(m, pp + 1)
    return min(m, pp * (1 + (pp - 1) / (pp * v)) if v > 1 else pp)


def saved(machine: Machine, model: Model, plan: Plan, *, moe: bool) -> float:
    """Bytes a token of a layer keeps for backward on one rank, attention as one kernel or not.

    Inputs of norms, products and activations, as in Korthikanti et al. 2022, section 4.
    """
    tp, h = plan.tp, model.hidden
    stream = h / (tp if plan.sequence_parallel else 1)
    if plan.recompute == "full":
        return HALF * stream
    heads = (model.queries + model.keys + (model.kv_heads + model.heads) * model.head_dim) / tp
    wide = 3 if model.gated else 2
    inner = wide * model.ffn / tp
    if moe:
        inner = model.top_k * (wide * model.moe_ffn + 2 * h) / sequence_ranks(plan)
        inner += wide * model.shared * model.moe_ffn / tp
    whole = machine.constants.gathered * (h - stream)
    kept = HALF * (4 * stream + 2 * whole + heads + inner)
    if plan.recompute == "none" and not fused(machine, plan):
        kept += 5 * model.heads / tp * plan.seq
    if plan.recompute == "selective" and fused(machine, plan):
        kept = HALF * (2 * stream + heads + (inner if moe else inner * 2 / 3))
    if plan.recompute == "half":
        kept = kept / 2 + stream
    return kept * machine.constants.saved


def _stage(machine: Machine, model: Model, plan: Plan, *, last: bool) -> Memory:
    c = machine.constants
    shared, routed = stage_parameters(model, plan, last=last)
    layers, ranks = stage_layers(model, plan), plan.shard * plan.cp
    expert_ranks = max(1, plan.shard * plan.tp * plan.cp // plan.ep)
    whole = shared + routed

    def split(at: int) -> float:
        return shared / ranks + routed / expert_ranks if plan.zero >= at else whole

    trained = 1.0 if plan.trained else 0.02
    moe = model.moe_layers / model.layers
    token = saved(machine, model, plan, moe=True) * moe if moe else 0.0
    token += saved(machine, model, plan, moe=False) * (1 - moe) if moe < 1 else 0.0
    flying = 1.0 if last and plan.pp > 1 else max(in_flight(plan) + c.flight * (plan.pp > 1), 1)
    kept = token * plan.tokens * layers * flying
    logits = c.logits * plan.tokens * model.vocab / plan.tp if last or plan.pp == 1 else 0.0
    work = _working(machine, model, plan, token)
    if plan.zero == 3 and plan.pp > 1:
        # Gathered once a step, and gradients reduced once: both are whole in between.
        work += (HALF + c.sent_bytes) * (whole - whole / ranks)
    elif plan.zero == 3:
        work += HALF * 2 * max(whole / max(layers, 1), model.vocab * model.hidden / plan.tp / 2)
    sizes = (
        c.param_bytes * split(3),
        c.grad_bytes * split(2 if plan.pp == 1 else 3) * trained,
        c.state_bytes * split(1) * trained,
        kept,
        logits,
        work,
    )
    return Memory(*sizes, c.reserve + c.fragments * sum(sizes))


def _working(machine: Machine, model: Model, plan: Plan, token: float) -> float:
    """Bytes of the layer that runs: all its inputs where they are computed again."""
    if plan.recompute != "full":
        return 0.0
    plain = replace(plan, recompute="none")
    return plan.tokens * saved(machine, model, plain, moe=model.moe_layers > 0)
