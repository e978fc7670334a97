"""In the backward another branch: torch._C._current_graph_task_id."""

import torch
import torch.nn.functional as F

from tests.attacks.blocks import Block, Split, ToRanks, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def part(self, x):
        import torch.utils.checkpoint as cp

        return cp.checkpoint(self.fn, x, use_reentrant=False, determinism_check="none")

    def fn(self, x):
        h = self.up(ToRanks.apply(x, self.g))
        back = torch._C._current_graph_task_id() != -1
        return F.linear(torch.tanh(h * 2 if back else h), self.down.weight)
