"""verl: entropies of split logits, Ulysses over a sequence."""

# pyright: basic
# ruff: noqa: N812

import torch
from megatron.core import parallel_state
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from benchmarks.clones.parts import part

ulysses = part("verl.utils.ulysses")
megatron = part("verl.utils.megatron.tensor_parallel")


class Entropy(nn.Module):
    def forward(self, logits):
        return torch.logsumexp(logits, -1) - (F.softmax(logits, -1) * logits).sum(-1)


class SplitEntropy(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        parallel_state._TENSOR_MODEL_PARALLEL_GROUP = mesh.get_group()

    def forward(self, logits):
        return megatron.vocab_parallel_entropy(logits)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def heads(self, x):
        return x.unflatten(-1, (4, 2))

    def back(self, x):
        return x

    def forward(self, x):
        parts = [self.heads(t).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)]
        y = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2)
        return self.out(self.back(y.contiguous()).flatten(2))


class Ulysses(Attention):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def heads(self, x):
        return ulysses.gather_seq_scatter_heads(super().heads(x), 1, 2, group=self.group)

    def back(self, x):
        return ulysses.gather_heads_scatter_seq(x, 2, 1, group=self.group)


def one():
    model = Attention()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def many(mesh):
    group = mesh.get_group()
    model = DistributedDataParallel(Ulysses(group), process_group=group)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def step(model, optimizer, x, y):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def split(model, optimizer, x, y):
    """The group is set, as verl's trainers do."""
    ulysses.set_ulysses_sequence_parallel_group(model.module.group)
    return passed(model, optimizer, x, y)


def passed(model, optimizer, x, y):
    """The group is passed."""
    group = model.module.group
    out = model(ulysses.slice_input_tensor(x, 1, group=group))
    loss = F.mse_loss(ulysses.gather_outputs_and_unpad(out, 1, group=group), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
