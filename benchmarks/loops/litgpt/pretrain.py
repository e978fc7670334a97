import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from model import GPT, chunked_cross_entropy
from torch.distributed.fsdp import fully_shard


@dataclass
class TrainArgs:
    max_norm: float = 1.0
    gradient_accumulation_iters: int = 2
    learning_rate: float = 4e-3
    min_lr: float = 4e-5
    lr_warmup_iters: int = 4
    max_iters: int = 100


class Fabric:
    def __init__(self, mesh=None):
        self.world_size = mesh.size() if mesh is not None else 1
        self.sharded = mesh is not None

    def no_backward_sync(self, model, enabled=True):
        if self.sharded:
            model.set_requires_gradient_sync(not enabled)
        return nullcontext()

    def backward(self, loss):
        loss.backward()

    def clip_gradients(self, model, optimizer, max_norm):
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def all_reduce(self, tensor):
        if self.sharded:
            dist.all_reduce(tensor)
            tensor /= self.world_size
        return tensor


def get_lr(learning_rate, it, warmup_iters, max_iters, min_lr):
    if it < warmup_iters:
        return learning_rate * it / warmup_iters
    if it > max_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (learning_rate - min_lr)


def single():
    model = GPT()
    state = {"iter_num": 0, "step_count": 0}
    return model, optimizer_of(model), Fabric(), TrainArgs(), state


def parallel(mesh):
    model = GPT()
    fully_shard(model.mlp, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = {"iter_num": 0, "step_count": 0}
    return model, optimizer_of(model), Fabric(mesh), TrainArgs(), state


def optimizer_of(model):
    return torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.1, betas=(0.9, 0.95))


def train_step(model, optimizer, fabric, train, state, ids):
    running_loss = torch.zeros(())
    for train_data in ids.chunk(train.gradient_accumulation_iters):
        lr = get_lr(
            train.learning_rate,
            state["iter_num"],
            train.lr_warmup_iters,
            train.max_iters,
            train.min_lr,
        )
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        state["iter_num"] += 1
        input_ids = train_data[:, 0:-1].contiguous().long()
        targets = train_data[:, 1:].contiguous().long()
        is_accumulating = state["iter_num"] % train.gradient_accumulation_iters != 0
        with fabric.no_backward_sync(model, enabled=is_accumulating):
            logits = model(input_ids)
            loss = chunked_cross_entropy(logits, targets, chunk_size=4)
            fabric.backward(loss / train.gradient_accumulation_iters)
        running_loss += loss.detach()
        if not is_accumulating:
            fabric.clip_gradients(model, optimizer, max_norm=train.max_norm)
            optimizer.step()
            optimizer.zero_grad()
            state["step_count"] += 1
    return fabric.all_reduce(running_loss / train.gradient_accumulation_iters)
