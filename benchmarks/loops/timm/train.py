import math
from collections import OrderedDict
from copy import deepcopy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as NativeDDP


class PatchEmbed(nn.Module):
    def __init__(self, patch_size=2, in_chans=3, embed_dim=8):
        super().__init__()
        self.proj = nn.Conv2d(in_chans, embed_dim, kernel_size=patch_size, stride=patch_size)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class LayerScale(nn.Module):
    def __init__(self, dim, init_values=1e-1):
        super().__init__()
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x):
        return x * self.gamma


class VisionTransformer(nn.Module):
    def __init__(self, embed_dim=8, num_classes=6):
        super().__init__()
        self.patch_embed = PatchEmbed(embed_dim=embed_dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.pos_embed = nn.Parameter(torch.randn(1, 5, embed_dim) * 0.02)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.fc1 = nn.Linear(embed_dim, 16)
        self.fc2 = nn.Linear(16, embed_dim)
        self.ls = LayerScale(embed_dim)
        self.norm = nn.LayerNorm(embed_dim)
        self.head = nn.Linear(embed_dim, num_classes)

    def forward(self, x):
        x = self.patch_embed(x)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1) + self.pos_embed
        x = x + self.ls(self.fc2(F.gelu(self.fc1(self.norm1(x)))))
        return self.head(self.norm(x).mean(dim=1))


class LabelSmoothingCrossEntropy(nn.Module):
    def __init__(self, smoothing=0.1):
        super().__init__()
        assert smoothing < 1.0
        self.smoothing = smoothing
        self.confidence = 1.0 - smoothing

    def forward(self, x, target):
        logprobs = F.log_softmax(x, dim=-1)
        nll_loss = -logprobs.gather(dim=-1, index=target.unsqueeze(1))
        nll_loss = nll_loss.squeeze(1)
        smooth_loss = -logprobs.mean(dim=-1)
        loss = self.confidence * nll_loss + self.smoothing * smooth_loss
        return loss.mean()


class ModelEmaV2(nn.Module):
    def __init__(self, model, decay=0.9998):
        super().__init__()
        self.module = deepcopy(model)
        self.module.eval()
        self.decay = decay

    def _update(self, model, update_fn):
        with torch.no_grad():
            pairs = zip(self.module.state_dict().values(), model.state_dict().values())
            for ema_v, model_v in pairs:
                ema_v.copy_(update_fn(ema_v, model_v))

    def update(self, model):
        self._update(model, update_fn=lambda e, m: self.decay * e + (1.0 - self.decay) * m)


class CosineLRScheduler:
    def __init__(self, optimizer, t_initial, lr_min=1e-5, warmup_t=3, warmup_lr_init=1e-4):
        self.optimizer = optimizer
        self.t_initial, self.lr_min = t_initial, lr_min
        self.warmup_t, self.warmup_lr_init = warmup_t, warmup_lr_init
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_values = [group["initial_lr"] for group in optimizer.param_groups]

    def step_update(self, num_updates):
        for group, v in zip(self.optimizer.param_groups, self.base_values):
            if num_updates < self.warmup_t:
                lr = self.warmup_lr_init + num_updates * (v - self.warmup_lr_init) / self.warmup_t
            else:
                cosine = 1 + math.cos(math.pi * num_updates / self.t_initial)
                lr = self.lr_min + 0.5 * (v - self.lr_min) * cosine
            group["lr"] = lr


def reduce_tensor(tensor, n):
    rt = tensor.clone()
    dist.all_reduce(rt, op=dist.ReduceOp.SUM)
    rt /= n
    return rt


def unwrap_model(model):
    return unwrap_model(model.module) if hasattr(model, "module") else model


class AverageMeter:
    def __init__(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def setup(distributed):
    model = VisionTransformer()
    skip = {"pos_embed", "cls_token"}
    decay, no_decay = OrderedDict(), OrderedDict()
    for name, param in model.named_parameters():
        (no_decay if param.ndim <= 1 or name in skip else decay)[name] = param
    optimizer = torch.optim.SGD(
        [
            {"params": no_decay.values(), "weight_decay": 0.0},
            {"params": decay.values(), "weight_decay": 2e-5},
        ],
        lr=0.05,
        momentum=0.9,
        nesterov=True,
    )
    model_ema = ModelEmaV2(model)
    if distributed:
        model = NativeDDP(model)
    lr_scheduler = CosineLRScheduler(optimizer, t_initial=50)
    loss_fn = LabelSmoothingCrossEntropy()
    return model, optimizer, loss_fn, lr_scheduler, model_ema, {"num_updates": 0}, AverageMeter()


def single():
    return setup(False)


def parallel():
    return setup(True)


def train_step(model, optimizer, loss_fn, lr_scheduler, model_ema, state, losses_m, input, target):
    input = input.contiguous(memory_format=torch.channels_last)
    output = model(input)
    loss = loss_fn(output, target)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
    optimizer.step()
    model_ema.update(unwrap_model(model))
    state["num_updates"] += 1
    lr_scheduler.step_update(num_updates=state["num_updates"])
    reduced_loss = loss.data
    if dist.is_initialized():
        reduced_loss = reduce_tensor(loss.data, dist.get_world_size())
    losses_m.update(reduced_loss.item() * 1, input.size(0))
