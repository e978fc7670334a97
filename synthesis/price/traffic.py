"""Seconds of collectives: by algorithm, by where their ranks are, by the links they share."""

import math
from dataclasses import dataclass

from shardproof.synthesis.price.constants import Machine


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
