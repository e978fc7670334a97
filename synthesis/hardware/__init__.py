"""Cluster descriptions, read from TOML: what a device computes and holds, what links cost."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, cast

DEFAULT = "h100"


class HardwareError(ValueError):
    """A cluster description that cannot be used: which file, which entry, what was expected."""


@dataclass(frozen=True, slots=True)
class Device:
    memory_bytes: float
    memory_bandwidth: float
    """Bytes per second."""
    flops: Mapping[str, float] = field(default_factory=dict[str, float])
    """Peak operations per second by dtype, dense."""


@dataclass(frozen=True, slots=True)
class Link:
    bandwidth: float
    """Bytes per second and device, one way."""
    latency_s: float
    """Seconds that one collective costs before its first byte."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes of equal devices: one link within a node, one between nodes."""

    name: str
    device: Device
    devices_per_node: int
    node: Link
    network: Link
    price: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Constants of `shardproof.synthesis.price` that are fitted on this machine."""


def shipped() -> tuple[str, ...]:
    """Names of the descriptions that come with the package."""
    files = resources.files(__name__).iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def load(name: str = DEFAULT) -> Cluster:
    """Read a description: a shipped name, or the path of a TOML file.

    Raises:
        HardwareError: no such name or file, not TOML, an entry missing, unknown or not positive.
    """
    try:
        if name in shipped():
            text = resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8")
        else:
            text = Path(name).read_text("utf-8")
        data = tomllib.loads(text)
    except FileNotFoundError:
        known = ", ".join(shipped())
        raise HardwareError(f"{name}: no such file, and none of {known}") from None
    except (OSError, ValueError) as error:
        raise HardwareError(f"{name}: {error}") from None
    return _cluster(name, data)


def _cluster(where: str, data: dict[str, Any]) -> Cluster:
    read = _Reader(where)
    read.only("", data, ("name", "device", "node", "network", "price"))
    device, node, network = (read.table(data, key) for key in ("device", "node", "network"))
    read.only("device.", device, ("memory_bytes", "memory_bandwidth", "flops"))
    read.only("node.", node, ("devices", "bandwidth", "latency_s"))
    read.only("network.", network, ("bandwidth", "latency_s"))
    flops = read.table(device, "flops")
    devices = read.positive("node.", node, "devices")
    if devices != int(devices):
        raise HardwareError(f"{where}: node.devices is {devices}, expected a whole number")
    return Cluster(
        name=str(data.get("name", where)),
        device=Device(
            memory_bytes=read.positive("device.", device, "memory_bytes"),
            memory_bandwidth=read.positive("device.", device, "memory_bandwidth"),
            flops={dtype: read.positive("device.flops.", flops, dtype) for dtype in flops},
        ),
        devices_per_node=int(devices),
        node=Link(*(read.positive("node.", node, k) for k in ("bandwidth", "latency_s"))),
        network=Link(*(read.positive("network.", network, k) for k in ("bandwidth", "latency_s"))),
        price=read.table(data, "price") if "price" in data else {},
    )


@dataclass(frozen=True)
class _Reader:
    where: str

    def table(self, data: dict[str, Any], key: str) -> dict[str, Any]:
        value = data.get(key)
        if not isinstance(value, dict) or not value:
            raise HardwareError(f"{self.where}: the table [{key}] is missing")
        return cast(dict[str, Any], value)

    def only(self, prefix: str, data: dict[str, Any], known: tuple[str, ...]) -> None:
        unknown = sorted(set(data) - set(known))
        if unknown:
            raise HardwareError(
                f"{self.where}: unknown entry {prefix}{unknown[0]}; known are {', '.join(known)}"
            )

    def positive(self, prefix: str, data: dict[str, Any], key: str) -> float:
        value = data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise HardwareError(
                f"{self.where}: {prefix}{key} is {value!r}, expected a number above 0"
            )
        return float(value)
