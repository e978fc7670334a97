"""Seconds of one layer and of the head for one micro-batch: kernels as they are fused, collectives
by algorithm, by where their ranks are, and by the links they share."""

import math
from dataclasses import dataclass

from shardproof.synthesis.price.constants import Machine
from shardproof.synthesis.price.model import Model
from shardproof.synthesis.price.plan import Plan


@dataclass(frozen=True)
class Group:
    """Ranks of one collective, `stride` apart in the order of ranks."""

    ranks: int
    stride: int = 1

    def inside(self, per_node: int) -> int:
        """Ranks of it in one node."""
        return max(1, min(self.ranks, per_node // self.stride if self.stride < per_node else 1))


def bandwidth(machine: Machine, group: Group) -> float:
    """Bytes per second and rank of a ring over the group.

    Between nodes a ring uses the links of all its ranks in a node, at most what the node carries
    inside; groups beside it use those of theirs.
    """
    c, cluster = machine.constants, machine.cluster
    inside = group.inside(cluster.devices_per_node)
    node = cluster.node.bandwidth * c.node
    if inside >= group.ranks:
        return node
    nodes = group.ranks / inside
    network = cluster.network.bandwidth * c.network * inside
    return min(node, network) / (1 + c.spread * math.log2(nodes))


def latency(machine: Machine, group: Group) -> float:
    """Seconds of a collective of the group before its first byte."""
    c, cluster = machine.constants, machine.cluster
    inside = group.inside(cluster.devices_per_node)
    if inside >= group.ranks:
        return cluster.node.latency_s
    return cluster.network.latency_s + c.hop_s * group.ranks


def ring(machine: Machine, group: Group, size: float, pieces: float = 1) -> float:
    """Seconds to gather, or to reduce and scatter, `size` bytes in `pieces`: (n - 1) / n of them
    pass each rank (Thakur et al. 2005, section 4). An all-reduce is both."""
    if group.ranks == 1 or not size:
        return 0.0
    share = (group.ranks - 1) / group.ranks
    return size * share / bandwidth(machine, group) + pieces * latency(machine, group)


def exchange(machine: Machine, group: Group, size: float, copies: float) -> float:
    """Seconds of an all-to-all in which each rank sends `size` bytes `copies` times, anywhere.

    What leaves a node goes through the rank's own link, once for each node that it reaches
    (DeepSeek-V3, arXiv 2412.19437, section 3.2).
    """
    if group.ranks == 1:
        return 0.0
    c, cluster = machine.constants, machine.cluster
    inside = group.inside(cluster.devices_per_node)
    share = (inside - 1) / group.ranks
    near = size * copies * share / (cluster.node.bandwidth * c.node)
    if inside >= group.ranks:
        return near + cluster.node.latency_s
    nodes = group.ranks / inside
    reached = nodes * (1 - (1 - 1 / nodes) ** copies)
    rate = cluster.network.bandwidth * c.network / (1 + c.spread * math.log2(nodes))
    return max(near, size * reached * (1 - 1 / nodes) / rate) + cluster.network.latency_s


def send(machine: Machine, size: float, *, leaves: bool) -> float:
    """Seconds to send `size` bytes to the rank of the next stage."""
    c, cluster = machine.constants, machine.cluster
    if leaves:
        return size / (cluster.network.bandwidth * c.network) + cluster.network.latency_s
    return size / (cluster.node.bandwidth * c.node) + cluster.node.latency_s


HALF = 2
"""Bytes of a bf16 number."""


@dataclass(frozen=True)
class Pass:
    """Seconds of one layer for one micro-batch."""

    forward: float
    backward: float
    """Without what is computed again."""
    again: float
    """Of the forward, computed again in backward."""
    exposed: float
    """Of all these, exchange that nothing hides."""
    hidden: float
    """Exchange that computation hides."""
    floor: float
    """What the host takes, forward and backward: the device waits for it."""

    @property
    def total(self) -> float:
        return max(self.forward + self.backward + self.again, self.floor)


def matmul(
    machine: Machine, m: float, k: float, n: float, precision: str, size: int = HALF
) -> float:
    """Seconds of an m x k by k x n product of numbers of `size` bytes: each side wastes part of a
    tile, memory bounds it."""
    c = machine.constants
    waste = 1 + c.side * (1 / m + 1 / k + 1 / n)
    moved = size * (m * k + k * n + m * n) / machine.cluster.device.memory_bandwidth
    return max(2 * m * k * n / (machine.peak(precision) * c.gemm) * waste * c.slow, moved)


def chains(machine: Machine, size: float) -> float:
    """Seconds of fused elementwise chains that read and write `size` bytes."""
    return size * machine.constants.passes / machine.cluster.device.memory_bandwidth


def attention(machine: Machine, model: Model, plan: Plan) -> tuple[float, float]:
    """Seconds of the core of causal attention, forward and backward.

    As one kernel: half of the scores, and 2.5 times the products in backward (FlashAttention-2,
    arXiv 2307.08691, section 3.1). Otherwise all scores, and passes over them.
    """
    width = (model.queries + model.heads * model.head_dim) / plan.tp
    whole = 2 * plan.tokens * plan.seq * width / machine.cluster.device.flops["bf16"]
    if fused(machine, plan):
        forward = whole / 2 / machine.constants.scores * machine.constants.slow
        return forward, 2.5 * forward
    kept = plan.tokens * plan.seq * model.heads / plan.tp * HALF
    forward = whole / machine.constants.gemm + chains(machine, 6 * kept)
    return forward, 2 * forward


def fused(machine: Machine, plan: Plan) -> bool:
    """Whether attention keeps no scores."""
    return machine.constants.flash >= 0.5 if plan.flash is None else plan.flash


def dense(machine: Machine, model: Model, plan: Plan, width: int) -> float:
    """Seconds of a feed-forward block's products, forward."""
    if not width:
        return 0.0
    t, h, f = plan.tokens, model.hidden, max(width / plan.tp, 1)
    into = matmul(machine, t, h, (2 if model.gated else 1) * f, plan.precision)
    return into + matmul(machine, t, f, h, plan.precision)


def experts(machine: Machine, model: Model, plan: Plan) -> float:
    """Seconds of a rank's routed experts, forward: one product for each, of the fullest rank."""
    local = model.experts / plan.ep
    sent = plan.tokens / sequence_ranks(plan) * model.top_k * machine.constants.imbalance
    m, h, f = max(sent / local, 1), model.hidden, model.moe_ffn
    into = matmul(machine, m, h, (2 if model.gated else 1) * f, plan.precision)
    return local * (into + matmul(machine, m, f, h, plan.precision))


def sequence_ranks(plan: Plan) -> int:
    """Ranks of tp that each route tokens of their own."""
    return plan.tp if plan.sequence_parallel else 1


def elementwise(machine: Machine, model: Model, plan: Plan, *, moe: bool) -> float:
    """Seconds of norms, residuals, rotary and activations of a layer, forward."""
    t = plan.tokens
    stream = 10 * model.hidden / (plan.tp if plan.sequence_parallel else 1)
    heads = 2 * (model.heads + model.kv_heads) * model.head_dim / plan.tp
    inner = 3 if model.gated else 2
    width = inner * model.ffn / plan.tp
    if moe:
        routed = model.top_k * (inner * model.moe_ffn + 4 * model.hidden) / sequence_ranks(plan)
        width = routed + inner * model.shared * model.moe_ffn / plan.tp
    return chains(machine, HALF * t * (stream + heads + width))


def layer(machine: Machine, model: Model, plan: Plan, *, moe: bool) -> Pass:
    """One layer for one micro-batch."""
    c, t, tp = machine.constants, plan.tokens, plan.tp
    products = sum(
        matmul(machine, t, k / (tp if side == "in" else 1), n / (tp if side == "out" else 1),
               plan.precision)
        for k, n, side in model.matrices
    )  # fmt: skip
    products += dense(machine, model, plan, model.shared * model.moe_ffn if moe else model.ffn)
    products += experts(machine, model, plan) if moe else 0.0
    core, core_back = attention(machine, model, plan)
    chain = elementwise(machine, model, plan, moe=moe)
    own = products + core + chain
    own_back = (2 if plan.trained else 1) * products + core_back + 2 * chain
    around, routed, ahead = exchanges(machine, model, plan, moe=moe)
    share = {"none": 0.0, "selective": 0.0, "half": 0.5, "full": 1.0}[plan.recompute]
    again = share * own + (chain + (0 if fused(machine, plan) else core)) * (
        plan.recompute == "selective"
    )
    tp_hidden = max(c.tp_hidden, 0.5) if plan.async_tp else c.tp_hidden
    exposed = left(around, products, tp_hidden) + left(routed, own, c.ep_hidden)
    exposed += left(ahead, core, 0.8)
    rounds = 2 + share
    hidden = (around + routed + ahead - exposed) * rounds
    return Pass(
        own + exposed,
        own_back + exposed,
        again + share * exposed,
        exposed * rounds,
        hidden,
        (host(machine, plan) + moe * c.moe_s) * (1 + share / 3) + around * rounds * (1 - tp_hidden),
    )


def left(exchange_s: float, compute_s: float, hidden: float) -> float:
    """Seconds of an exchange that stay, where at most a share of `compute_s` hides it."""
    return exchange_s - min(exchange_s, compute_s) * hidden


def host(machine: Machine, plan: Plan) -> float:
    """Host seconds of a layer, forward and backward."""
    c = machine.constants
    crosses = plan.pp > 1 and plan.tp > 1 and plan.gpus > machine.cluster.devices_per_node
    return c.layer_s + c.split_s * (plan.tp > 1) + (c.cross_s * plan.tp if crosses else 0.0)


def exchanges(
    machine: Machine, model: Model, plan: Plan, *, moe: bool
) -> tuple[float, float, float]:
    """Seconds of a layer's forward exchange: around tensor-parallel products, to experts and
    back, and of keys and values along cp (ring attention, arXiv 2310.01889), or of rows for heads
    and back (arXiv 2309.14509). Backward has as much.
    """
    size = HALF * plan.tokens * model.hidden
    blocks = 1 if moe and plan.ep > 1 and not model.shared else 2
    # Gather before a block and scatter after it; an all-reduce after it moves as much.
    around = 2 * blocks * ring(machine, Group(plan.tp), size)
    routed = 0.0
    if moe and plan.ep > 1:
        sent = size / sequence_ranks(plan) * machine.constants.imbalance
        routed = 2 * exchange(machine, Group(plan.ep), sent, model.top_k)
    keys = 2 * HALF * plan.tokens * model.keys / plan.tp
    ahead = ring(machine, Group(plan.cp, plan.tp), keys * plan.cp)
    if plan.by_heads and plan.cp > 1:
        rows = (keys + 2 * size / plan.tp) / plan.cp
        around, ahead = around + exchange(machine, Group(plan.cp, plan.tp), rows, plan.cp), 0.0
    return around, routed, ahead


def head(machine: Machine, model: Model, plan: Plan) -> float:
    """Seconds of the vocabulary's product and loss for one micro-batch, all passes."""
    columns = model.vocab / plan.tp
    product = matmul(machine, plan.tokens, model.hidden, columns, "bf16")
    return 3 * product + chains(machine, 20 * plan.tokens * columns)
