"""What a distributed program costs on a described cluster: seconds, and bytes of memory.

Prices are those of `synthesis.price`, whose constants are fitted to published measurements, taken
for each kernel of the program (`synthesis.kernels`): products by their shapes, attention and
experts as fused kernels, elementwise chains by what they read and write, collectives by algorithm
and links. Part of each exchange is hidden behind computation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from shardproof.synthesis.hardware import Cluster
from shardproof.synthesis.kernels.found import Kernels, Product, kernels
from shardproof.synthesis.kernels.graph import Value
from shardproof.synthesis.price.compute import Group, chains, exchange, matmul, ring
from shardproof.synthesis.price.constants import Machine, machine
from shardproof.verifier.kernel.ops import lookup
from shardproof.verifier.kernel.program.program import Node, Program
from shardproof.verifier.kernel.program.types import Mesh, TensorType, mesh_dims
from shardproof.verifier.ops.classes import SILENT

"""Collectives that send nothing."""


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
    """Seconds and bytes of one forward and backward step on one rank."""

    compute_s: float = 0.0
    sent_s: float = 0.0
    """Exchange over all mesh dims but dp, hidden or not."""
    data_s: float = 0.0
    """Exchange of parameters and gradients over dp, hidden or not."""
    host_s: float = 0.0
    """What the host takes to launch all: the device waits for it."""
    hidden: tuple[float, float] = (0.0, 0.0)
    """Shares that computation may hide: of `sent_s`, of `data_s`."""
    comm_bytes: int = 0
    numbers: int = 0
    """Of all parameters that a rank holds."""
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    uses: list[Use] = field(default_factory=list[Use])

    @property
    def comm_s(self) -> float:
        """Exchange that nothing hides."""
        sent, data = self.hidden
        rest = max(self.data_s * (1 - data), self.data_s - self.compute_s * data)
        return self.sent_s * (1 - sent) + rest

    def parts(self) -> dict[str, float]:
        """Seconds of a step by what they are spent on: exchange by mesh dims, as far as nothing
        hides it."""
        spent: dict[str, float] = {}
        for use in self.uses:
            name = ",".join(use.mesh_dims)
            spent[name] = spent.get(name, 0.0) + use.seconds * use.count
        total = sum(spent.values())
        shares = {n: s / total * self.comm_s for n, s in spent.items()} if total else {}
        out = {"compute": self.compute_s, **{f"{n} communication": s for n, s in shares.items()}}
        waiting = max(self.host_s - self.compute_s, 0.0)
        return out | ({"waiting for the host": waiting} if waiting else {})

    @property
    def device_s(self) -> float:
        """Without waiting for the host: what plans are compared by."""
        return self.compute_s + self.comm_s

    @property
    def step_s(self) -> float:
        return max(self.compute_s, self.host_s) + self.comm_s

    @property
    def memory(self) -> dict[str, int]:
        """Bytes by what they are for."""
        kinds = ("parameters", "gradients", "optimizer", "activations")
        return {kind: getattr(self, kind) for kind in kinds}

    @property
    def memory_bytes(self) -> int:
        return sum(self.memory.values())


@dataclass(frozen=True)
class Prices:
    """Prices of the ops of one program on one mesh."""

    mesh: Mesh
    machine: Machine
    kernels: Kernels

    @property
    def hidden(self) -> tuple[float, float]:
        """Shares of exchange over tp and over dp that computation may hide."""
        constants = self.machine.constants
        return constants.tp_hidden, constants.dp_hidden

    def collective(self, op: str, names: Sequence[str], nbytes: float) -> float:
        """Seconds of one collective on a whole tensor of `nbytes`."""
        group = self._group(names)
        if group.ranks == 1 or op in SILENT:
            return 0.0
        if op == "all_to_all":
            return exchange(self.machine, group, nbytes / group.ranks, 1)
        return ring(self.machine, group, nbytes * (2 if op == "all_reduce" else 1))

    def _group(self, names: Sequence[str]) -> Group:
        ranks, stride, inner = 1, 1, 1
        for name, size in reversed(self.mesh.dims):
            if name in names:
                stride = inner if ranks == 1 else stride
                ranks *= size
            inner *= size
        return Group(ranks, stride)

    def exposed(self, op: str, name: str, nbytes: float) -> float:
        """Seconds of a collective over one mesh dim that computation does not hide."""
        sent, data = self.hidden
        return self.collective(op, (name,), nbytes) * (1 - (data if name == "dp" else sent))

    def op(
        self, value: Value, operands: Sequence[TensorType], results: Sequence[TensorType]
    ) -> float:
        """Seconds of what stands on a rank for the node that makes a value."""
        product = self.kernels.products.get(value)
        if product is not None:
            return self._product(product, *operands)
        return chains(self.machine, self._moved(value, operands, results))

    def held(
        self, value: Value, operands: Sequence[TensorType], results: Sequence[TensorType]
    ) -> float:
        """Bytes that a chain has in hand where it writes a value."""
        writes = value in self.kernels.writes
        return self._moved(value, operands, results) if writes else 0.0

    def _moved(
        self, value: Value, operands: Sequence[TensorType], results: Sequence[TensorType]
    ) -> float:
        reads = self.kernels.reads.get(value, ())
        moved = sum(share * t.nbytes for share, t in zip(reads, operands, strict=False))
        return moved + (results[0].nbytes if value in self.kernels.writes else 0)

    def _product(self, product: Product, first: TensorType, second: TensorType) -> float:
        *rows, m, k = first.shape
        n = second.shape[-1]
        batch, size = math.prod(rows), first.nbytes // first.size
        if product.kind == "plain":
            return batch * matmul(self.machine, m, k, n, first.dtype, size)
        if product.kind == "grouped":
            _, wide, deep = sorted((m, k, n))
            each = max(batch / product.experts, 1)
            return product.experts * matmul(self.machine, each, wide, deep, first.dtype, size)
        constants = self.machine.constants
        whole = 2 * batch * m * k * n / self.machine.peak(first.dtype)
        return whole * product.share / constants.scores * constants.slow


def prices(program: Program, mesh: Mesh, cluster: Cluster) -> Prices:
    """Prices of a one-device program in primitives, and of what it is lowered to on a mesh."""
    return Prices(mesh, machine(cluster), kernels(program))


def walk(
    program: Program, times: int = 1, scope: str = ""
) -> Iterator[tuple[Program, Node, int, str]]:
    """Every node with how often one step runs it, and the scan that holds it."""
    for node in program.nodes:
        if node.body is not None:
            length = node.number("length")
            yield from walk(node.body, times * length, node.outputs[0])
        else:
            yield program, node, times, scope


def estimate(
    program: Program, prices: Prices, stands_for: Mapping[Value, Value] | None = None
) -> Estimate:
    """Cost of one forward and backward step.

    `stands_for` says which value of the one-device program a value of the program is; one that
    it leaves out is the value of its own name.
    """
    out = Estimate(hidden=prices.hidden)
    out.host_s = prices.machine.constants.layer_s * prices.kernels.layers
    stands_for = stands_for or {}
    held = 0.0
    gathered: dict[str, int] = {}
    for holder, node, times, scope in walk(program):
        operands = [holder.types[v] for v in node.inputs]
        results = [holder.types[v] for v in node.outputs]
        value = (scope, node.outputs[0])
        value = stands_for.get(value, value)
        if lookup(node.op).kind != "collective":
            out.compute_s += prices.op(value, operands, results) * times
            held = max(held, prices.held(value, operands, results))
            continue
        names = mesh_dims(cast("str | tuple[str, ...]", node.attrs["mesh_dim"]))
        big = max(operands[0].nbytes, results[0].nbytes)
        seconds = prices.collective(node.op, names, big)
        if node.op not in SILENT:
            out.uses.append(Use(node, names, big, seconds, times, scope))
            out.comm_bytes += big * times
        if "dp" not in names:
            out.sent_s += seconds * times
            held = max(held, big)
            continue
        out.data_s += seconds * times
        if node.op == "all_gather":
            whole = gathered.get(scope, 0)
            gathered[scope] = whole + big if scope else max(whole, big)
    for item in program.inputs:
        if item.role == "param":
            out.numbers += item.type.size
            out.parameters += item.type.nbytes
            out.optimizer += adam_bytes(item.type)
    out.gradients = sum(program.types[o.value].nbytes for o in program.outputs if o.role == "grad")
    out.activations = _kept(program, prices.kernels) + round(
        held + max(gathered.values(), default=0)
    )
    return out


def adam_bytes(parameter: TensorType) -> int:
    """Bytes that Adam keeps of a parameter: two moments of its dtype, and where that is narrower
    than float32, these and a copy of the parameter in float32."""
    wide = max(parameter.nbytes, 4 * parameter.size)
    return 2 * wide + (wide if wide > parameter.nbytes else 0)


def _kept(program: Program, found: Kernels) -> int:
    """Bytes of the activations that are kept for backward on a rank."""
    holders = {"": program}
    holders |= {n.outputs[0]: n.body for _, n in program.walk() if n.body is not None}
    total = 0
    for (scope, name), times in found.kept.items():
        held = holders[scope].types.get(name) if scope in holders else None
        total += held.nbytes * times if held is not None else 0
    return total
