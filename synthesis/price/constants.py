"""Constants of the price that are fitted to measurements, and the machines they belong to: shipped
ones, those that a table describes in words, and what runs on them."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

from shardproof.synthesis.hardware import Cluster, load, shipped
from shardproof.synthesis.price.reading import PriceError, Table, words

FIRST = {"fp8": "h100", "bf16": "a100", "": "v100"}
"""The first device that computes in a precision on tensor cores, by the precision."""


@dataclass(frozen=True)
class Constants:
    """What a software stack makes of a machine. Every one has physical bounds in `bounds`."""

    gemm: float = 0.75
    """Share of the peak rate that large matrix products reach."""
    side: float = 128.0
    """Elements that each side of a matrix product wastes: time x (1 + side x sum of 1 / side)."""
    scores: float = 0.5
    """Share of the peak rate that fused causal attention reaches."""
    low: float = 0.6
    """Share of the gain of a lower precision's peak that matrix products keep, in time."""
    passes: float = 1.0
    """Bytes that elementwise chains move, over those of one read and write a fused chain."""
    slow: float = 1.0
    """Seconds of matrix products and attention over those of a mean stack on the same device."""
    layer_s: float = 2e-3
    """Host seconds of one layer, forward and backward: launches, autograd, waiting."""
    split_s: float = 0.0
    """Host seconds more of a layer that tp splits: placements that are looked at op by op."""
    moe_s: float = 3e-3
    """Host seconds more of a layer with experts: routing, permutations, many small kernels."""
    cross_s: float = 0.0
    """Host seconds more for each rank of tp, a layer, where pp leaves the node and tp > 1."""
    stall_s: float = 0.0
    """Seconds that a micro-batch waits, less 1 / pp of them, in jobs of 64 nodes or more, and
    where pp > 1 and tp spans four nodes or more: seen in one source, and not explained there."""
    step_s: float = 5e-3
    """Seconds of one optimizer step whatever its size: data, logging, gradient norm."""
    monthly: float = 0.0
    """Share of the step that a month of releases takes off, where a plan names its release."""
    node: float = 0.8
    """Share of the bandwidth inside a node that collectives reach."""
    network: float = 0.7
    """Share of the bandwidth between nodes that collectives reach."""
    spread: float = 0.1
    """Loss of that bandwidth for each doubling of nodes."""
    hop_s: float = 5e-6
    """Seconds of a collective for each rank of it, where it leaves the node."""
    dp_hidden: float = 0.6
    """Share of gradient and parameter exchange that computation may hide."""
    zero_hidden: float = 0.6
    """The same for ZeRO 1 and 2, which scatter gradients and gather parameters."""
    tp_hidden: float = 0.1
    """Share of tensor-parallel exchange that computation may hide."""
    ep_hidden: float = 0.1
    """Share of expert exchange that computation may hide."""
    p2p_hidden: float = 0.3
    """Share of the exchange between stages that computation may hide."""
    imbalance: float = 1.1
    """Tokens of the fullest expert rank over the mean."""
    flash: float = 1.0
    """1 where attention is one kernel that keeps no scores, 0 where they are kept."""
    buckets: float = 1.0
    """Pieces that a layer's parameters are exchanged in."""
    zero: float = 0.0
    """ZeRO stage where a plan states none."""
    param_bytes: float = 2.0
    """Bytes a parameter."""
    grad_bytes: float = 4.0
    """Bytes a gradient."""
    state_bytes: float = 12.0
    """Bytes of optimizer state a parameter, master copy included."""
    sent_bytes: float = 4.0
    """Bytes a gradient that is exchanged."""
    saved: float = 1.0
    """Saved activations over the sum of inputs that backward needs."""
    gathered: float = 0.0
    """Share of the inputs of split products that is kept whole, not gathered again."""
    flight: float = 0.0
    """Micro-batches that the first stage keeps beyond those of the schedule."""
    logits: float = 10.0
    """Bytes kept for each logit of a micro-batch."""
    last: float = 1.0
    """1 where the last stage counts; 0 where the peak of the first rank is what is measured."""
    reserve: float = 1e9
    """Bytes beside: context, communication buffers."""
    fragments: float = 0.03
    """Share of all else that the allocator loses."""


BOUNDS: Mapping[str, tuple[float, float]] = {
    "gemm": (0.5, 0.9), "side": (0, 600), "scores": (0.1, 0.8), "low": (0, 1),
    "passes": (0.5, 6), "slow": (0.6, 1.8), "layer_s": (0, 8e-3), "split_s": (0, 2e-2),
    "moe_s": (0, 2e-2), "cross_s": (0, 8e-3), "stall_s": (0, 2), "step_s": (0, 0.05),
    "monthly": (0, 0.05),
    "node": (0.2, 1),
    "network": (0.1, 1), "spread": (0, 0.5), "hop_s": (0, 1e-4), "dp_hidden": (0, 1),
    "zero_hidden": (0, 1), "tp_hidden": (0, 0.9), "ep_hidden": (0, 0.9), "p2p_hidden": (0, 1),
    "imbalance": (1, 2), "flash": (0, 1), "buckets": (0.1, 16), "param_bytes": (2, 4),
    "grad_bytes": (2, 6), "state_bytes": (8, 16), "sent_bytes": (1, 4), "saved": (0.7, 2.5),
    "gathered": (0, 1), "flight": (-1, 1), "last": (0, 1), "zero": (0, 3), "logits": (2, 16),
    "reserve": (0, 4e9), "fragments": (0, 0.2),
}  # fmt: skip
"""What each constant may be: shares below 1, times and bytes above 0."""


@dataclass(frozen=True)
class Machine:
    """A cluster, and what its software makes of it."""

    cluster: Cluster
    constants: Constants

    def peak(self, precision: str) -> float:
        """Operations per second of matrix products at a precision, before `gemm`."""
        flops = self.cluster.device.flops
        base = flops["bf16"]
        best = flops.get(precision, flops.get("fp8", base))
        low = self.constants.low
        return 1 / (low / best + (1 - low) / base)


def overlay(base: Constants, table: Mapping[str, Any], where: str) -> Constants:
    """The constants with those of a table in their place.

    Raises:
        PriceError: an unknown constant, or one outside its bounds.
    """
    known = {f.name for f in fields(Constants)}
    for name, value in table.items():
        if name not in known:
            raise PriceError(f"{where}: unknown constant {name}")
        low, high = BOUNDS[name]
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise PriceError(f"{where}: {name} is {value!r}, expected {low} to {high}")
    return replace(base, **table)


@cache
def stacks() -> Mapping[str, Any]:
    """Constants of software stacks: table `default`, and one each with the `names` it goes by."""
    text = resources.files("shardproof.synthesis.price").joinpath("stacks.toml").read_text("utf-8")
    return tomllib.loads(text)


def stack_of(*texts: str) -> str:
    """The stack that one of the texts names, the first text first; `default` where none does."""
    for text in texts:
        found = re.findall(r"[a-z0-9]+", text.lower())
        for name, table in stacks().items():
            if any(known in found for known in (name, *table.get("names", ()))):
                return name
    return "default"


def machine(cluster: Cluster) -> Machine:
    """A described cluster with the constants of a mean stack, over them its own."""
    made = overlay(Constants(), stacks()["default"], "default")
    return Machine(cluster, overlay(made, cluster.price, cluster.name))


@cache
def constants_of(device: str, stack: str) -> Constants:
    """Defaults, over them the device's, over them the stack's."""
    made = machine(load(device)).constants
    own = {key: value for key, value in stacks()[stack].items() if key != "names"}
    return made if stack == "default" else overlay(made, own, stack)


def find(name: str, entry: Table, precision: str) -> tuple[str, Cluster]:
    """The device that a hardware name stands for, and its cluster.

    A shipped name, an `entry` whose `gpu` names a shipped device, or a name that does. An entry
    that says its `gpu` is not stated is taken for the first with that precision.

    Raises:
        PriceError: none of these.
    """
    text = words(entry, "gpu") or name.lower()
    device = name if name in shipped() else device_of(text)
    if device is None and "not stated" in text:
        device = next(d for known, d in FIRST.items() if known in precision or not known)
    if device is None:
        raise PriceError(f"unknown hardware {name!r}; known are {', '.join(shipped())}")
    return device, _adjusted(load(device), entry)


def device_of(text: str) -> str | None:
    """The shipped device that words such as "A100 40GB" or "DGX-H100" name."""
    text = text.replace("a800", "a100")  # but for its links the same
    for name in sorted(shipped(), key=len, reverse=True):
        first, _, size = name.partition("-")
        named = re.search(rf"(?<![a-z]){first}(?![0-9a-z])", text)
        if named and (not size or re.search(rf"\b{size} ?gb", text)):
            return name
    return None


def _adjusted(cluster: Cluster, entry: Table) -> Cluster:
    """The cluster with the memory, node size and links that an entry states."""
    gpu, inter = words(entry, "gpu"), str(entry.get("inter") or "")
    device = cluster.device
    if found := re.search(r"(\d+) ?gb\b", gpu):
        device = replace(device, memory_bytes=float(found[1]) * 1e9)
    if found := re.search(r"([\d.]+) ?tb/s", gpu):
        device = replace(device, memory_bandwidth=float(found[1]) * 1e12)
    per_node = entry.get("gpus_per_node")
    per_node = per_node if isinstance(per_node, int) and per_node > 0 else cluster.devices_per_node
    speed = link_speed(inter, per_node)
    network = replace(cluster.network, bandwidth=speed) if speed else cluster.network
    domain = max(per_node, cluster.devices_per_node) if cluster.devices_per_node > 8 else per_node
    return replace(cluster, device=device, devices_per_node=domain, network=network)


def link_speed(text: str, per_node: int) -> float | None:
    """Bytes per second and device of words such as "8x200 Gb/s per node"; None where unstated."""
    found = re.search(r"(?:(\d+) ?x ?)?([\d.]+) ?([GT])([bB])\b", text)
    if found is None:
        return None
    speed = float(found[2]) * (1e12 if found[3] == "T" else 1e9) / (8 if found[4] == "b" else 1)
    return speed * float(found[1] or 1) / (1 if "per gpu" in text.lower() else per_node)
