import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


class Net(nn.Module):
    def __init__(self, mesh, dim=12, hidden=24):
        super().__init__()
        self.mesh = mesh
        self.inp = nn.Linear(dim, dim)
        self.up = nn.Linear(dim, hidden)
        self.temp = nn.Parameter(torch.ones(1))
        self.down = nn.Linear(hidden, dim)
        self.out = nn.Linear(dim, 6)
        self.place(self.up, "weight", Shard(0))
        self.place(self.up, "bias", Shard(0))
        self.place(self.down, "weight", Shard(1))
        self.place(self, "temp", Replicate())

    def place(self, module, name, placement):
        value = getattr(module, name).detach()
        setattr(module, name, nn.Parameter(distribute_tensor(value, self.mesh, [placement])))

    def into_shards(self, h):
        h = DTensor.from_local(h, self.mesh, [Replicate()], run_check=False)
        return h.to_local(grad_placements=[Partial()])

    def out_of_shards(self, part):
        part = DTensor.from_local(part, self.mesh, [Partial()], run_check=False)
        return part.redistribute(placements=[Replicate()]).to_local()

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        temp = self.temp.to_local(grad_placements=[Partial()])
        a = F.silu(F.linear(self.into_shards(h), self.up.weight.to_local(), self.up.bias.to_local())) * temp
        part = F.linear(a, self.down.weight.to_local())
        return self.out(h + self.out_of_shards(part) + self.down.bias)


def build(mesh):
    net = Net(mesh)
    groups = [{"params": [net.temp], "lr": 0.02}, {"params": [p for n, p in net.named_parameters() if n != "temp"]}]
    return net, torch.optim.SGD(groups, lr=0.2, momentum=0.9)


def train_step(net, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss.detach()
