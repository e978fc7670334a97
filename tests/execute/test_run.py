"""Modules run on real processes, against one device: what a trace does not see is seen there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.actions.programs import Check
from shardproof.agent.check.command import decided
from shardproof.agent.run.run import Run
from shardproof.synthesis.execute.run import launcher, running
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.verifier.verdict import Counterexample, Proof, Trace, Unknown, Verdict, Witness

pytestmark = [
    pytest.mark.torch,
    pytest.mark.gloo,
    pytest.mark.slow,
    pytest.mark.xdist_group("gloo"),
]

HEAD = """
import random
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, group):
        t = t.clone()
        dist.all_reduce(t, group=group)
        return t

    @staticmethod
    def backward(ctx, d):
        return d, None


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, group):
        ctx.group = group
        return t.view_as(t)

    @staticmethod
    def backward(ctx, d):
        d = d.clone()
        dist.all_reduce(d, group=ctx.group)
        return d, None


class P(nn.Module):
    def __init__(self, tp_group):
        super().__init__()
        self.group = tp_group
        self.up = nn.Linear(8, 16 // tp_group.size())
        self.down = nn.Linear(16 // tp_group.size(), 8)

    def forward(self, x):
        h = torch.tanh(self.up(Copy.apply(x, self.group)))
        y = F.linear(h, self.down.weight)
{body}
        return y + self.down.bias


def example_inputs():
    return {{"x": torch.randn(4, 8)}}
"""
RIGHT = "        y = Sum.apply(y, self.group)"


def checked(folder: Path, body: str, run: bool | None = None) -> Verdict:
    file = folder / "mlp.py"
    file.write_text(HEAD.format(body=body))
    asked = Check(target=f"{file}:P", mesh="tp=2", against=f"{file}:M", repair_seconds=0, run=run)
    return decided(Run([]), asked)[0]


def test_a_right_module_is_proved_and_agrees(tmp_path: Path) -> None:
    assert isinstance(checked(tmp_path, RIGHT), Proof)


UNSEEN = {
    "an exception that only a trace raises": """
        try:
            y = y if bool(torch.isfinite(y).all()) else y
        except Exception:
            y = Sum.apply(y, self.group)""",
    "what a module of ours is called": """
        import sys
        if "shardproof.synthesis" in sys.modules:
            y = Sum.apply(y, self.group)""",
    "hooks that a trace registers": """
        if len(self._forward_hooks):
            y = Sum.apply(y, self.group)""",
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_module_that_reduces_where_it_is_traced_alone_is_not_proved(
    name: str, tmp_path: Path
) -> None:
    found = checked(tmp_path, UNSEEN[name].strip("\n"))
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Witness)
    assert "run on 2 processes" in found.witness.sizes
    assert found.witness.got != found.witness.expected


def test_without_a_run_such_a_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaptureError):
        checked(tmp_path, UNSEEN["hooks that a trace registers"].strip("\n"), run=False)


def test_a_rank_that_waits_for_ever_takes_the_proof_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardproof.synthesis.execute.run.running.PATIENCE_S", 3.0)
    body = f"""
        import os
        if "TORCHELASTIC_RUN_ID" not in os.environ or self.group.rank():
    {RIGHT}"""
    found = checked(tmp_path, body.strip("\n"))
    assert isinstance(found, Unknown)
    assert "rank 1 waits for others" in found.reason
    assert found.location is not None
    assert found.location.source.file == "mlp.py"


STEP = """

def build():
    model = nn.Sequential(M(), nn.Dropout(0.5))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def ranks():
    model, optimizer = build()
    return nn.parallel.DistributedDataParallel(model), optimizer


def step(model, optimizer, x):
    out = model(x)
    if dist.is_initialized() and out.sum().item() < 1e9:
        out = out * 2.0
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_step_that_differs_without_dropout_too_is_refuted(tmp_path: Path) -> None:
    """The trace refuses it: a number decides."""
    file = tmp_path / "mlp.py"
    file.write_text(HEAD.format(body=RIGHT) + STEP)
    asked = Check(
        target=f"{file}:ranks",
        mesh="dp=2",
        against=f"{file}:build",
        step="step",
        inputs=("x=f32[4,8]",),
        input_layout=("x=S(0)@dp",),
        repair_seconds=0,
    )
    found = decided(Run([]), asked)[0]
    assert isinstance(found, Counterexample)
    assert isinstance(found.witness, Witness)


def test_generators_that_ranks_must_seed_alike_are_named_with_the_line(tmp_path: Path) -> None:
    drop = "        y = F.dropout(y, 0.5, self.training)"
    file = tmp_path / "mlp.py"
    text = HEAD.format(body=f"{RIGHT}\n{drop}")
    file.write_text(
        text.replace(
            "return self.down(torch.tanh(self.up(x)))",
            "y = F.linear(torch.tanh(self.up(x)), self.down.weight)\n"
            "        return F.dropout(y, 0.5, self.training) + self.down.bias",
        )
    )
    asked = Check(target=f"{file}:P", mesh="tp=2", against=f"{file}:M", repair_seconds=0)
    found = decided(Run([]), asked)[0]
    assert isinstance(found, Proof)
    line = next(n for n, t in enumerate(file.read_text().splitlines(), 1) if t == drop)
    said = [a for a in found.assumptions if "`torch`" in a]
    assert said
    assert f"mlp.py:{line}" in said[0]


def test_a_module_that_cannot_be_joined_is_refuted_by_its_numbers(tmp_path: Path) -> None:
    body = f"{RIGHT}\n        y = y * torch.tensor([1.0, 2.0][self.group.rank()])"
    found = checked(tmp_path, body)
    assert isinstance(found, Counterexample)
    assert not isinstance(found.witness, Trace)


def test_another_run_goes_on_where_the_parent_of_processes_was_ended(tmp_path: Path) -> None:
    assert isinstance(checked(tmp_path, RIGHT), Proof)
    launcher.launcher().process.kill()
    launcher.launcher().process.wait()
    assert isinstance(checked(tmp_path, RIGHT), Proof)


IN_FLOAT32 = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(16, 8)
        self.up = nn.Linear(8, 8)

    def forward(self, ids, y):
        h = F.softmax(self.scaled(self.up(self.table(ids)).float()), -1)
        return F.cross_entropy(h.flatten(0, 1), y.flatten())

    def scaled(self, h):
        return h


class P(M):
    def __init__(self, tp_group):
        super().__init__()
        self.group = tp_group

    def scaled(self, h):
        return h * 3 / 3


def example_inputs():
    return {"ids": torch.randint(0, 16, (4, 8)), "y": torch.randint(0, 8, (4, 8))}
"""


def test_code_in_float32_may_differ_by_rounding_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "table.py"
    file.write_text(IN_FLOAT32)
    ran: list[Any] = []

    def measured(*given: Any) -> Any:
        found = rounding(*given)
        ran.extend(found)
        return found

    rounding = running._rounding
    monkeypatch.setattr(running, "_rounding", measured)
    asked = Check(target=f"{file}:P", mesh="tp=2", against=f"{file}:M", repair_seconds=0)
    assert isinstance(decided(Run([]), asked)[0], Proof)
    assert {name for (_, name), _ in ran} >= {"table.weight", "up.weight"}
    assert max(allowed for _, allowed in ran) < 1e-3


IN_BFLOAT16 = """
import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x))).square().mean()


def sharded(mesh):
    model = Trained()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def example_inputs():
    return {"x": torch.randn(4, 8)}
"""


def test_rounding_in_16_bits_is_allowed_for_and_told(tmp_path: Path) -> None:
    file = tmp_path / "mixed.py"
    file.write_text(IN_BFLOAT16)
    asked = Check(
        target=f"{file}:sharded",
        mesh="dp=2",
        against=f"{file}:Trained",
        input_layout=("x=S(0)@dp",),
        repair_seconds=0,
    )
    verdict = decided(Run([]), asked)[0]
    assert isinstance(verdict, Proof)
    assert any(str(a).endswith("taken for rounding in bfloat16.") for a in verdict.assumptions)


def test_what_a_trace_leaves_of_the_compiler_is_not_seen(tmp_path: Path) -> None:
    for asked in ('hasattr(torch.compile, "__wrapped__")', "torch.compile.__module__ != 'torch'"):
        wrong = f"{RIGHT}\n        y = y if {asked} else y * 2"
        assert isinstance(checked(tmp_path, wrong, run=False), Counterexample)


def test_a_compiler_that_computes_something_else_is_refuted(tmp_path: Path) -> None:
    body = (
        RIGHT
        + """
        def doubling(graph, inputs):
            return lambda *args: tuple(t * 2 for t in graph.forward(*args))
        y = torch.compile(torch.relu, backend=doubling)(y) - torch.relu(y) + y"""
    )
    assert isinstance(checked(tmp_path, body, run=True), Counterexample)
