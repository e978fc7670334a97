"""Cross entropy with smoothed labels over the data."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRUE = "right"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp", "y=S(0)@dp"], "run": False}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 6)

    def forward(self, x, y):
        return {"loss": F.cross_entropy(self.fc(x), y, label_smoothing=0.1)}


def P(mesh):
    return DistributedDataParallel(M(), process_group=mesh.get_group())


def example_inputs():
    return {"x": torch.randn(4, 8), "y": torch.arange(4)}
