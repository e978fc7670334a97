import math

import numpy as np
import torch
import torch.distributed as dist
from loss import ClipLoss
from torch import nn
from torch.nn import functional as F


class CLIP(nn.Module):
    def __init__(self, vocab=12, dim=6):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, dim, bias=False))
        self.token_embedding = nn.Embedding(vocab, 8)
        self.text_projection = nn.Parameter(torch.randn(8, dim) * 0.1)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(
            self.token_embedding(text).mean(1) @ self.text_projection, dim=-1
        )
        return {
            "image_features": image_features,
            "text_features": text_features,
            "logit_scale": self.logit_scale.exp(),
        }


def unwrap_model(model):
    return model.module if hasattr(model, "module") else model


def cosine_lr(optimizer, base_lr, warmup_length, steps):
    def _lr_adjuster(step):
        if step < warmup_length:
            lr = base_lr * (step + 1) / warmup_length
        else:
            e = step - warmup_length
            es = steps - warmup_length
            lr = 0.5 * (1 + np.cos(np.pi * e / es)) * base_lr
        for param_group in optimizer.param_groups:
            param_group["lr"] = lr
        return lr

    return _lr_adjuster


def setup(model, inner, loss):
    def exclude(n, p):
        return p.ndim < 2 or "bn" in n or "ln" in n or "bias" in n or "logit_scale" in n

    named = list(inner.named_parameters())
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for n, p in named if exclude(n, p)], "weight_decay": 0.0},
            {"params": [p for n, p in named if not exclude(n, p)], "weight_decay": 0.2},
        ],
        lr=5e-4,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    return model, loss, optimizer, cosine_lr(optimizer, 5e-4, 4, 100), {"step": 0}


def single():
    model = CLIP()
    return setup(model, model, ClipLoss(cache_labels=True))


def parallel(rank, world_size):
    model = CLIP()
    loss = ClipLoss(local_loss=True, cache_labels=True, rank=rank, world_size=world_size)
    return setup(nn.parallel.DistributedDataParallel(model), model, loss)


def train_step(model, loss, optimizer, scheduler, state, images, texts):
    scheduler(state["step"])
    optimizer.zero_grad()
    model_out = model(images, texts)
    losses = loss(**model_out)
    total_loss = sum(losses.values())
    losses["loss"] = total_loss
    total_loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
    optimizer.step()
    with torch.no_grad():
        unwrap_model(model).logit_scale.clamp_(0, math.log(100))
    state["step"] += 1
