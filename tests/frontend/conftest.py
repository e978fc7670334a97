"""Captures that several tests look at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


@pytest.fixture(autouse=True)
def nothing_is_granted(monkeypatch):
    """What a capture left out, or read whole, is so in its process: here several share one."""
    if "torch" in sys.modules:
        from shardproof.synthesis.frontends.torch import chosen

        monkeypatch.setattr(chosen, "_ON", [])


@pytest.fixture
def user_model(tmp_path):
    """Writes a file with a model whose parts a test gives; returns its target."""

    def write(forward: str, top: str = "", name: str = "model.py") -> str:
        lines = [
            "import torch",
            "import torch.nn as nn",
            *top.splitlines(),
            "class M(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            "        self.w = nn.Linear(4, 4)",
            "    def forward(self, x):",
            *(f"        {line}" for line in forward.splitlines()),
            "def example_inputs():",
            "    return {'x': torch.randn(2, 4)}",
        ]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return f"{path}:M"

    return write
