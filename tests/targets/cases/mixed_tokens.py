"""Layers over patches and over channels in turn (Tolstikhin et al. 2021)."""

import torch
from torch import nn


class Mixed(nn.Module):
    def __init__(self, norm: int, wide: int, kind: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(norm)
        if kind == "patches":
            self.up, self.down = nn.Conv1d(wide, 2 * wide, 1), nn.Conv1d(2 * wide, wide, 1)
        else:
            self.up, self.down = nn.Linear(wide, 2 * wide), nn.Linear(2 * wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(12, 16)
        self.patches = Mixed(16, 8, "patches")
        self.channels = Mixed(16, 16, "channels")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.channels(self.patches(self.embed(x)))


def example_inputs() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(4, 8, 12)}
