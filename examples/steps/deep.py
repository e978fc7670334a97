"""A model of several layers on one device, and its training step."""

import torch
import torch.nn.functional as F
from torch import nn


class Layers(nn.Module):
    """Layers `first` to `last` of four, under the names that they have in the whole model; the
    first and the last have one weight."""

    def __init__(self, first=0, last=4):
        super().__init__()
        names = [str(number) for number in range(4)]
        whole = {name: nn.Linear(4, 4) for name in names}
        whole["3"].weight = whole["0"].weight
        self.layers = nn.ModuleDict({name: whole[name] for name in names[first:last]})

    def forward(self, x):
        for layer in self.layers.values():
            x = torch.tanh(layer(x))
        return x


def adamw():
    model = Layers()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    return loss
