"""Captures the patched model as it runs on one rank: local tensors and collectives."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.func import functional_call
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from synthesis.execute.compare import named_outputs
from synthesis.execute.job import Job
from synthesis.execute.load import make_inputs, open_target, patched_model
from verifier.frontend.inputs import find_inputs

COLLECTIVE = "_c10d_functional."
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")


@dataclass(frozen=True)
class RankGraph:
    """The joint graph of one rank: (local parameters, inputs) to (outputs, local gradients)."""

    rank: int
    graph: GraphModule
    params: tuple[str, ...]
    """Names of the parameters, in the order of the first argument and of the gradients."""
    placements: dict[str, str]
    """Placement of each parameter on tp."""

    @property
    def text(self) -> str:
        return self.graph.code

    def collectives(self) -> dict[str, int]:
        """Number of calls by collective, waits left out."""
        names = (str(n.target) for n in self.graph.graph.nodes if n.op == "call_function")
        found = (n.removeprefix(COLLECTIVE).split(".")[0] for n in names if COLLECTIVE in n)
        return dict(Counter(n for n in found if n != "wait_tensor"))


def capture_rank(job: Job, tree: Path, rank: int) -> RankGraph:
    """Trace forward and backward of the patched model on one rank of its tp group.

    The patch must be for tensor parallelism alone (no fully_shard). Runs under a fake process
    group and on fake tensors; the process must not have another group.
    """
    size = job.plan.tp_size
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=(job.plan.tp or "tp",))
        target, _ = open_target(job.request)
        with torch.device("meta"):
            built, parallelize = patched_model(job, tree)
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with mode:
            model: Any = built.to_empty(device="cpu").eval()
            if hasattr(model, "tie_weights"):
                model.tie_weights()
            found = find_inputs(job.request, target, model)
            model = parallelize(model, mesh)
            return _trace(model, make_inputs(found, job.seed, torch.float32), rank)
    finally:
        dist.destroy_process_group()


def _trace(model: Any, inputs: dict[str, torch.Tensor], rank: int) -> RankGraph:
    params: dict[str, Any] = dict(model.named_parameters())
    local = {k: (p.to_local() if isinstance(p, DTensor) else p).detach() for k, p in params.items()}

    def joint(local: dict[str, Any], inputs: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        whole: dict[str, Any] = {}
        for name, value in local.items():
            param = params[name]
            if isinstance(param, DTensor):
                value = DTensor.from_local(
                    value,
                    param.device_mesh,
                    param.placements,
                    run_check=False,
                    shape=param.shape,
                    stride=param.stride(),
                )
            whole[name] = value.detach().requires_grad_()
        outputs = named_outputs(functional_call(model, whole, kwargs=inputs, tie_weights=True))
        scalars = [v for v in outputs.values() if v.ndim == 0 and v.is_floating_point()]
        loss = scalars[0] if scalars else sum(v.sum() for v in outputs.values())
        grads = torch.autograd.grad(cast(Any, loss), list(whole.values()))
        out: list[Any] = []
        for value, grad in zip(whole.values(), grads, strict=True):
            if isinstance(grad, DTensor):
                grad = grad.redistribute(placements=value.placements).to_local()
            out.append(grad)
        return {k: _local(v) for k, v in outputs.items()}, out

    graph = make_fx(joint)(local, inputs)
    placements = {
        k: str(p.placements[0]) if isinstance(p, DTensor) else "R" for k, p in params.items()
    }
    return RankGraph(rank, graph, tuple(params), placements)


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
