"""Device meshes and topologies."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.kernel.program.where import process_groups


@dataclass(frozen=True)
class DeviceNode:
    """A device."""

    device_id: int


@dataclass(frozen=True)
class Link:
    """A link between two devices, in both directions."""

    src: int
    dst: int
    link_type: str = "NVLink"
    bandwidth_gbps: float = 300.0


@dataclass
class DeviceTopology:
    """Devices and the links between them."""

    nodes: list[DeviceNode] = field(default_factory=list[DeviceNode])
    links: list[Link] = field(default_factory=list[Link])

    @classmethod
    def fully_connected(
        cls, n: int, link_type: str = "NVLink", bandwidth_gbps: float = 300.0
    ) -> DeviceTopology:
        pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
        links = [Link(a, b, link_type, bandwidth_gbps) for a, b in pairs]
        return cls([DeviceNode(i) for i in range(n)], links)

    def device_ids(self) -> list[int]:
        return [node.device_id for node in self.nodes]

    def get_link(self, a: int, b: int) -> Link | None:
        return next((k for k in self.links if {k.src, k.dst} == {a, b}), None)

    def neighbors(self, device: int) -> list[int]:
        ends = [(k.src, k.dst) for k in self.links if device in (k.src, k.dst)]
        return sorted({b if a == device else a for a, b in ends})

    def are_connected(self, a: int, b: int) -> bool:
        """Whether a path of links joins two devices."""
        seen, todo = {a}, deque([a])
        while todo:
            for near in self.neighbors(todo.popleft()):
                if near not in seen:
                    seen.add(near)
                    todo.append(near)
        return b in seen

    def all_connected(self, ids: Sequence[int]) -> bool:
        return all(self.are_connected(ids[0], i) for i in ids[1:])


@dataclass(frozen=True)
class DeviceMesh:
    """Devices as a named grid. `device_ids` are in row-major order, the last dim fastest.

    Raises:
        ValueError: sizes and names, or sizes and device ids, that do not go together.
    """

    shape: tuple[int, ...]
    dim_names: tuple[str, ...]
    device_ids: tuple[int, ...] | None = None
    topology: DeviceTopology | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "shape", tuple(self.shape))
        set_(self, "dim_names", tuple(self.dim_names))
        if len(self.shape) != len(self.dim_names):
            raise ValueError(
                f"mesh: {len(self.shape)} sizes {list(self.shape)} for {len(self.dim_names)} "
                f"names {list(self.dim_names)}"
            )
        self.core  # noqa: B018  (checks names and sizes)
        ids = range(self.num_devices) if self.device_ids is None else self.device_ids
        set_(self, "device_ids", tuple(ids))
        if len(set(ids)) != self.num_devices or len(tuple(ids)) != self.num_devices:
            raise ValueError(f"mesh {self.core}: expected {self.num_devices} device ids")

    @property
    def core(self) -> Mesh:
        """The mesh of the core language."""
        return Mesh(tuple(zip(self.dim_names, self.shape, strict=True)))

    @property
    def num_devices(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def ids(self) -> tuple[int, ...]:
        """Device ids in rank order."""
        assert self.device_ids is not None
        return self.device_ids

    def get_submesh(self, name: str) -> tuple[int, int]:
        """(size, index) of a mesh dim.

        Raises:
            ValueError: no such mesh dim.
        """
        if name not in self.dim_names:
            raise ValueError(f"mesh {self.core} has no dim {name!r}")
        index = self.dim_names.index(name)
        return self.shape[index], index

    def coord_to_device(self, *coords: int) -> int:
        if len(coords) != self.ndim:
            raise ValueError(f"mesh {self.core}: {len(coords)} coordinates for {self.ndim} dims")
        for c, n in zip(coords, self.shape, strict=True):
            if not 0 <= c < n:
                raise ValueError(f"mesh {self.core}: coordinate {c} of a dim of size {n}")
        return self.ids[int(np.ravel_multi_index(coords, self.shape))]

    def device_to_coord(self, device: int) -> tuple[int, ...]:
        if device not in self.ids:
            raise ValueError(f"mesh {self.core} has no device {device}")
        return tuple(int(c) for c in np.unravel_index(self.ids.index(device), self.shape))

    def devices_in_group(self, mesh_dim: int, index: int) -> list[int]:
        """Devices of one process group along `mesh_dim`: the group with this number."""
        if not 0 <= mesh_dim < self.ndim:
            raise ValueError(f"mesh {self.core} has no dim {mesh_dim}")
        groups = process_groups(self.core, (self.dim_names[mesh_dim],))
        if not 0 <= index < len(groups):
            raise ValueError(f"mesh {self.core} has {len(groups)} groups along dim {mesh_dim}")
        return [self.ids[rank] for rank in groups[index]]

    def validate_topology(self) -> bool:
        """Whether every device is in the topology and links join them all."""
        if self.topology is None:
            return True
        known = set(self.topology.device_ids())
        return set(self.ids) <= known and self.topology.all_connected(self.ids)
