import torch
import torch.nn as nn
import torch.nn.functional as F


class Vae(nn.Module):
    """Convolutions down to a mean and a variance, transposed ones up again."""

    def __init__(self, c=8, z=16):
        super().__init__()
        self.enc = nn.Sequential(
            *(nn.Conv2d(3, c, 3, 2, 1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, 2, 1), nn.ReLU()),
            nn.Flatten(),
        )
        self.mean, self.var = nn.Linear(8 * c, z), nn.Linear(8 * c, z)
        self.grow = nn.Linear(z, 8 * c)
        self.dec = nn.Sequential(
            nn.ConvTranspose2d(2 * c, c, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(c, 3, 4, 2, 1)
        )

    def forward(self, x, noise):
        h = self.enc(x)
        mean, var = self.mean(h), self.var(h)
        z = mean + noise * torch.exp(0.5 * var)
        y = self.dec(F.relu(self.grow(z)).unflatten(1, (-1, 2, 2)))
        kl = -0.5 * (1 + var - mean.pow(2) - var.exp()).sum(1).mean()
        return F.mse_loss(y, x) + 1e-2 * kl


class Generator(nn.Module):
    """Transposed convolutions with batch norms, judged by a small critic."""

    def __init__(self, z=16, c=8):
        super().__init__()
        self.net = nn.Sequential(
            *(nn.ConvTranspose2d(z, 4 * c, 2, bias=False), nn.BatchNorm2d(4 * c), nn.ReLU()),
            *(nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * c)),
            *(nn.ReLU(), nn.ConvTranspose2d(2 * c, 3, 4, 2, 1), nn.Tanh()),
        )
        self.critic = nn.Sequential(
            *(nn.Conv2d(3, c, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(c, 2 * c, 4, 2, 1)),
            *(nn.LeakyReLU(0.2), nn.Conv2d(2 * c, 1, 2)),
        )

    def forward(self, x, noise):
        made = self.net(noise[:, :, None, None])
        good, bad = self.critic(x).flatten(), self.critic(made).flatten()
        return F.softplus(-good).mean() + F.softplus(bad).mean()


def example_inputs():
    return {"x": torch.randn(4, 3, 8, 8), "noise": torch.randn(4, 16)}
