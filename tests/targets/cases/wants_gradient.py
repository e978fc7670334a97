"""In train mode the input is made to need a gradient, as code does that recomputes its layers."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x.requires_grad = True
        return self.down(torch.relu(self.up(x)))


def example_inputs() -> dict[str, torch.Tensor]:
    return {"x": torch.randn(4, 8)}
