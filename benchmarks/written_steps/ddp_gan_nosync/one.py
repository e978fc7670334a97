import torch
import torch.nn as nn
import torch.nn.functional as F


class Gan(nn.Module):
    def __init__(self, latent=5, data=6):
        super().__init__()
        self.gen = nn.Sequential(nn.Linear(latent, 12), nn.LeakyReLU(0.2), nn.Linear(12, data), nn.Tanh())
        self.disc = nn.Sequential(nn.Linear(data, 10), nn.LeakyReLU(0.2), nn.Linear(10, 1))

    def forward(self, turn, z, real=None):
        if turn == "disc":
            fake = self.gen(z).detach()
            return F.softplus(-self.disc(real)).mean() + F.softplus(self.disc(fake)).mean()
        return F.softplus(-self.disc(self.gen(z))).mean()


def build():
    gan = Gan()
    opt_d = torch.optim.SGD(gan.disc.parameters(), lr=0.2, momentum=0.8, nesterov=True)
    opt_g = torch.optim.Adam(gan.gen.parameters(), lr=2e-2, betas=(0.5, 0.9))
    return gan, opt_d, opt_g


def train_step(gan, opt_d, opt_g, real, z):
    opt_d.zero_grad()
    d_loss = gan("disc", z, real)
    d_loss.backward()
    opt_d.step()

    opt_g.zero_grad()
    g_loss = gan("gen", z)
    g_loss.backward()
    opt_g.step()
    return d_loss.detach() + g_loss.detach()
