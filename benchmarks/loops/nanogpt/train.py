import math
from contextlib import nullcontext

import torch
import torch.distributed as dist
from model import GPT, GPTConfig
from torch.nn.parallel import DistributedDataParallel as DDP

gradient_accumulation_steps = 4
weight_decay = 1e-1
learning_rate = 6e-4
beta1, beta2 = 0.9, 0.95
grad_clip = 1.0
decay_lr = True
warmup_iters, lr_decay_iters, min_lr = 20, 60, 6e-5
device_type = "cpu"
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type)


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (learning_rate - min_lr)


class State:
    iter_num = 0


def single():
    model = GPT(GPTConfig())
    optimizer = model.configure_optimizers(weight_decay, learning_rate, (beta1, beta2), device_type)
    scaler = torch.amp.GradScaler(device_type, enabled=False)
    return model, optimizer, scaler, State()


def parallel():
    model, optimizer, scaler, state = single()
    return DDP(model), optimizer, scaler, state


def train_step(model, optimizer, scaler, state, x, y):
    ddp = isinstance(model, DDP)
    ddp_world_size = dist.get_world_size() if ddp else 1
    assert gradient_accumulation_steps % ddp_world_size == 0
    accumulation = gradient_accumulation_steps // ddp_world_size
    lr = get_lr(state.iter_num) if decay_lr else learning_rate
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    for micro_step in range(accumulation):
        if ddp:
            model.require_backward_grad_sync = micro_step == accumulation - 1
        with ctx:
            logits, loss = model(x[micro_step], y[micro_step])
            loss = loss / accumulation
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if state.iter_num % 10 == 0:
        lossf = loss.item() * accumulation
        print(f"iter {state.iter_num}: loss {lossf:.4f}")
    state.iter_num += 1
