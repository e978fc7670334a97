"""Plans that split what modules hold themselves, and read what is whole beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shardproof.agent.pipeline.pipeline import kinds
from shardproof.synthesis.emit import Patch, emit
from shardproof.synthesis.emit.patch import patch as make_patch
from shardproof.synthesis.execute.job import collect_facts
from shardproof.synthesis.execute.reading import read_patch
from shardproof.synthesis.frontends.torch.capture import capture
from shardproof.synthesis.frontends.torch.errors import CaptureError
from shardproof.synthesis.frontends.torch.request import CaptureRequest
from shardproof.synthesis.hardware import load
from shardproof.synthesis.planner.planner import Asked, Synthesis, synthesize
from shardproof.synthesis.repair.diagnosis import verify
from shardproof.verifier.kernel.contract import ContractError
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.problem import Problem
from shardproof.verifier.verdict import Counterexample, Proof, Verdict

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

SOURCE = '''"""Scans, one head of keys for all queries, and sums of products."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize


class Scan(nn.Module):
    """A state for each channel: what it is updated by is worked out of all channels."""

    def __init__(self, n=8, state=2):
        super().__init__()
        self.state = state
        self.up = nn.Linear(n, 4 * n, bias=False)
        self.steps = nn.Linear(2 * n, 1 + 2 * state, bias=False)
        self.pace = nn.Linear(1, 2 * n)
        self.decay = nn.Parameter(torch.randn(2 * n, state))
        self.skip = nn.Parameter(torch.ones(2 * n))
        self.down = nn.Linear(2 * n, n, bias=False)

    def forward(self, x):
        x, gate = self.up(x).chunk(2, dim=-1)
        pace, b, c = self.steps(x).split([1, self.state, self.state], dim=-1)
        pace = F.softplus(self.paced(pace)).unsqueeze(-1)
        kept, new = torch.exp(-pace * self.decay.exp()), pace * b.unsqueeze(2) * x.unsqueeze(-1)
        h, out = new[:, 0], []
        for t in range(x.shape[1]):
            h = kept[:, t] * h + new[:, t]
            out.append(h @ c[:, t].unsqueeze(-1))
        y = torch.stack(out, 1).squeeze(-1) + self.skip * x
        return self.down(y * F.silu(gate))

    def paced(self, pace):
        return pace @ self.pace.weight.t() + self.pace.bias


class Called(Scan):
    """A linear reads what the steps read, as a module."""

    def paced(self, pace):
        return self.pace(pace)


class Queries(nn.Module):
    """Attention whose queries share one head of keys and values."""

    def __init__(self, n=8, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.kv = nn.Linear(n, n), nn.Linear(n, 2 * n // heads)
        self.out = nn.Linear(n, n)

    def forward(self, x):
        q = self.q(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
        k, v = self.kv(x).chunk(2, dim=-1)
        y = (q @ k.unsqueeze(1).transpose(-1, -2)).softmax(-1) @ v.unsqueeze(1)
        return self.out(y.transpose(1, 2).flatten(2))


class Merged(nn.Module):
    """Attention that lays the heads of all rows side by side before it takes q, k and v apart."""

    def __init__(self, n=8, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(n, 3 * n), nn.Linear(n, n)

    def forward(self, x):
        b, t, _ = x.shape
        qkv = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, b * self.heads, t, -1).unbind(0)
        y = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.out(y.view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, -1))


class Masked(nn.Module):
    """A mask of tokens between the linears of a pair, and between its convolutions."""

    def __init__(self, n=8):
        super().__init__()
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)
        self.wide, self.narrow = nn.Conv1d(n, 2 * n, 3, padding=1), nn.Conv1d(2 * n, n, 1)

    def forward(self, x):
        mask = (x[..., :1] > 0).to(x.dtype)
        x = x + self.down(torch.relu(self.up(x)) * mask)
        mask = mask.transpose(1, 2)
        return self.narrow(torch.relu(self.wide(x.transpose(1, 2)) * mask))


class Unit(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, weight):
        return F.normalize(weight, dim=self.dim)


class Normed(nn.Module):
    """Weights of unit length, and a scale for each hidden unit."""

    def __init__(self, n=8):
        super().__init__()
        self.up, self.down = nn.Linear(n, 2 * n, bias=False), nn.Linear(2 * n, n, bias=False)
        parametrize.register_parametrization(self.up, "weight", Unit(-1))
        parametrize.register_parametrization(self.down, "weight", Unit(0))
        self.scale = nn.Parameter(torch.ones(2 * n))

    def forward(self, x):
        return self.down(F.silu(self.up(x) * self.scale))


class Made(nn.Module):
    """Convolutions whose weight a hook, or a parametrization, makes of a direction and lengths."""

    def __init__(self, n=8):
        super().__init__()
        self.wide = nn.utils.weight_norm(nn.Conv1d(n, 2 * n, 3, padding=1), dim=None)
        self.narrow = nn.utils.parametrizations.weight_norm(nn.Conv1d(2 * n, n, 1))
        self.up = nn.utils.weight_norm(nn.ConvTranspose1d(n, 2 * n, 2, 2))
        self.down = nn.utils.weight_norm(nn.ConvTranspose1d(2 * n, n, 2, 2))

    def forward(self, x):
        x = self.narrow(torch.relu(self.wide(x.transpose(1, 2))))
        return self.down(torch.tanh(self.up(x)))


class Unit1d(nn.Conv1d):
    def forward(self, x):
        return F.conv1d(x, self.weight / self.weight.square().sum((1, 2), keepdim=True).sqrt())


class Alone(nn.Module):
    """Convolutions that make their weight themselves: a rank has outputs of these, no inputs."""

    def __init__(self, n=8):
        super().__init__()
        self.wide, self.narrow = Unit1d(n, 2 * n, 1, bias=False), Unit1d(2 * n, n, 1, bias=False)

    def forward(self, x):
        return self.narrow(torch.relu(self.wide(x.transpose(1, 2))))


class Sum(nn.Module):
    """No product is the last: what two give is added, with a shift."""

    def __init__(self, n=8):
        super().__init__()
        self.own, self.near = nn.Linear(n, 2 * n, bias=False), nn.Linear(n, 2 * n, bias=False)
        self.shift = nn.Parameter(torch.zeros(2 * n))

    def forward(self, x):
        return torch.relu(self.own(x) + self.near(x.mean(1, keepdim=True)) + self.shift)


class Centred(nn.Module):
    """Batch norm of 12 numbers a channel: no power of two."""

    def __init__(self, n=3):
        super().__init__()
        self.up, self.norm = nn.Conv1d(n, n, 1), nn.BatchNorm1d(n)

    def forward(self, x):
        return self.norm(self.up(x)[..., :3])


class Activated(nn.BatchNorm1d):
    """A norm with code of its own, and an activation behind it."""

    def forward(self, x):
        mean, variance = self.running_mean, self.running_var
        train = self.training
        if train:
            self.num_batches_tracked.add_(1)
        x = F.batch_norm(x, mean, variance, self.weight, self.bias, train, self.momentum, self.eps)
        return F.silu(x)


class CentredAndActivated(Centred):
    def __init__(self):
        super().__init__()
        self.norm = Activated(3)


class Bent(nn.Module):
    """Functions that DTensors have no rules for, around a tensor that it makes."""

    def __init__(self, n):
        super().__init__()
        self.scale, self.bend = nn.Parameter(torch.ones(n)), nn.PReLU(n)

    def forward(self, x):
        y = F.leaky_relu(x * self.scale) + torch.arange(x.shape[-1]) / 8
        return F.elu(self.bend(y.transpose(1, 2)).transpose(1, 2)) + F.hardtanh(y)


class Whole(nn.Module):
    """A pair beside modules that stay whole."""

    def __init__(self, n=8):
        super().__init__()
        self.bent, self.norm = Bent(n), nn.RMSNorm(n)
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)

    def forward(self, x):
        x = self.bent(x)
        return x + self.down(torch.relu(self.up(self.norm(x)))) + self.norm.weight


class Flat(nn.Module):
    """Convolutions around a padding whose backward is indexed, and channels that are flattened."""

    def __init__(self, n=8):
        super().__init__()
        self.wide, self.narrow = nn.Conv1d(3, n, 3), nn.Conv1d(n, 4, 3)
        self.last, self.out = nn.Conv1d(4, n, 1), nn.Linear(8 * n, n)
        self.pad = nn.ReflectionPad1d(1)

    def forward(self, x):
        x = self.narrow(self.pad(torch.relu(self.wide(self.pad(x)))))
        x = torch.relu(self.last(x))
        x = x.view(-1, 8 * 8)
        return self.out(x)


class Around(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm = nn.LayerNorm(n)

    def forward(self, x, inner):
        return x + inner(self.norm(x))


class Residual(nn.Module):
    """Two that are alike are called with functions that are made for the call."""

    def __init__(self, n=8):
        super().__init__()
        self.around = nn.ModuleList([Around(n), Around(n)])
        self.up, self.down = nn.Linear(n, 2 * n), nn.Linear(2 * n, n)

    def forward(self, x):
        x = self.around[0](x, lambda x: x.sin())
        return self.around[1](x, lambda x: self.down(torch.relu(self.up(x))))


class Added(nn.Module):
    """A result that a list of modules, and code elsewhere, write into."""

    def __init__(self, n=8):
        super().__init__()
        self.layers = nn.ModuleDict({"up": nn.Linear(n, 2 * n), "down": nn.Linear(2 * n, n)})
        self.acts = nn.ModuleList([nn.ReLU(inplace=True)])

    def part(self, x):
        return self.layers["down"](self.acts[0](self.layers["up"](x)))

    def forward(self, x):
        y = self.part(x)
        return torch.nn.functional.relu_(y[:, 1:])


def example_inputs():
    return {"x": torch.randn(4, 3, 8)}
'''


@dataclass(frozen=True)
class Planned:
    request: CaptureRequest
    made: Synthesis
    patch: Patch

    @property
    def styles(self) -> dict[str, str]:
        return {m.path: m.style for m in self.made.plan.modules}

    def edited(self, old: str, new: str) -> Planned:
        """With one text of what the patch writes replaced."""
        ((path, (before, after)),) = self.patch.files.items()
        assert old in after
        files = {path: (before, after.replace(old, new))}
        other = make_patch(files, self.patch.obligations, self.patch.entry)
        return replace(self, patch=replace(other, function=self.patch.function))

    def judged(self) -> Verdict:
        captured, made = capture(self.request), self.made
        planned = made.lowered.contract
        one = made.sequential
        found = read_patch(
            self.request, self.patch, made.plan, captured.facts, one, planned, captured.consts
        )
        return verify(Problem(one, found.program, found.contract, consts=captured.consts))


def planned(folder: Path, name: str, mesh: Mesh, source: str = SOURCE) -> Planned:
    path = folder / "held.py"
    path.write_text(source)
    request = CaptureRequest(f"{path}:{name}")
    captured = capture(request)
    made = synthesize(Asked(captured.program, mesh, load("h100"), kinds(captured)))
    return Planned(request, made, emit(collect_facts(request), made.plan, folder))


TP, BOTH = Mesh.of(tp=2), Mesh.of(dp=2, tp=2)
SCAN = {"up": "fused_column", "steps": "row", "pace": "column", "": "pieces", "down": "row"}
STYLES = {
    "Scan": SCAN,
    "Called": SCAN,
    "Queries": {"q": "column", "kv": "replicate", "out": "row"},
    "Merged": {"qkv": "fused_column", "out": "row"},
    "Masked": {"up": "column", "down": "row", "wide": "column", "narrow": "row"},
    "Normed": {"up": "product", "": "pieces", "down": "product"},
    "Made": {"wide": "column", "narrow": "row", "up": "column", "down": "row"},
    "Sum": {"own": "column", "near": "column", "": "pieces"},
    "Whole": {"up": "column", "down": "row"},
    "Flat": {"wide": "column", "narrow": "row", "last": "column", "out": "row"},
    "Residual": {"up": "column", "down": "row"},
    "Added": {"layers.up": "column", "layers.down": "row"},
}


DOUBLED = """    from shardproof.runtime import summed_over

    summed_over(model.bent, tp)
"""
"""A wrong line: each rank has the whole gradient of a module that stays whole."""


OWN_LENGTHS = """"wide": ChannelParallel(
            {"weight": 0}, output_layouts=(own := torch.distributed.tensor.Shard(1))
        ),
        "narrow": ChannelParallel({"weight": 1}, input_layouts=own),"""
"""Wrong lines: each rank divides its piece of a weight by the length of that piece."""


@pytest.mark.parametrize("mesh", [TP, BOTH], ids=str)
@pytest.mark.parametrize("name", STYLES)
def test_all_that_can_be_is_split_and_the_patch_is_proved(
    name: str, mesh: Mesh, tmp_path: Path
) -> None:
    found = planned(tmp_path, name, mesh)
    assert found.styles == STYLES[name]
    assert found.made.plan.useful
    assert found.made.plan.output == ("S(2)" if name == "Sum" else "R")
    verdict = found.judged()
    assert isinstance(verdict, Proof), verdict


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Scan", "SharedOutput(RowwiseParallel())", "RowwiseParallel()"),
        ("Called", "SharedInput(ColwiseParallel())", "ColwiseParallel()"),
        ("Called", "SharedOutput(RowwiseParallel())", "RowwiseParallel()"),
        ("Queries", '        "kv": SharedOutput(),\n', ""),
        ("Queries", "RowwiseParallel()", "SharedOutput(RowwiseParallel())"),
        ("Merged", "    model.heads //= tp.size()\n", ""),
        ("Made", 'original1": 1}', 'original1": 0}'),
        ("Alone", '"wide": ChannelParallel({"weight": 0}),', OWN_LENGTHS),
        ("Sum", "output_layouts=Shard(2)", "output_layouts=Shard(1)"),
        ("Sum", '    own_pieces(model, tp, {"shift": 0})\n', ""),
        ("Whole", "    replicate_rest(model, tp)\n", DOUBLED),
        (
            "Residual",
            "    replicate_rest(model, tp)\n",
            DOUBLED.replace("bent", "around[0].norm"),
        ),
        ("Flat", "x.view(x.size(0), -1)", "x.transpose(1, 2).reshape(x.size(0), -1)"),
        ("Flat", "        return self.out", "        x = x.flip(-1)\n        return self.out"),
    ],
)
def test_a_patch_that_leaves_a_part_out_is_not_proved(
    name: str, old: str, new: str, tmp_path: Path
) -> None:
    wrong = planned(tmp_path, name, TP).edited(old, new)
    try:
        verdict = wrong.judged()
    except (CaptureError, ContractError):
        return  # it does not run
    assert isinstance(verdict, Counterexample), verdict


def test_no_row_makes_a_weight_of_a_piece(tmp_path: Path) -> None:
    found = planned(tmp_path, "Alone", TP)
    assert found.styles == {"wide": "column"}
    assert isinstance(found.judged(), Proof)


SYNCED = '    synced_norms(model, mesh["dp"])\n'


@pytest.mark.parametrize("model", ["Centred", "CentredAndActivated"])
def test_statistics_of_a_batch_that_ranks_hold_together_are_proved(
    tmp_path: Path, model: str
) -> None:
    found = planned(tmp_path, model, Mesh.of(dp=2))
    assert isinstance(found.judged(), Proof)
    wrong = found.edited(SYNCED, "").judged()
    assert isinstance(wrong, Counterexample), wrong


def test_a_norm_whose_own_code_is_left_out_is_refuted(tmp_path: Path) -> None:
    plain = '    model.norm.__class__ = type("Plain", (type(model.norm), nn.BatchNorm1d), {})\n'
    plain += "    type(model.norm).forward = nn.BatchNorm1d.forward\n"
    found = planned(tmp_path, "CentredAndActivated", Mesh.of(dp=2))
    wrong = found.edited(SYNCED, plain + SYNCED).judged()
    assert isinstance(wrong, Counterexample), wrong


def test_only_results_that_are_written_into_are_tensors_of_their_own(tmp_path: Path) -> None:
    (_, new) = planned(tmp_path, "Added", TP).patch.files["held.py"]
    assert new.count("OwnOutput(") == 2
    (_, new) = planned(tmp_path, "Masked", TP).patch.files["held.py"]
    assert "OwnOutput(" not in new
