"""Cluster descriptions: the shipped ones load, and a wrong entry is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardproof.synthesis.hardware import HardwareError, load, shipped

TEXT = """
name = "two boxes"
[device]
memory_bytes = 1e9
memory_bandwidth = 1e10
[device.flops]
f32 = 1e12
[node]
devices = 2
bandwidth = 1e9
latency_s = 1e-5
[network]
bandwidth = 1e8
latency_s = 1e-4
"""


@pytest.mark.parametrize("name", shipped())
def test_shipped_descriptions_load(name: str) -> None:
    cluster = load(name)
    assert cluster.device.flops["bf16"] > cluster.device.flops["f32"]
    assert cluster.node.bandwidth > cluster.network.bandwidth


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "boxes.toml"
    path.write_text(TEXT)
    cluster = load(str(path))
    assert cluster.name == "two boxes"
    assert (cluster.node.bandwidth, cluster.network.latency_s) == (1e9, 1e-4)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("memory_bytes = 1e9", "memory_byts = 1e9", "unknown entry device.memory_byts"),
        ("memory_bytes = 1e9", "memory_bytes = 0", "device.memory_bytes is 0"),
        ("memory_bytes = 1e9", "memory_bytes = true", "device.memory_bytes is True"),
        ("memory_bytes = 1e9", "", "device.memory_bytes is None"),
        ("devices = 2", "devices = 2.5", "expected a whole number"),
        ("[network]", "[net]", "unknown entry net"),
        ("f32 = 1e12", "", r"\[flops\] is missing"),
        ("[device]", "[device", "Expected"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "boxes.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(HardwareError, match=says):
        load(str(path))


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(HardwareError, match="h100"):
        load("h1000")
