"""Captures the patched model as it runs on one rank: local tensors and collectives."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.func import functional_call, functionalize
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta
from torch.testing._internal.distributed.fake_pg import FakeStore

from synthesis.execute.job import ExecuteError, Job
from synthesis.execute.load import make_inputs, open_target, patched_model
from verifier.frontend.inputs import find_inputs
from verifier.frontend.materialize import fake_mode, parameters_on_meta, take_buffers, to_fake
from verifier.frontend.trace import Traced, named_outputs
from verifier.ir.types import Mesh

COLLECTIVE = "_c10d_functional."
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")


@dataclass(frozen=True)
class RankGraph:
    """The joint graph of one rank: local parameters, buffers and inputs to outputs and local
    gradients."""

    rank: int
    module: GraphModule
    traced: Traced
    placements: dict[str, tuple[int, int] | None]
    """For each parameter that tp splits, (dim, parts): each of `parts` equal blocks of that dim is
    split over the ranks. None: whole on every rank."""
    buffers: dict[str, torch.Tensor]
    """Values that the constructor gives the buffers."""
    mesh: Mesh
    groups: dict[str, str]
    """Name of a process group -> mesh dim."""

    @property
    def text(self) -> str:
        return self.module.code

    def collectives(self) -> dict[str, int]:
        """Number of calls by collective, waits left out."""
        names = (str(n.target) for n in self.traced.graph.nodes if n.op == "call_function")
        found = (n.removeprefix(COLLECTIVE).split(".")[0] for n in names if COLLECTIVE in n)
        return dict(Counter(n for n in found if n != "wait_tensor"))


def capture_rank(job: Job, tree: Path, rank: int) -> RankGraph:
    """Trace forward and backward of the patched model on one rank of its tp group.

    The patch must be for tensor parallelism alone (no fully_shard). Runs under a fake process
    group and on fake tensors; the process must not have another group.
    """
    size = job.plan.tp_size
    name = job.plan.tp or "tp"
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=(name,))
        target, _ = open_target(job.request)
        with parameters_on_meta():
            built, parallelize = patched_model(job, tree)
        model: Any = built.float().eval()
        buffers = take_buffers(model)
        found = find_inputs(job.request, target, model)
        with fake_mode():
            to_fake(model)
            model = parallelize(model, mesh)
            inputs = make_inputs(found, job.seed, torch.float32)
            module, traced = _trace(model, inputs, target.result_names)
        params = dict(model.named_parameters())
        return RankGraph(
            rank,
            module,
            traced,
            {k: _split(p) for k, p in params.items()},
            buffers,
            Mesh(((name, size),)),
            {mesh.get_group().group_name: name},
        )
    finally:
        dist.destroy_process_group()


def _trace(
    model: Any, inputs: dict[str, torch.Tensor], result_names: tuple[str, ...]
) -> tuple[GraphModule, Traced]:
    params: dict[str, Any] = dict(model.named_parameters())
    buffers: dict[str, Any] = {k: _local(b) for k, b in model.named_buffers()}
    local = {k: _local(p).detach() for k, p in params.items()}
    named, loss = named_outputs(model(**inputs), result_names)
    cotangents = {n: torch.ones_like(_local(v)) for n, v in named if loss is None and _floats(v)}
    outputs: list[tuple[str, str]] = []

    def joint(
        local: dict[str, Any],
        buffers: dict[str, Any],
        inputs: dict[str, Any],
        cotangents: dict[str, Any],
    ) -> list[Any]:
        whole = {name: _whole(value, params[name]) for name, value in local.items()}
        state = {**whole, **{k: _whole_buffer(v, model, k) for k, v in buffers.items()}}
        result = functional_call(model, state, kwargs=inputs, tie_weights=True)
        named, loss = named_outputs(result, result_names)
        values = {name: _local(value) for name, value in named}
        roots = [values[loss]] if loss else [values[n] for n in cotangents]
        given = [torch.ones_like(roots[0])] if loss else list(cotangents.values())
        grads: Any = torch.autograd.grad(roots, list(whole.values()), given, allow_unused=True)
        outputs[:] = [("loss" if n == loss else "output", n) for n in values]
        out = list(values.values())
        for (name, value), grad in zip(whole.items(), grads, strict=True):
            if isinstance(grad, DTensor):
                grad = grad.redistribute(placements=value.placements).to_local()
            if grad is not None:
                outputs.append(("grad", name))
                out.append(grad)
        return out

    given = (local, buffers, inputs, cotangents)
    graph = _without_writes(make_fx(joint, record_stack_traces=True)(*given), given)
    traced = Traced(graph.graph, graph)
    kinds: list[tuple[dict[Node, str], str]] = [
        *((traced.params, k) for k in local),
        *((traced.buffers, k) for k in buffers),
        *((traced.inputs, k) for k in inputs),
        *((traced.tangents, k) for k in cotangents),
    ]
    nodes = list(graph.graph.nodes)
    for node, (table, key) in zip((n for n in nodes if n.op == "placeholder"), kinds, strict=True):
        table[node] = key
    returned: Any = nodes[-1].args[0]
    traced.outputs += [(*o, v) for o, v in zip(outputs, returned, strict=True)]
    return graph, traced


def _split(param: Any) -> tuple[int, int] | None:
    placement: Any = param.placements[0] if isinstance(param, DTensor) else Replicate()
    if placement.is_replicate():
        return None
    return placement.dim, int(getattr(placement, "split_factor", 1))


def _without_writes(graph: GraphModule, given: tuple[dict[str, Any], ...]) -> GraphModule:
    """The same graph with writes into tensors (DTensor masks its lookups so) made new tensors."""
    flat = [value for group in given for value in group.values()]

    def run(*args: Any) -> Any:
        return Interpreter(graph).run(*args, enable_io_processing=False)

    with preserve_node_meta():
        return make_fx(functionalize(run, remove="mutations"))(*flat)


def _floats(value: Any) -> bool:
    return value.is_floating_point() and value.requires_grad


def _whole(value: Any, param: Any) -> Any:
    """The leaf that stands for `param`, over the local piece `value`."""
    if isinstance(param, DTensor):
        value = DTensor.from_local(
            value,
            param.device_mesh,
            param.placements,
            run_check=False,
            shape=param.shape,
            stride=param.stride(),
        )
    return value.detach().requires_grad_(param.requires_grad)


def _whole_buffer(value: Any, model: Any, name: str) -> Any:
    held = model.get_buffer(name)
    if isinstance(held, DTensor):
        if not held.placements[0].is_replicate():
            raise ExecuteError(f"the buffer {name} is split over the ranks, which is not covered")
        return DTensor.from_local(value, held.device_mesh, held.placements, run_check=False)
    return value


def _local(value: Any) -> Any:
    return value.to_local() if isinstance(value, DTensor) else value


def differences(first: RankGraph, other: RankGraph) -> list[tuple[str, str]]:
    """Lines in which two ranks differ.

    Raises:
        ValueError: they differ in more than integer constants, so one text cannot stand for both.
    """
    pairs = list(zip(first.text.split("\n"), other.text.split("\n"), strict=False))
    if first.text.count("\n") != other.text.count("\n"):
        raise ValueError(f"ranks {first.rank} and {other.rank} run different programs")
    found = [(a.strip(), b.strip()) for a, b in pairs if a != b]
    for a, b in found:
        if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
            raise ValueError(f"ranks {first.rank} and {other.rank} differ: {a!r} and {b!r}")
    return found
