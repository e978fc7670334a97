import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Encoder(nn.Module):
    def __init__(self, width=6, dim=4):
        super().__init__()
        self.conv1 = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, dim, bias=False)

    def forward(self, x):
        return self.fc(F.relu(self.norm(self.conv1(x))))


class MoCo(nn.Module):
    """A momentum encoder that follows the base encoder, and queries against all keys."""

    def __init__(self, base_encoder, dim=4, mlp_dim=6, T=0.2):
        super().__init__()
        self.T = T
        self.base_encoder = base_encoder()
        self.momentum_encoder = base_encoder()
        self.predictor = nn.Sequential(nn.Linear(dim, mlp_dim), nn.ReLU(), nn.Linear(mlp_dim, dim))
        for param_b, param_m in zip(
            self.base_encoder.parameters(), self.momentum_encoder.parameters()
        ):
            param_m.data.copy_(param_b.data)
            param_m.requires_grad = False

    @torch.no_grad()
    def _update_momentum_encoder(self, m):
        for param_b, param_m in zip(
            self.base_encoder.parameters(), self.momentum_encoder.parameters()
        ):
            param_m.data = param_m.data * m + param_b.data * (1.0 - m)

    def contrastive_loss(self, q, k):
        q = nn.functional.normalize(q, dim=1)
        k = nn.functional.normalize(k, dim=1)
        k = concat_all_gather(k)
        logits = torch.einsum("nc,mc->nm", [q, k]) / self.T
        N = logits.shape[0]
        labels = torch.arange(N, dtype=torch.long) + N * get_rank()
        return nn.CrossEntropyLoss()(logits, labels) * (2 * self.T)

    def forward(self, x1, x2, m):
        q1 = self.predictor(self.base_encoder(x1))
        q2 = self.predictor(self.base_encoder(x2))
        with torch.no_grad():
            self._update_momentum_encoder(m)
            k1 = self.momentum_encoder(x1)
            k2 = self.momentum_encoder(x2)
        return self.contrastive_loss(q1, k2) + self.contrastive_loss(q2, k1)


def get_rank():
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


@torch.no_grad()
def concat_all_gather(tensor):
    if not torch.distributed.is_initialized():
        return tensor
    tensors_gather = [torch.ones_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(tensors_gather, tensor, async_op=False)
    return torch.cat(tensors_gather, dim=0)


def adjust_moco_momentum(epoch, moco_m=0.99, epochs=100):
    return 1.0 - 0.5 * (1.0 + math.cos(math.pi * epoch / epochs)) * (1.0 - moco_m)


def build(wrap):
    model = wrap(MoCo(Encoder))
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], 0.03, momentum=0.9, weight_decay=1e-4
    )
    return model, optimizer


def single():
    return build(lambda model: model)


def parallel():
    return build(DistributedDataParallel)


def train_step(model, optimizer, first, second):
    moco_m = adjust_moco_momentum(3)
    loss = model(first, second, moco_m)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()
