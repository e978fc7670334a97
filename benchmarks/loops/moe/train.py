import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Router(nn.Module):
    """The share of tokens of each expert is that of the global batch."""

    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.aux_loss = None

    def forward(self, x):
        probs = F.softmax(self.gate(x), dim=-1)
        mask = F.one_hot(probs.argmax(dim=-1), probs.shape[-1]).to(probs.dtype)
        tokens_per_expert = mask.mean(dim=0)
        if dist.is_initialized():
            dist.all_reduce(tokens_per_expert)
            tokens_per_expert = tokens_per_expert / dist.get_world_size()
        self.aux_loss = probs.shape[-1] * (tokens_per_expert * probs.mean(dim=0)).sum()
        return probs * mask


class SwitchMLP(nn.Module):
    def __init__(self, width=4, experts=3):
        super().__init__()
        self.router = Router(width, experts)
        self.w1 = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.1)
        self.w2 = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.1)

    def forward(self, x):
        combine = self.router(x)
        y = torch.einsum("eth,ehd->etd", F.silu(torch.einsum("td,edh->eth", x, self.w1)), self.w2)
        return torch.einsum("te,etd->td", combine, y)


class Model(nn.Module):
    def __init__(self, vocab=8, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.norm = nn.LayerNorm(width)
        self.mlp = SwitchMLP(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids.flatten())
        x = x + self.mlp(self.norm(x))
        return self.head(x), self.mlp.router.aux_loss


def build(model):
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def single():
    return build(Model())


def parallel():
    return build(DistributedDataParallel(Model()))


def train_step(model, optimizer, ids, labels, aux_coeff=0.01):
    logits, aux_loss = model(ids)
    loss = F.cross_entropy(logits, labels.flatten()) + aux_coeff * aux_loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()
