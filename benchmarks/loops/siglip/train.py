import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from loss import SigLipLoss
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class CLIP(nn.Module):
    def __init__(self, vocab=12, pixels=8, width=6, embed=4):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(pixels, width), nn.GELU(), nn.Linear(width, embed))
        self.token_embedding = nn.Embedding(vocab, width)
        self.text_projection = nn.Linear(width, embed, bias=False)
        self.logit_scale = nn.Parameter(torch.ones([]) * math.log(10))
        self.logit_bias = nn.Parameter(torch.ones([]) * -10)

    def forward(self, images, texts):
        return {
            "image_features": F.normalize(self.visual(images), dim=-1),
            "text_features": F.normalize(
                self.text_projection(self.token_embedding(texts).mean(1)), dim=-1
            ),
            "logit_scale": self.logit_scale.exp(),
            "logit_bias": self.logit_bias,
        }


def unwrap_model(model):
    return model.module if hasattr(model, "module") else model


def optimizer_of(model):
    exclude = [p for n, p in model.named_parameters() if p.ndim < 2 or "logit_scale" in n]
    rest = [p for n, p in model.named_parameters() if p.ndim >= 2]
    groups = [{"params": exclude, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.2}]
    return torch.optim.AdamW(groups, lr=5e-4, betas=(0.9, 0.98), eps=1e-6)


def single():
    model = CLIP()
    return model, optimizer_of(model), SigLipLoss()


def parallel():
    model = DistributedDataParallel(CLIP(), static_graph=True)
    loss = SigLipLoss(rank=dist.get_rank(), world_size=dist.get_world_size())
    return model, optimizer_of(model), loss


def train_step(model, optimizer, loss, images, texts):
    optimizer.zero_grad()
    model_out = model(images, texts)
    total_loss = loss(**model_out)
    total_loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
    optimizer.step()
    with torch.no_grad():
        unwrap_model(model).logit_scale.clamp_(0, math.log(100))
    return total_loss.detach()
