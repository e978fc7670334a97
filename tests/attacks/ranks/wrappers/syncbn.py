"""SyncBatchNorm under DDP."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from tests.attacks.blocks import example_inputs as example_inputs

TRUE = "right"
OPTS = {"mesh": "dp=2", "input_layout": ["x=S(0)@dp"]}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 8)
        self.bn = nn.BatchNorm1d(8)

    def forward(self, x):
        return {"loss": self.bn(self.up(x)).pow(3).mean()}


def P(mesh):
    return DDP(nn.SyncBatchNorm.convert_sync_batchnorm(M()), process_group=mesh.get_group())
