import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.lin = nn.Linear(n_in, n_out)
        self.scale = nn.Parameter(torch.ones(n_out))

    def forward(self, x):
        return F.mish(self.lin(x)) * self.scale


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer(10, 12)
        self.second = Layer(12, 8)
        self.judge = nn.Linear(8, 4)

    def forward(self, x):
        return self.judge(self.second(self.first(x)))


def two_groups(ranker):
    judge = list(ranker.judge.parameters())
    trunk = list(ranker.first.parameters()) + list(ranker.second.parameters())
    return [dict(params=trunk, lr=0.02, lr_decay=0.1), dict(params=judge, lr=0.1, weight_decay=0.05)]


def make_adagrad(ranker):
    return torch.optim.Adagrad(two_groups(ranker), lr=0.05, initial_accumulator_value=0.1)


def build():
    ranker = Ranker()
    return ranker, make_adagrad(ranker)


def train_step(ranker, adagrad, x, rank_of):
    loss = F.multi_margin_loss(ranker(x), rank_of, margin=0.7)
    loss.backward()
    adagrad.step()
    adagrad.zero_grad()
    return loss.detach()
