from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUM = 2


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
    gan = DDP(Gan(), find_unused_parameters=True)
    opt_d = torch.optim.SGD(gan.module.disc.parameters(), lr=0.2, momentum=0.8, nesterov=True)
    opt_g = torch.optim.Adam(gan.module.gen.parameters(), lr=2e-2, betas=(0.5, 0.9))
    return gan, opt_d, opt_g


def accumulate(gan, turn, *batch):
    shown = 0.0
    pieces = list(zip(*(t.chunk(ACCUM) for t in batch)))
    for i, piece in enumerate(pieces):
        last = i + 1 == len(pieces)
        with nullcontext() if last else gan.no_sync():
            loss = gan(turn, *piece) / ACCUM
            loss.backward()
        shown = shown + loss.detach()
    return shown


def train_step(gan, opt_d, opt_g, real, z):
    # the generator's turn leaves gradients in the discriminator too
    opt_d.zero_grad()
    d_loss = accumulate(gan, "disc", z, real)
    opt_d.step()

    opt_g.zero_grad()
    g_loss = accumulate(gan, "gen", z)
    opt_g.step()

    shown = torch.stack([d_loss, g_loss])
    dist.all_reduce(shown)
    return (shown / dist.get_world_size()).sum()
