import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard


class LoraLinear(nn.Module):
    def __init__(self, base_layer, r=2, lora_alpha=4):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.Linear(base_layer.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base_layer.out_features, bias=False)
        self.scaling = lora_alpha / r
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        result = self.base_layer(x)
        return result + self.lora_B(self.lora_A(x)) * self.scaling


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.fc2(F.silu(self.fc1(self.norm(x))))


class Base(nn.Module):
    def __init__(self, vocab=12, dim=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim)])
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def get_peft_model(model, target_modules=("fc1", "fc2")):
    for name, module in list(model.named_modules()):
        parent, _, leaf = name.rpartition(".")
        if leaf in target_modules:
            setattr(model.get_submodule(parent), leaf, LoraLinear(module))
    for name, param in model.named_parameters():
        param.requires_grad = "lora_" in name
    return model


def optimizer_of(model):
    trainable = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trainable, lr=1e-3, weight_decay=0.0)


def single():
    model = get_peft_model(Base())
    return model, optimizer_of(model)


def parallel(mesh):
    model = get_peft_model(Base())
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, optimizer_of(model)


def train_step(model, optimizer, input_ids):
    logits = model(input_ids)
    shift_logits = logits[:, :-1].reshape(-1, logits.size(-1))
    loss = F.cross_entropy(shift_logits, input_ids[:, 1:].reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_((p for p in model.parameters() if p.requires_grad), 0.3)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
