"""open_clip: contrastive losses of a batch that ranks hold in pieces, under
DistributedDataParallel."""

# pyright: basic

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.clones.parts import part

losses = part("open_clip.loss")


class Towers(nn.Module):
    def __init__(self, loss, bias: bool):
        super().__init__()
        self.image, self.text = nn.Linear(6, 4), nn.Linear(6, 4)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
        self.logit_bias = nn.Parameter(torch.tensor(-1.0)) if bias else None
        self.loss = loss

    def forward(self, a, b):
        a, b = (nn.functional.normalize(x, dim=-1) for x in (self.image(a), self.text(b)))
        if self.logit_bias is None:
            return self.loss(a, b, self.logit_scale.exp())
        return self.loss(a, b, self.logit_scale.exp(), self.logit_bias)


def one(kind: str = "ClipLoss", how: str = ""):
    model = Towers(getattr(losses, kind)(), kind != "ClipLoss")
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def many(mesh, kind: str = "ClipLoss", how: str = ""):
    ranks = {"rank": mesh.get_local_rank("dp"), "world_size": mesh.size()}
    given = {"dist_impl": how} if kind == "SigLipLoss" else dict.fromkeys(how.split(), True)
    model = Towers(getattr(losses, kind)(**given, **ranks), kind != "ClipLoss")
    model = DistributedDataParallel(model, process_group=mesh.get_group("dp"))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def step(model, optimizer, a, b):
    optimizer.zero_grad()
    loss = model(a, b)
    loss.backward()
    optimizer.step()
    return loss.detach()
