import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, parallelize_module)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (w(x).view(b, s, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(o.transpose(1, 2).reshape(b, s, -1))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Lm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(16, 16)
        self.pos = nn.Parameter(torch.zeros(8, 16))
        self.attn_norm = nn.LayerNorm(16)
        self.attn = Attention(16, 4)
        self.mlp_norm = nn.LayerNorm(16)
        self.mlp = Mlp(16)
        self.norm_out = nn.LayerNorm(16)
        self.head = nn.Linear(16, 12, bias=False)

    def add_positions(self, h):
        n = h.shape[1]
        start = self.tp_rank * n
        return h + self.pos[start:start + n]

    def forward(self, ids):
        h = self.add_positions(self.tok(ids))
        h = h + self.attn(self.attn_norm(h))
        h = h + self.mlp(self.mlp_norm(h))
        return self.head(self.norm_out(h))


def shard_model(net, mesh):
    whole = dict(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan = {
        "tok": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "attn_norm": SequenceParallel(),
        "attn": PrepareModuleInput(**whole),
        "attn.wq": ColwiseParallel(),
        "attn.wk": ColwiseParallel(),
        "attn.wv": ColwiseParallel(),
        "attn.wo": RowwiseParallel(output_layouts=Shard(1)),
        "mlp_norm": SequenceParallel(),
        "mlp": PrepareModuleInput(**whole),
        "mlp.up": ColwiseParallel(),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
        "norm_out": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(net, mesh, plan)
    net.attn.heads = net.attn.heads // mesh.size()
    net.tp_rank = mesh.get_local_rank()


def build(mesh):
    net = Lm()
    shard_model(net, mesh)
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def train_step(net, opt, ids, labels):
    logits = net(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    dist.all_reduce(net.pos.grad)
    opt.step()
    opt.zero_grad()
    return loss.detach()
