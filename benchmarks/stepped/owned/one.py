import torch
import torch.nn.functional as F
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 12, bias=False)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, 8)

    def forward(self, x):
        return self.head(self.norm(F.relu(self.embed(x))))


def init():
    model = Classifier()
    return model, torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))


def train_step(model, opt, x, y):
    model.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.05)
    opt.step()
    return loss
