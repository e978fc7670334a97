import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocab=8, dim=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Trainer:
    """Gradients stay within a node until the last micro-batch."""

    def __init__(self, model, accumulate=2):
        self.model = model
        self.accumulate = accumulate
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=100)

    def prepare(self, is_last):
        if hasattr(self.model, "set_requires_all_reduce"):
            self.model.set_requires_all_reduce(is_last)
            self.model.set_is_last_backward(is_last)
            self.model.set_reshard_after_backward(is_last)

    def step(self, batch, labels):
        total = torch.zeros(())
        micro = list(zip(batch.chunk(self.accumulate), labels.chunk(self.accumulate)))
        for i, (x, y) in enumerate(micro):
            self.prepare(is_last=i == len(micro) - 1)
            logits = self.model(x)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), y.flatten()) / self.accumulate
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return total


def single():
    model = Model()
    return model, Trainer(model)


def parallel(mesh):
    model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    sharded = {"mesh": mesh["rep", "dp"], "mp_policy": policy}
    for layer in model.layers:
        fully_shard(layer, **sharded)
    fully_shard(model, **sharded, reshard_after_forward=False)
    return model, Trainer(model)


def train_step(model, trainer, ids, labels):
    return trainer.step(ids, labels)
