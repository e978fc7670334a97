"""A model, and the same in a pipeline of two stages, as torch.distributed.pipelining runs it."""

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def example_inputs():
    return {"x": torch.randn(4, 4), "target": torch.randn(4, 4)}


def loss(y, target):
    return ((y - target) ** 2).mean()


class Layers(nn.Module):
    def __init__(self, first=0, last=4):
        super().__init__()
        self.layers = nn.ModuleDict({str(i): nn.Linear(4, 4) for i in range(first, last)})

    def forward(self, x):
        for layer in self.layers.values():
            x = torch.relu(layer(x))
        return x


class Model(Layers):
    def forward(self, x, target):
        return loss(super().forward(x), target)


def one_forward_one_backward(pp_rank, pp_size, pp_group, scale_grads=True):
    part = Layers(pp_rank * 4 // pp_size, (pp_rank + 1) * 4 // pp_size)
    stage = PipelineStage(part, pp_rank, pp_size, torch.device("cpu"), group=pp_group)
    return Schedule1F1B(stage, 2, loss_fn=loss, scale_grads=scale_grads)


def not_divided(pp_rank, pp_size, pp_group):
    """Wrong: losses are means, and their gradients are added up."""
    return one_forward_one_backward(pp_rank, pp_size, pp_group, scale_grads=False)
