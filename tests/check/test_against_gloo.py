"""What was traced of the ranks is what they compute: modules run on two real processes, each rank
with numbers of its own, and the traced program simulated on the same numbers."""

from __future__ import annotations

import json
import os
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.refute.evaluate import simulate

pytestmark = [pytest.mark.torch, pytest.mark.gloo, pytest.mark.slow]

TEXT = """
class Swapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad.contiguous(), group=ctx.group)
        return out, None


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        dist.all_reduce(x, group=group)
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        dist.all_reduce(grad, group=ctx.group)
        return grad * x.cos(), None


class A(ParallelMLP):
    "The output of relu is saved, and then changed by a collective."

    def forward(self, x):
        h = F.relu(self.up(self.norm(x)))
        dist.all_reduce(h, group=self.group)
        h = h * h
        return x + F.linear(h, self.down.weight)


class B(ParallelMLP):
    "Collectives into views, and a gradient that two branches share is changed in one of them."

    def forward(self, x):
        h = self.up(self.norm(x))
        y = InPlace.apply(h.clone(), self.group) + h
        out = torch.zeros(2, 8, 8, dtype=x.dtype)
        dist.all_gather(list(out.unbind(0)), torch.cat([y, y]).detach(), group=self.group)
        dist.all_reduce(out[1, 2:5], op=dist.ReduceOp.MAX, group=self.group)
        return F.linear(y, self.down.weight) + out.sum((0, 1))


class C(ParallelMLP):
    def forward(self, x):
        h = torch.tanh(self.up(self.norm(x)))
        h = Swapped.apply(h, self.group)
        part = torch.empty(2, 8, dtype=x.dtype)
        dist.reduce_scatter(part, list(h.detach().chunk(2)), group=self.group)
        dist.broadcast(part, 1, group=self.group)
        z = Gather.apply(h[:2], self.group) + part.repeat(2, 1)
        return Scatter.apply(torch.cat([z, h]), self.group).square() @ self.down.weight.t()


class D(ParallelMLP):
    "Raw functional collectives, whose backwards are PyTorch's; and ranks that differ."

    def forward(self, x):
        import torch.distributed._functional_collectives as funcol

        h = torch.tanh(self.up(self.norm(x)))
        h = funcol.all_reduce(h, "sum", self.group) * (1 + dist.get_rank())
        h = h.relu_()
        if dist.get_rank() == 1:
            h = h - h[:1]
        return funcol.all_gather_tensor(h @ self.down.weight.t(), 0, self.group)


class E(ParallelMLP):
    "Messages: around a ring, and from one rank to the other alone, the later waited for first."

    def forward(self, x):
        h = torch.tanh(self.up(self.norm(x)))
        other = 1 - dist.get_rank()
        turned, pieces = torch.empty_like(h), torch.ones(3, 8, dtype=x.dtype)
        calls = [dist.P2POp(dist.isend, h.detach(), other)]
        calls += [dist.P2POp(dist.irecv, turned, other)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
        if other:
            dist.send(turned[1], other)
            dist.isend(h[2].detach() * 2, other).wait()
        else:
            first, second = dist.irecv(pieces[2], other), dist.irecv(pieces[0], other)
            second.wait()
            dist.barrier()
            first.wait()
        if other:
            dist.barrier()
        return (h * turned + pieces.sum(0)).square() @ self.down.weight.t()
"""
GLOO = ("A", "B", "C", "D", "E")


def child(rank: int, name: str, folder: Path) -> None:
    """Run the module on a rank of two, and keep what it gives."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from shardproof.synthesis.frontends.torch.target import import_file

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    model = getattr(import_file(folder / "wrong.py"), name)(mesh).double().eval()
    with np.load(folder / f"given-{rank}.npz") as held:
        given = {k: torch.from_numpy(held[k]) for k in held.files}
    with torch.no_grad():
        for path, p in model.named_parameters():
            p.copy_(given[path])
    x = given["x"].requires_grad_()
    y = model(x.clone())
    y.backward(given["cotangent.output"])
    out = {f"grad:{k}": p.grad for k, p in model.named_parameters()}
    out |= {"output:output": y.detach(), "grad:input:x": x.grad}
    zero = {f"grad:{k}": torch.zeros_like(p) for k, p in model.named_parameters()}
    arrays = {k: (zero[k] if v is None else v).detach().numpy() for k, v in out.items()}
    np.savez(folder / f"made-{rank}.npz", **arrays)


@pytest.mark.parametrize("name", GLOO)
def test_traced_as_it_runs(case, name):
    asked = case(Mesh.of(tp=2), config={}).write(TEXT, name)
    program = traced(asked)
    g = np.random.default_rng(3)
    values = [{i.name: g.standard_normal(i.type.shape) for i in program.inputs} for _ in range(2)]
    for rank, given in enumerate(values):
        np.savez(asked.folder / f"given-{rank}.npz", **given)
    started: list[int] = []
    for rank in range(2):
        pid = os.fork()
        if not pid:
            try:
                warnings.simplefilter("ignore")
                child(rank, name, asked.folder)
            except BaseException:  # noqa: BLE001  (told by the parent)
                (asked.folder / f"failed-{rank}").write_text(traceback.format_exc())
            finally:
                os._exit(0)
        started.append(pid)
    for pid in started:
        os.waitpid(pid, 0)
    failed = [p.read_text() for p in asked.folder.glob("failed-*")]
    assert not failed, failed[0]
    simulated = simulate(program, values)
    for rank in range(2):
        with np.load(asked.folder / f"made-{rank}.npz") as made:
            for out in program.outputs:
                got, want = simulated[rank][out.value], made[f"{out.role}:{out.path}"]
                assert np.allclose(got, want, rtol=1e-9, atol=1e-9), (rank, out.role, out.path)


def traced(asked):
    """The program of the ranks together."""
    from shardproof.synthesis.frontends.torch.ranks.request import RanksRequest
    from shardproof.synthesis.frontends.torch.ranks.result import load
    from shardproof.synthesis.frontends.torch.ranks.session import save_ranks
    from shardproof.synthesis.frontends.torch.ranks.together import together

    out = asked.folder / "traced"
    out.mkdir()
    request = RanksRequest(
        f"{asked.folder}/{asked.target}", f"{asked.folder}/model.py:MLP", asked.mesh
    )
    save_ranks(json.loads(json.dumps(request.to_json())), out, lambda _: None)
    captured = next(c for c in load(out) if "eval" in c.modes)
    read = together({n: r.compared for n, r in captured.numbered}, captured.texts)
    assert read.program is not None, read.findings
    return read.program
