import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

IGNORE = -100


class Lm(nn.Module):
    def __init__(self, vocab=20, dim=16, length=8):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(length, dim)
        self.mix = nn.Linear(2 * dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        before = F.pad(h, (0, 0, 1, 0))[:, :-1]
        return self.head(self.norm(h + F.gelu(self.mix(torch.cat([h, before], dim=-1)))))


def summed_nll(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")


def count_tokens(labels):
    tokens = (labels != IGNORE).sum()
    dist.all_reduce(tokens)
    return tokens


def build():
    model = DDP(Lm())
    return model, torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def train_step(model, opt, ids, labels):
    world = dist.get_world_size()
    tokens = count_tokens(labels)
    total = torch.zeros((), device=ids.device)
    opt.zero_grad()
    for ids_mb, labels_mb in zip(ids.split(1), labels.split(1)):
        nll = summed_nll(model(ids_mb), labels_mb)
        loss = nll * world / tokens
        loss.backward()
        total += nll.detach()
    opt.step()
    dist.all_reduce(total)
    return total / tokens
