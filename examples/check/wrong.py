"""`ParallelMLP` with a mistake: every rank adds the bias before the parts are added up."""

import torch.nn.functional as F
from parallel import ParallelMLP
from regions import Copy, Reduce


class WrongMLP(ParallelMLP):
    def forward(self, x):
        h = Copy.apply(self.norm(x), self.group)
        h = F.relu(self.up(h))
        y = F.linear(h, self.down.weight, self.down.bias)
        y = Reduce.apply(y, self.group)
        return x + y
