import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


def split_half_float_double(tensors):
    dtypes = [torch.float16, torch.float32, torch.float64, torch.bfloat16]
    buckets = []
    for dtype in dtypes:
        bucket = [t for t in tensors if t.dtype == dtype]
        if bucket:
            buckets.append(bucket)
    return buckets


class DeepSpeedEngine(nn.Module):
    def __init__(self, model, optimizer, lr_scheduler, config, dp_group=None):
        super().__init__()
        self.module = model
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.config = config
        self.dp_group = dp_group
        self.dp_world_size = dist.get_world_size(dp_group) if dp_group is not None else 1
        self.micro_steps = 0
        self.global_steps = 0
        self.losses = 0.0

    def gradient_accumulation_steps(self):
        return self.config["gradient_accumulation_steps"]

    def is_gradient_accumulation_boundary(self):
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)

    def allreduce_bucket(self, bucket):
        tensor = _flatten_dense_tensors(bucket)
        tensor.mul_(1.0 / self.dp_world_size)
        dist.all_reduce(tensor, group=self.dp_group)
        return tensor

    def allreduce_and_copy(self, small_bucket):
        allreduced = self.allreduce_bucket(small_bucket)
        for buf, synced in zip(small_bucket, _unflatten_dense_tensors(allreduced, small_bucket)):
            buf.copy_(synced)

    def allreduce_no_retain(self, bucket, numel_per_bucket=200):
        small_bucket = []
        numel = 0
        for tensor in bucket:
            small_bucket.append(tensor)
            numel = numel + tensor.numel()
            if numel > numel_per_bucket:
                self.allreduce_and_copy(small_bucket)
                small_bucket = []
                numel = 0
        if len(small_bucket) > 0:
            self.allreduce_and_copy(small_bucket)

    def buffered_allreduce_fallback(self):
        grads = [p.grad.data for p in self.module.parameters() if p.grad is not None]
        for bucket in split_half_float_double(grads):
            self.allreduce_no_retain(bucket)

    def backward(self, loss):
        loss = loss / self.gradient_accumulation_steps()
        self.losses += loss.detach()
        loss.backward()
        if self.dp_world_size > 1 and self.is_gradient_accumulation_boundary():
            self.buffered_allreduce_fallback()
        return loss

    def _take_model_step(self):
        if self.config["gradient_clipping"] > 0.0:
            self.clip_fp32_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.lr_scheduler is not None:
            self.lr_scheduler.step()
        self.losses = 0.0
        self.global_steps += 1

    def clip_fp32_gradients(self):
        parameters = list(self.module.parameters())
        total_norm = 0.0
        for p in parameters:
            param_norm = p.grad.data.float().norm(2)
            total_norm += param_norm**2
        total_norm = total_norm ** (1.0 / 2)
        clip_coef = self.config["gradient_clipping"] / (total_norm + 1e-6)
        clip_coef = torch.clamp(clip_coef, max=1.0)
        for p in parameters:
            p.grad.data.mul_(clip_coef)
        self._global_grad_norm = total_norm

    def step(self):
        if self.is_gradient_accumulation_boundary():
            self._take_model_step()
        self.micro_steps += 1
