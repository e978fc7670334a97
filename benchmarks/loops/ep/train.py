import torch
import torch.distributed as dist
import torch.nn.functional as F
from moe import MOELayer
from torch import nn


class Model(nn.Module):
    def __init__(self, vocab=8, width=4, num_experts=4, group=None):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.norm = nn.LayerNorm(width)
        self.moe = MOELayer(width, num_experts, group)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.moe(self.norm(x))
        return self.head(x), self.moe.l_aux


class Engine:
    def __init__(self, model, group=None, lr=1e-2):
        self.model = model
        self.group = group
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def allreduce_gradients(self):
        world = dist.get_world_size(self.group)
        for p in self.model.parameters():
            if getattr(p, "allreduce", True):
                dist.all_reduce(p.grad, group=self.group)
                p.grad /= world
            else:
                p.grad /= world

    def step(self):
        if self.group is not None:
            self.allreduce_gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()


def single():
    model = Model()
    return model, Engine(model)


def parallel(mesh):
    group = mesh.get_group("dp")
    model = Model(group=group)
    return model, Engine(model, group)


def train_step(model, engine, ids, labels):
    logits, l_aux = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + 0.01 * l_aux
    loss.backward()
    engine.step()
    return loss.detach()
