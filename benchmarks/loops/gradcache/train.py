import torch
from grad_cache import DistributedContrastiveLoss, GradCache
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Tower(nn.Module):
    def __init__(self, vocab=9, width=6, dim=4):
        super().__init__()
        self.embeddings = nn.Embedding(vocab, width)
        self.dense = nn.Linear(width, dim)

    def forward(self, ids):
        return F.normalize(self.dense(torch.tanh(self.embeddings(ids)).mean(1)), dim=-1)


def build(wrap):
    query, passage = wrap(Tower()), wrap(Tower())
    cache = GradCache([query, passage], 2, DistributedContrastiveLoss())
    params = [*query.parameters(), *passage.parameters()]
    return query, passage, cache, torch.optim.AdamW(params, lr=1e-3)


def single():
    return build(lambda model: model)


def parallel():
    return build(DistributedDataParallel)


def train_step(query, passage, cache, optimizer, questions, passages):
    optimizer.zero_grad()
    cache(questions, passages)
    optimizer.step()
