"""Machines by name: shipped ones, those that a table describes in words, and what runs on them."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from shardproof.synthesis.hardware import Cluster, load, shipped
from shardproof.synthesis.price.constants import Constants, Machine, overlay
from shardproof.synthesis.price.reading import PriceError, Table, words

Described = Mapping[str, Table]
"""Hardware that a table names: words such as "H100 80GB SXM" by key `gpu`, and its links."""
FIRST = {"fp8": "h100", "bf16": "a100", "": "v100"}
"""The first device that computes in a precision on tensor cores, by the precision."""


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
