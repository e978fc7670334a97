import torch
import torch.distributed as dist
from torch import nn


class DistributedDataParallel(nn.Module):
    """Gradients of all parameters lie in one buffer."""

    def __init__(self, module, group=None):
        super().__init__()
        self.module = module
        self.group = group
        params = [p for p in module.parameters() if p.requires_grad]
        self.params = params
        self.data = torch.zeros(sum(p.numel() for p in params))
        start = 0
        for p in params:
            p.main_grad = self.data[start : start + p.numel()].view(p.shape)
            start += p.numel()

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    def zero_grad_buffer(self):
        self.data.zero_()

    def accumulate(self):
        for p in self.params:
            if p.grad is not None:
                p.main_grad.add_(p.grad.data)
            p.grad = None

    def finish_grad_sync(self):
        if self.group is not None:
            dist.all_reduce(self.data, op=dist.ReduceOp.SUM, group=self.group)

    def scale_gradients(self, scaling_factor):
        self.data *= scaling_factor


def finalize_model_grads(model, num_tokens):
    model.finish_grad_sync()
    if model.group is not None:
        dist.all_reduce(num_tokens, group=model.group)
    if num_tokens > 0:
        model.scale_gradients(1.0 / num_tokens)
