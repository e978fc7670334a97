import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Denoiser(nn.Module):
    def __init__(self, channels=4, steps=10):
        super().__init__()
        self.time_embed = nn.Embedding(steps, channels)
        self.norm = nn.GroupNorm(2, channels)
        self.into = nn.Conv1d(channels, channels, 3, padding=1)
        self.out = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x, t):
        h = self.into(x) + self.time_embed(t)[..., None]
        return self.out(nn.functional.silu(self.norm(h)))


def update_ema(target_params, source_params, rate):
    for target, source in zip(target_params, source_params):
        target.detach().mul_(rate).add_(source, alpha=1 - rate)


class TrainLoop:
    def __init__(self, model, distributed, microbatch=2, lr=1e-2, lr_anneal_steps=100):
        self.model = model
        self.microbatch = microbatch // (dist.get_world_size() if distributed else 1)
        self.lr = lr
        self.lr_anneal_steps = lr_anneal_steps
        self.step = 0
        self.alphas_cumprod = torch.linspace(0.95, 0.05, 10)
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        self.ema_rates = [0.9, 0.99]
        self.ema_params = [copy.deepcopy(list(model.parameters())) for _ in self.ema_rates]
        self.use_ddp = distributed
        self.ddp_model = DDP(model, broadcast_buffers=False) if distributed else model

    def training_losses(self, x_start, t, noise):
        kept = self.alphas_cumprod[t][:, None, None]
        x_t = kept.sqrt() * x_start + (1 - kept).sqrt() * noise
        return ((noise - self.ddp_model(x_t, t)) ** 2).mean(dim=(1, 2))

    def forward_backward(self, batch, t, noise):
        for param in self.model.parameters():
            param.grad = None
        for i in range(0, batch.shape[0], self.microbatch):
            part = slice(i, i + self.microbatch)
            last_batch = (i + self.microbatch) >= batch.shape[0]
            if last_batch or not self.use_ddp:
                losses = self.training_losses(batch[part], t[part], noise[part])
            else:
                with self.ddp_model.no_sync():
                    losses = self.training_losses(batch[part], t[part], noise[part])
            losses.mean().backward()

    def run_step(self, batch, t, noise):
        self.forward_backward(batch, t, noise)
        self.opt.step()
        with torch.no_grad():
            for rate, params in zip(self.ema_rates, self.ema_params):
                update_ema(params, self.model.parameters(), rate)
        self.step += 1
        for group in self.opt.param_groups:
            group["lr"] = self.lr * (1 - self.step / self.lr_anneal_steps)


def single():
    loop = TrainLoop(Denoiser(), distributed=False)
    return loop.ddp_model, loop


def parallel():
    loop = TrainLoop(Denoiser(), distributed=True)
    return loop.ddp_model, loop


def train_step(model, loop, batch, t, noise):
    loop.run_step(batch, t, noise)
