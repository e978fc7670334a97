"""Models whose lists of layers are captured as one block in part, or in kinds that alternate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardproof.agent.actions.models import Parallelize
from shardproof.agent.pipeline.pipeline import job_of, parallelize
from shardproof.agent.run.run import Run
from shardproof.synthesis.frontends.torch.request import CaptureRequest, InputSpec
from shardproof.verifier.kernel.program.types import Mesh
from shardproof.verifier.text.parser import parse_text

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.xdist_group("gloo")]

LISTS = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, gated):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.gated = gated

    def forward(self, x):
        h = self.up(x)
        return x + self.down(h.sigmoid() if self.gated else h.relu())


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.ModuleList(Block(i == 0) for i in range(5))
        self.b = nn.ModuleList(Block(i % 2 == 1) for i in range(4))

    def forward(self, x):
        for layer in self.a:
            x = layer(x)
        for layer in self.b:
            x = layer(x)
        return x.square().mean()
"""
NESTED = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Stage(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(count))
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([Stage(4), Stage(3)])

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x.square().mean()
"""
TABLE = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, table):
        half = table[:, :4]
        return x + self.down(self.up(x * torch.cat([half, half], -1)).relu())


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 8)
        self.table.weight.requires_grad_(False)
        self.h = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.h:
            x = block(x, self.table.weight)
        return x.square().mean()
"""
NUMBERED = """import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = 4
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            m(x).view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for m in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c)
        return x + self.o(y)


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): Block() for i in range(4)})
        self.out = nn.Linear(16, 8)

    def forward(self, x):
        for block in self.layers.values():
            x = block(x)
        return self.out(x)
"""
GEMMA2: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}

TWO = Mesh.of(tp=2)


def parallel(request: CaptureRequest, out: Path, mesh: Mesh = TWO) -> str:
    """The patch that was proved."""
    words = ",".join(f"{name}={size}" for name, size in mesh.dims)
    asked = Parallelize(target=request.target, mesh=words)
    outcome = parallelize(Run([]), job_of(asked, out, request))
    assert outcome.verdict == "proved"
    return (out / "patch.diff").read_text()


def test_lists_that_are_rolled_in_part_are_split_layer_by_layer(tmp_path: Path) -> None:
    (tmp_path / "lists.py").write_text(LISTS)
    inputs = (InputSpec("x", (8, 8)),)
    request = CaptureRequest(f"{tmp_path / 'lists.py'}:M", {}, inputs=inputs)
    diff = parallel(request, tmp_path / "out")
    assert '"a.*.up": ColwiseParallel' in diff
    assert '"b.*.down": RowwiseParallel' in diff


def test_of_stages_that_end_in_whole_layers_the_blocks_are_split(tmp_path: Path) -> None:
    (tmp_path / "nested.py").write_text(NESTED)
    inputs = (InputSpec("x", (8, 8)),)
    request = CaptureRequest(f"{tmp_path / 'nested.py'}:M", {}, inputs=inputs)
    diff = parallel(request, tmp_path / "out")
    for stage in (0, 1):
        assert f'"stages.{stage}.blocks.*.mlp.0": ColwiseParallel' in diff
        assert f'"stages.{stage}.blocks.*.mlp.2": RowwiseParallel' in diff


def test_a_dict_of_numbered_layers_is_rolled_and_its_last_layer_with_the_others(
    tmp_path: Path,
) -> None:
    """No norm stands between the last layer and the head: one reshapes the gradient, the other
    back. Attention and the reshape that joins its heads stand on one line."""
    (tmp_path / "numbered.py").write_text(NUMBERED)
    inputs = (InputSpec("x", (4, 8, 16)),)
    request = CaptureRequest(f"{tmp_path / 'numbered.py'}:M", {}, inputs=inputs)
    diff = parallel(request, tmp_path / "out")
    assert '"layers.*.q": ColwiseParallel' in diff
    assert ".transpose(1, 2).reshape(b, t, -1)" in diff


@pytest.mark.parametrize("mesh", [TWO, Mesh.of(dp=2)], ids=str)
def test_what_a_block_takes_from_a_parameter_of_another_module_is_rolled_with_it(
    tmp_path: Path, mesh: Mesh
) -> None:
    (tmp_path / "table.py").write_text(TABLE)
    inputs = (InputSpec("x", (4, 8, 8)),)
    request = CaptureRequest(f"{tmp_path / 'table.py'}:M", {}, inputs=inputs)
    assert "fully_shard" in parallel(request, tmp_path / "out", mesh) or mesh == TWO


def test_norms_after_sums_over_ranks_are_proved_in_rolled_layers(tmp_path: Path) -> None:
    request = CaptureRequest("hf:Gemma2ForCausalLM", GEMMA2, batch=2, seq=8)
    diff = parallel(request, tmp_path / "out")
    assert '.o_proj": RowwiseParallel' in diff
    assert '.down_proj": RowwiseParallel' in diff


def test_zeros_that_layers_share_are_no_gradients_where_none_is_asked() -> None:
    from shardproof.synthesis.execute.patched import _reached

    program = parse_text(
        'program p\n param %a: f32[2] "layers.0.a"\n param %b: f32[2] "layers.1.b"\n'
        " %0 = full {shape=[1], value=0.0, dtype=f32}\n %z = expand %0 {shape=[2]}\n"
        ' %g = neg %b\n return grad %z "layers.0.a", grad %g "layers.1.b"\n'
    )
    both = _reached(program, ("layers.0.a", "layers.1.b"))
    assert [o.path for o in both.outputs] == ["layers.1.b"]
    assert _reached(program, ()) == program
