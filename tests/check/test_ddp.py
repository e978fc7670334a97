"""DistributedDataParallel: proved where it averages what it should on two real processes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.kernel.program.types import Mesh
from tests.check.conftest import Case
from tests.check.gloo_world import answers

pytestmark = [pytest.mark.torch, pytest.mark.gloo]
pytest.importorskip("torch")

MakeCase = Callable[..., Case]
TEXT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.down = nn.Linear(6, 2)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x):
        return {"loss": (self.down(torch.tanh(self.up(x))) * self.scale).pow(2).mean()}


def example_inputs():
    return {"x": torch.randn(4, 4)}


def right(mesh):
    return DDP(Model(), process_group=mesh.get_group())


def right_over_all(mesh):
    return DDP(Model())


def right_in_a_mesh(mesh):
    return DDP(Model(), device_mesh=mesh)


def right_subclass(mesh):
    class Wrapped(DDP):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    return Wrapped(Model())


def right_finding_unused(mesh):
    return DDP(Model(), find_unused_parameters=True)


class Inside(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = DDP(Model())

    def forward(self, x):
        return self.model(x)


def right_inside(mesh):
    return Inside()


def hooked(hook):
    d = DDP(Model())
    d.register_comm_hook(None, hook)
    return d


def reduced(numbers, op=dist.ReduceOp.SUM):
    work = dist.all_reduce(numbers, op=op, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def right_hook_of_torch(mesh):
    return hooked(default_hooks.allreduce_hook)


def right_narrow_hook(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer().double().div_(2)).then(
        lambda future: future.value().float()))


def right_hook_that_divides_later(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer()).then(lambda f: f.value() / 2))


def hook_that_adds_up(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer()))


def hook_of_the_largest(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer(), dist.ReduceOp.MAX))


def hook_that_divides_twice(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer() / 2).then(lambda f: f.value() / 2))


def hook_of_a_part(mesh):
    def hook(state, bucket):
        bucket.buffer()[:2].mul_(2)
        return reduced(bucket.buffer().div_(2))

    return hooked(hook)


def hook_of_a_norm(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer() / bucket.buffer().norm()))


def hook_by_length(mesh):
    return hooked(lambda state, bucket: reduced(bucket.buffer() / bucket.buffer().numel()))


def hook_of_short_buckets(mesh):
    longest = max(p.numel() for p in Model().parameters())
    return hooked(lambda state, bucket: reduced(
        bucket.buffer() / (2 if len(bucket.buffer()) <= longest else 4)))


def no_sync_attribute(mesh):
    d = DDP(Model())
    d.require_backward_grad_sync = False
    return d


class NoSync(Inside):
    def forward(self, x):
        with self.model.no_sync():
            return self.model(x)


def no_sync(mesh):
    return NoSync()


def ignored(mesh):
    model = Model()
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["up.weight"])
    return DDP(model)


def ignored_attribute(mesh):
    model = Model()
    model._ddp_params_and_buffers_to_ignore = ["down.bias"]
    return DDP(model)


def other_forward(mesh):
    class Wrapped(DDP):
        def forward(self, *args, **kwargs):
            return self.module(*args, **kwargs)

    return Wrapped(Model())


def own_forward(mesh):
    d = DDP(Model())
    d.forward = lambda x: d.module(x)
    return d


class Bypass(Inside):
    def forward(self, x):
        return self.model.module(x)


def bypass(mesh):
    return Bypass()


def trained_late(mesh):
    model = Model()
    model.up.weight.requires_grad_(False)
    d = DDP(model)
    model.up.weight.requires_grad_(True)
    return d


class Unused(Model):
    def forward(self, x):
        h = torch.tanh(self.up(x))
        h = h if dist.get_rank() == 0 else h.detach()
        return {"loss": (self.down(h) * self.scale).pow(2).mean()}


def unused_on_one(mesh):
    return DDP(Unused())


def unused_found_on_one(mesh):
    return DDP(Unused(), find_unused_parameters=True)


def own_buffer(mesh):
    model = Model()
    model.scale = torch.full((2,), 1.0 - dist.get_rank() / 2)
    return DDP(model)


def own_buffer_later(mesh):
    d = DDP(Model())
    d.module.scale = torch.full((2,), 1.0 - dist.get_rank() / 2)
    return d
"""
NAMES = [line.split("(")[0][4:] for line in TEXT.splitlines() if line.startswith("def ")]
RIGHT = [n for n in NAMES if n.startswith("right")]
WRONG = [n for n in NAMES if not n.startswith("right")]
WRONG = [n for n in WRONG if n not in ("example_inputs", "hooked", "reduced")]
BY_BUCKETS = ("hook_of_a_part", "hook_of_a_norm", "hook_by_length", "hook_of_short_buckets")
INSIDE = ("right_inside", "no_sync", "bypass")
WAITS = ("unused_on_one",)
"""Rank 0 waits for ever for the others on gloo: not asked of it."""
ALIKE_BUFFERS = ("own_buffer", "own_buffer_later")


def _loaded(folder: Path) -> Any:
    path = folder / "ddp_models.py"
    path.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("ddp_models", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ddp_models"] = module
    spec.loader.exec_module(module)
    return module


def _agrees(models: Any, name: str, rank: int) -> bool:
    """Whether the gradients of the ranks are those of the whole batch on one device."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(0)
    one, x = models.Model(), torch.randn(4, 4)
    one(x)["loss"].backward()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    ranks = getattr(models, name)(mesh)
    held = {n.split("module.")[-1].removeprefix("model."): p for n, p in ranks.named_parameters()}
    with torch.no_grad():
        for name, p in one.named_parameters():
            held[name].copy_(p)
    ranks(x.chunk(2)[rank])["loss"].backward()
    found = {n: held[n].grad for n, _ in one.named_parameters()}
    return all(
        found[n] is not None and torch.allclose(found[n], p.grad, atol=1e-6)
        for n, p in one.named_parameters()
        if p.grad is not None
    )


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bool]:
    folder = tmp_path_factory.mktemp("ddp")
    models = _loaded(folder)
    asked = {
        n: lambda rank, n=n: _agrees(models, n, rank) for n in (*RIGHT, *WRONG) if n not in WAITS
    }
    found = answers(folder, asked)
    return {n: all(f[n] is True for f in found) for n in asked}


def _case(make_case: MakeCase, name: str) -> Case:
    made = make_case(Mesh.of(dp=2), input_layouts=["x=S(0)@dp"])
    (made.folder / "ddp.py").write_text(TEXT)
    made.target, made.against = f"ddp.py:{name}", "ddp.py:Model"
    if name in INSIDE:
        names = (f"{part}.{kind}" for part in ("up", "down") for kind in ("weight", "bias"))
        made.names = [(f"model.module.{n}", n) for n in names]
    return made


@pytest.mark.parametrize("name", RIGHT)
def test_right_on_gloo_and_proved(gloo: Mapping[str, bool], case: MakeCase, name: str) -> None:
    assert gloo[name]
    _case(case, name).proved()


@pytest.mark.parametrize("name", WRONG)
def test_wrong_on_gloo_and_not_proved(gloo: Mapping[str, bool], case: MakeCase, name: str) -> None:
    made = _case(case, name)
    if name in ALIKE_BUFFERS:
        # Rank 0's buffer is the model's: the real run is right, the rank's own numbers are lost.
        assert gloo[name]
        with pytest.raises(CaptureError, match="is not alike on rank 0 and rank 1"):
            made.check()
        return
    if name in WAITS:
        with pytest.raises(CaptureError, match=r"gives up\.weight no gradient"):
            made.check()
        return
    assert not gloo[name]
    if name == "unused_found_on_one":
        with pytest.raises(CaptureError, match=r"unused is nothing on rank 0, and up\."):
            made.check()
        return
    if name in BY_BUCKETS:
        with pytest.raises(CaptureError, match=r"a communication hook (runs|asks)"):
            made.check()
        return
    made.refuted()
