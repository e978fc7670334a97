import torch
import torch.nn.functional as F
from torch import nn


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.w1 = nn.Parameter(torch.randn(16, 8) / 4)
        self.w2 = nn.Parameter(torch.randn(8, 16) / 4)
        self.final = nn.LayerNorm(8)

    def forward(self, x):
        h = self.norm(x)
        h = F.linear(F.gelu(F.linear(h, self.w1)), self.w2)
        return self.final(x + h)


def construct():
    model = FeedForward()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-2, amsgrad=True)


def train_step(model, opt, x, y):
    opt.zero_grad()
    loss = (model(x) - y).square().sum()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    opt.step()
    return loss
