"""DINOv2: assignments and centers of a teacher over all ranks."""

# pyright: basic

import torch
from torch import distributed as dist, nn

from benchmarks.clones.parts import part

cls_token = part("dinov2.loss.dino_clstoken_loss")
patches = part("dinov2.loss.ibot_patch_loss")


class Teacher(nn.Module):
    """`how`: the way in which the loss makes targets of what a teacher says."""

    def __init__(self, how: str = "sinkhorn"):
        super().__init__()
        self.how = how
        self.head, self.teacher = nn.Linear(6, 4), nn.Linear(6, 4)
        self.loss = patches.iBOTPatchLoss(4) if how == "patches" else cls_token.DINOLoss(4)

    def forward(self, a, b):
        with torch.no_grad():
            logits = self.teacher(b)
        if self.how == "sinkhorn":
            targets = self.loss.sinkhorn_knopp_teacher(logits, 0.5)
        else:
            targets = self.loss.softmax_center_teacher(logits, 0.5)
            self.loss.update_center(logits)
        if self.how == "patches":
            return self.loss(self.head(a), targets, a[..., 0] > 0)
        return self.loss([self.head(a)], [targets])


def one(how: str = "sinkhorn"):
    model = Teacher(how)
    return model, torch.optim.SGD(model.head.parameters(), lr=0.1)


def many(mesh, how: str = "sinkhorn"):
    model = Teacher(how)
    return model, torch.optim.SGD(model.head.parameters(), lr=0.1)


def step(model, optimizer, a, b):
    optimizer.zero_grad()
    loss = model(a, b)
    loss.backward()
    for parameter in model.head.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    optimizer.step()
    return loss.detach()


def one_step(model, optimizer, a, b):
    optimizer.zero_grad()
    loss = model(a, b)
    loss.backward()
    optimizer.step()
    return loss.detach()
