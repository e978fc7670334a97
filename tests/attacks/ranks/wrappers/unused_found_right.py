"""Parameters that are not used are looked for, and there are none."""

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
        return {"loss": F.cross_entropy(self.fc(x), y)}


def P(mesh):
    return DistributedDataParallel(M(), process_group=mesh.get_group(), find_unused_parameters=True)


def example_inputs():
    return {"x": torch.randn(4, 8), "y": torch.arange(4)}
