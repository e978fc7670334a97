"""DiT, small, with the loss of the noise."""

from models import DiT
from torch import nn


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = DiT(depth=2, hidden_size=64, num_heads=4, input_size=8, num_classes=10)

    def forward(self, x, t, y, noise):
        return (self.net(x, t, y)[:, :4] - noise).square().mean()
