"""What a distributed program costs on a described cluster: roofline, alpha-beta, memory.

Compute time of an op is the larger of its flops and its bytes at the device's rates (Williams et
al. 2009). A collective over n ranks of a tensor of b bytes takes the link's latency plus the ring
volume over the link's bandwidth: 2(n-1)/n b for an all_reduce, (n-1)/n b for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from synthesis.hardware import Cluster
from verifier.kernel.ops import lookup
from verifier.kernel.program.program import Node, Program
from verifier.kernel.program.types import Mesh, TensorType, mesh_dims

VIEW_OPS = frozenset(
    {"reshape", "permute", "expand", "slice", "shard_slice", "full", "iota", "cast"}
)


@dataclass(frozen=True, slots=True)
class Use:
    """A collective in a program, with how often a step runs it."""

    node: Node
    mesh_dims: tuple[str, ...]
    bytes: int
    """Of the whole tensor it works on."""
    seconds: float
    count: int
    scope: str = ""
    """First result of the enclosing scan."""


@dataclass
class Estimate:
    """Seconds and bytes of one step on one rank."""

    compute_s: float = 0.0
    comm_s: float = 0.0
    comm_bytes: int = 0
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    uses: list[Use] = field(default_factory=list[Use])

    @property
    def step_s(self) -> float:
        return self.compute_s + self.comm_s

    @property
    def memory_bytes(self) -> int:
        return self.parameters + self.gradients + self.optimizer + self.activations


def span(mesh: Mesh, names: tuple[str, ...]) -> int:
    """How many consecutive ranks a group over these mesh dims stretches over."""
    inner, reach = 1, 1
    for name, size in reversed(mesh.dims):
        if name in names:
            reach = inner * size
        inner *= size
    return reach


def collective_seconds(
    op: str, mesh: Mesh, names: tuple[str, ...], nbytes: int, cluster: Cluster
) -> float:
    """Time of one collective on a whole tensor of `nbytes`."""
    n = 1
    for name in names:
        n *= mesh[name]
    if n == 1 or op in ("shard_slice", "on_coord"):
        return 0.0
    link = cluster.link(span(mesh, names))
    factor = 2.0 if op == "all_reduce" else 1.0
    return link.latency_s + factor * (n - 1) / n * nbytes / link.bandwidth


def op_seconds(
    node_op: str,
    operands: list[TensorType],
    results: list[TensorType],
    attrs: dict[str, object],
    cluster: Cluster,
) -> float:
    """Roofline time of one op on one device. Views and constants are free."""
    if node_op in VIEW_OPS:
        return 0.0
    op = lookup(node_op)
    device = cluster.device
    flops = op.flops(operands, tuple(results), attrs) if op.flops else 0
    dtype = results[0].dtype if results[0].is_float else "f32"
    peak = device.flops.get(dtype) or max(device.flops.values())
    moved = sum(t.nbytes for t in (*operands, *results))
    return max(
        flops / (peak * device.efficiency), moved / (device.memory_bandwidth * device.efficiency)
    )


def walk(
    program: Program, times: int = 1, scope: str = ""
) -> Iterator[tuple[Program, Node, int, str]]:
    """Every node with how often one step runs it, and the scan that holds it."""
    for node in program.nodes:
        if node.body is not None:
            length = node.attrs["length"]
            assert isinstance(length, int)
            yield from walk(node.body, times * length, node.outputs[0])
        else:
            yield program, node, times, scope


def estimate(program: Program, cluster: Cluster, optimizer_bytes: int = 12) -> Estimate:
    """Cost of one forward and backward step.

    `optimizer_bytes` per parameter: float32 master copy and two Adam moments.
    """
    out = Estimate()
    for holder, node, times, scope in walk(program):
        op = lookup(node.op)
        operands = [holder.types[v] for v in node.inputs]
        results = [holder.types[v] for v in node.outputs]
        if op.kind == "collective":
            names = mesh_dims(cast("str | tuple[str, ...]", node.attrs["mesh_dim"]))
            big = max(operands[0].nbytes, results[0].nbytes)
            seconds = collective_seconds(node.op, program.mesh, names, big, cluster)
            if node.op not in ("shard_slice", "on_coord"):
                out.uses.append(Use(node, names, big, seconds, times, scope))
                out.comm_bytes += big * times
            out.comm_s += seconds * times
        else:
            out.compute_s += (
                op_seconds(node.op, operands, results, dict(node.attrs), cluster) * times
            )
    for item in program.inputs:
        if item.role == "param":
            out.parameters += item.type.nbytes
            out.optimizer += item.type.size * optimizer_bytes
    out.gradients = sum(program.types[o.value].nbytes for o in program.outputs if o.role == "grad")
    out.activations = _activations(program)
    return out


def _activations(program: Program) -> int:
    """Peak bytes of live values in program order, inputs left out; views share their operand."""
    owner: dict[str, str] = {}
    last: dict[str, int] = {}
    for at, node in enumerate(program.nodes):
        for value in node.inputs:
            last[owner.get(value, value)] = at
        if node.op in VIEW_OPS and node.inputs:
            source = node.inputs[0]
            owner[node.outputs[0]] = owner.get(source, source)
    for out in program.outputs:
        last[owner.get(out.value, out.value)] = len(program.nodes)
    ends: dict[int, list[str]] = {}
    for value, at in last.items():
        ends.setdefault(at, []).append(value)
    given = {i.name for i in program.inputs}
    live = peak = 0
    sizes: dict[str, int] = {}
    for at, node in enumerate(program.nodes):
        for value in node.outputs:
            if value not in owner and value in last:
                sizes[value] = program.types[value].nbytes
                live += sizes[value]
        inner = _activations(node.body) if node.body is not None else 0
        peak = max(peak, live + inner)
        for value in ends.get(at, ()):
            if value not in given:
                live -= sizes.pop(value, 0)
    return peak
