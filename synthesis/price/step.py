"""One optimizer step: stages, bubble, exchange of gradients, optimizer."""

from dataclasses import dataclass

from shardproof.synthesis.price.compute import HALF, Group, Pass, head, layer, left, ring, send
from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.price.memory import (
    Memory,
    memory,
    settled,
    stage_layers,
    stage_parameters,
)
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan


@dataclass(frozen=True)
class Price:
    """What one optimizer step costs."""

    step_s: float
    mfu: float
    """Model operations over peak at bf16, in (0, 1)."""
    bubble: float
    """Share of the step in which the busiest stage waits for others."""
    exposed_comm_s: float
    hidden_comm_s: float
    memory: Memory
    fits: bool


@dataclass(frozen=True)
class Passes:
    """What a micro-batch takes in a layer of each kind and in the head. It depends on tp, cp, ep,
    the micro-batch, recomputation, and whether there are stages; on nothing else of a plan."""

    dense: Pass
    moe: Pass | None
    head: float


@dataclass(frozen=True)
class Terms:
    """Seconds of one optimizer step by what they are for: nothing of one hides another."""

    layers: float
    """Layers and head of the busiest stage, with what is exchanged in them."""
    sends: float
    """Between stages."""
    gathers: float
    """Parameters and gradients of ZeRO-3."""
    gradients: float
    """Gradients, and parameters of ZeRO 1 and 2, once a step."""
    bubble: float
    update: float
    other: float
    """What each step and each micro-batch waits for: data, logging, see `Constants.stall_s`."""
    hidden: float
    """Exchange that computation hides: not part of the step."""
    exposed: float
    """Exchange in `layers` that nothing hides."""

    @property
    def step(self) -> float:
        spent = self.layers + self.sends + self.gathers + self.gradients
        return spent + self.bubble + self.update + self.other


def passes(machine: Machine, model: Model, plan: Plan, near: Passes | None = None) -> Passes:
    """Seconds of each kind of layer, and of the head, for one micro-batch; `near` are those of a
    plan that differs in ep alone."""
    moe = layer(machine, model, plan, moe=True) if model.moe_layers else None
    if near is not None:
        return Passes(near.dense, moe, near.head)
    return Passes(layer(machine, model, plan, moe=False), moe, head(machine, model, plan))


def terms(machine: Machine, model: Model, plan: Plan, made: Passes | None = None) -> Terms:
    """What a step is spent on, for a plan that leaves nothing open; `made` is that of `passes`."""
    made = made or passes(machine, model, plan)
    slot, total, last = _stages(model, plan, made)
    m, layers = plan.micro_batches, stage_layers(model, plan)
    gradients, gradients_hidden = _gradients(machine, model, plan, slot)
    gathers, gathers_hidden = _gathers(machine, model, plan, slot)
    return Terms(
        layers=m * slot,
        sends=m * _between(machine, model, plan),
        gathers=m * gathers,
        gradients=gradients,
        bubble=_bubble(plan, slot, total - slot),
        update=_optimizer(machine, model, plan),
        other=(m + plan.pp - 1) * _stall(machine, plan) + machine.constants.step_s,
        hidden=m * (layers * last.hidden + gathers_hidden) + gradients_hidden,
        exposed=m * layers * last.exposed,
    )


def price(machine: Machine, model: Model, plan: Plan) -> Price:
    """The price of a plan: seconds of one optimizer step, and bytes of the fullest rank."""
    plan = settled(machine, model, plan)
    spent, used = terms(machine, model, plan), memory(machine, model, plan)
    peak = machine.cluster.device.flops["bf16"] * plan.gpus
    age = (1 - machine.constants.monthly) ** plan.release
    return Price(
        step_s=age * spent.step,
        mfu=model.flops(plan.seq) * plan.step_tokens / (age * spent.step * peak),
        bubble=spent.bubble / spent.step,
        exposed_comm_s=age * (spent.exposed + spent.sends + spent.gathers + spent.gradients),
        hidden_comm_s=age * spent.hidden,
        memory=used,
        fits=used.total <= machine.cluster.device.memory_bytes,
    )


def _stages(model: Model, plan: Plan, made: Passes) -> tuple[float, float, Pass]:
    """Seconds of a micro-batch on the slowest stage and on all stages, and those of a layer."""
    kinds = [(made.dense, model.layers - model.moe_layers)]
    if made.moe is not None:
        kinds.append((made.moe, model.moe_layers))
    body = sum(p.total * count for p, count in kinds)
    loss = made.head
    per = body / model.layers
    slow = per * stage_layers(model, plan)
    # Chunks of a rank, and layers that do not divide, leave the last stage room for the head.
    spare = per * (stage_layers(model, plan) * plan.pp - model.layers)
    slot = slow + (loss if plan.pp == 1 else max(loss - spare, 0.0))
    return slot, body + loss, max(kinds, key=lambda k: k[1])[0]


def _bubble(plan: Plan, slot: float, others: float) -> float:
    """Seconds in which the busiest stage waits: `others` is one micro-batch on all other stages.

    1F1B (p - 1) t, interleaved that over the chunks (Narayanan et al. 2021, section 2.2); zero
    bubble with 1F1B's memory a third of it, with twice the memory none (Qi et al. 2023, section
    2.3, with forward, input and weight passes of equal time); DualPipe halves p and overlaps
    forward with backward (DeepSeek-V3, table 2).
    """
    if plan.pp == 1:
        return 0.0
    share = {"1f1b": 1.0, "gpipe": 1.0, "zb-1p": 1 / 3, "zb-2p": 0.0, "dualpipe": 1 / 4}
    return max(others, 0.0) / plan.chunks * share[plan.schedule]


def _between(machine: Machine, model: Model, plan: Plan) -> float:
    """Seconds of a micro-batch in which a stage sends to its neighbours and nothing hides it."""
    if plan.pp == 1:
        return 0.0
    split = plan.tp if plan.sequence_parallel else 1
    size = HALF * plan.tokens * model.hidden / split
    leaves = plan.gpus > machine.cluster.devices_per_node
    once = send(machine, size, leaves=leaves)
    return 2 * plan.chunks * once * (1 - machine.constants.p2p_hidden)


def _stall(machine: Machine, plan: Plan) -> float:
    """Seconds lost by each micro-batch where many nodes take part: see `Constants.stall_s`."""
    per_node = machine.cluster.devices_per_node
    wide = plan.pp > 1 and plan.tp >= 4 * per_node
    if wide or plan.gpus >= 64 * per_node:
        return machine.constants.stall_s * (1 - 1 / max(plan.pp, 2))
    return 0.0


def _gradients(machine: Machine, model: Model, plan: Plan, slot: float) -> tuple[float, float]:
    """Seconds of the exchange of gradients and parameters once a step: exposed, hidden.

    ZeRO 0 reduces gradients on all ranks; 1 and 2 scatter them and gather parameters (Rajbhandari
    et al. 2020, section 7). The last backward, and the first forward, can hide it.
    """
    if plan.zero == 3 or plan.dp * plan.cp == 1:
        return 0.0, 0.0
    c = machine.constants
    shared, routed = stage_parameters(model, plan, last=False)
    pieces = c.buckets * stage_layers(model, plan)
    whole = Group(plan.dp * plan.cp, plan.tp)
    apart = Group(max(1, plan.dp * plan.cp * plan.tp // plan.ep), plan.ep)

    def all_of(size: float, *, gather: bool) -> float:
        back = HALF if gather else c.sent_bytes
        sent = (c.sent_bytes + back) * size
        return ring(machine, whole, sent * shared, 2 * pieces) + ring(
            machine, apart, sent * routed, 2 * pieces if routed else 0
        )

    spent = all_of(1.0 if plan.trained else 0.02, gather=plan.zero > 0)
    stays = left(spent, slot, c.zero_hidden if plan.zero else c.dp_hidden)
    return stays, spent - stays


def _gathers(machine: Machine, model: Model, plan: Plan, slot: float) -> tuple[float, float]:
    """Seconds a micro-batch of ZeRO-3's exchange: exposed, hidden. Parameters are gathered for
    forward and again for backward, gradients are scattered (Rajbhandari et al. 2020, 7.2)."""
    if plan.zero < 3 or plan.dp * plan.cp == 1:
        return 0.0, 0.0
    c = machine.constants
    shared, routed = stage_parameters(model, plan, last=False)
    pieces = stage_layers(model, plan)
    group = Group(plan.shard * plan.cp, plan.tp)
    apart = Group(max(1, plan.shard * plan.cp * plan.tp // plan.ep), plan.ep)
    sent = 2 * HALF + c.sent_bytes * (1 if plan.trained else 0.02)
    spent = ring(machine, group, sent * shared, 3 * pieces)
    spent += ring(machine, apart, sent * routed, 3 * pieces if routed else 0)
    if plan.shard < plan.dp:
        across = Group(plan.dp // plan.shard, plan.tp * plan.shard)
        held = (shared + routed) / plan.shard
        spent += ring(machine, across, 2 * c.sent_bytes * held, pieces) / plan.micro_batches
    # With stages, parameters stay gathered for all micro-batches of a step.
    spent /= plan.micro_batches if plan.pp > 1 else 1
    stays = left(spent, slot, c.dp_hidden)
    return stays, spent - stays


def _optimizer(machine: Machine, model: Model, plan: Plan) -> float:
    """Seconds in which gradients and optimizer states are read and written."""
    c = machine.constants
    shared, routed = stage_parameters(model, plan, last=False)
    ranks = plan.shard * plan.cp if plan.zero else 1
    moved = (shared / ranks + routed / (ranks if plan.zero else 1)) * 2 * (c.state_bytes + 4)
    return moved * (1 if plan.trained else 0.02) / machine.cluster.device.memory_bandwidth
