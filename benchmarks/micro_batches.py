"""`python -m benchmarks.micro_batches`: what `check` costs for a batch in micro-batches.

A GPT accumulates its loss over the micro-batches of a batch, on one device, and is compared with
the GPT that is given the whole batch. Prints the verdict and the processor seconds by size, and
their ratio to those of width 16 with as many micro-batches.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.parallelize import ROOT

TEXT = """
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LAYERS, BATCH, TOKENS, PARTS = {sizes}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        y = self.n1(x)
        q, k, v = (w(y).view(b, t, 4, -1).transpose(1, 2) for w in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = nn.Embedding(2 * WIDTH, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH, bias=False)

    def forward(self, ids, labels):
        x = self.table(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class Accumulated(GPT):
    def forward(self, ids, labels):
        parts = zip(ids.chunk(PARTS), labels.chunk(PARTS))
        return sum(super(Accumulated, self).forward(i, t) / PARTS for i, t in parts)


def example_inputs():
    return {{n: torch.zeros(BATCH, TOKENS, dtype=torch.long) for n in ("ids", "labels")}}
"""


@dataclass(frozen=True)
class Size:
    width: int
    layers: int
    batch: int
    tokens: int
    """Of each sequence."""
    parts: int
    """Micro-batches."""


SIZES = (
    Size(16, 4, 8, 8, 8),
    Size(4096, 32, 8, 1024, 8),
    Size(16, 4, 64, 8, 64),
    Size(4096, 32, 64, 128, 64),
)


def measured(size: Size, folder: Path) -> tuple[str, float]:
    """The verdict of `check`, and its processor seconds, those of its processes too."""
    sizes = (size.width, size.layers, size.batch, size.tokens, size.parts)
    (folder / "gpt.py").write_text(TEXT.format(sizes=sizes))
    words = ["check", "gpt.py:Accumulated", "--against", "gpt.py:GPT", "--mesh", "dp=1"]
    words += ["--no-run", "--no-full-depth", "--mode", "train"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "shardproof", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    verdict = done.stdout.splitlines()[-1] if done.stdout else done.stderr
    return verdict, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    small: dict[int, float] = {}
    verdicts: list[str] = []
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            verdict, seconds = measured(size, Path(folder))
        verdicts.append(verdict)
        ratio = seconds / small.setdefault(size.parts, seconds)
        print(f"{size}: {verdict}, {seconds:.1f} s, ratio {ratio:.2f}", flush=True)
    return int(set(verdicts) != {"proved"})


if __name__ == "__main__":
    sys.exit(main())
