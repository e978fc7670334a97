"""picotron: tensor parallelism, gradients averaged over ranks, ring attention."""

# pyright: basic
# ruff: noqa: E402, N812

import os
import sys
from types import ModuleType, SimpleNamespace

for _name in ("flash_attn_interface", "layers.rotary", "ops.triton.layer_norm"):
    _module = ModuleType(f"flash_attn.{_name}")
    _module.flash_attn_func = _module.apply_rotary_emb = _module.layer_norm_fn = None
    sys.modules[_module.__name__] = _module
os.environ |= {"FLASH_ATTEN": "0", "DEVICE": "cpu", "DTYPE": "float32", "LOCAL_RANK": "0"}
import picotron.process_group_manager as pgm
import torch
from picotron.context_parallel.context_parallel import RingAttentionFunc
from picotron.data_parallel.data_parallel import DataParallelBucket, DataParallelNaive
from picotron.model import Llama
from picotron.tensor_parallel.tensor_parallel import apply_tensor_parallel
from torch import nn
from torch.nn import functional as F

SMALL = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32}
SMALL |= {"intermediate_size": 32, "max_position_embeddings": 8, "num_hidden_layers": 2}
CONFIG = SimpleNamespace(**SMALL, rms_norm_eps=1e-5, rope_theta=10000.0)


def llama():
    sizes = dict.fromkeys(("tp_world_size", "cp_world_size"), 1)
    pgm.process_group_manager = SimpleNamespace(**sizes, tp_rank=0, cp_rank=0)
    return Llama(CONFIG)


def tensor_parallel(mesh):
    pgm.setup_process_group_manager(mesh["tp"].size(), 1, 1, 1)
    return apply_tensor_parallel(Llama(CONFIG))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def _with_optimizer(model):
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def mlp():
    return _with_optimizer(MLP())


def naive(mesh):
    pgm.setup_process_group_manager(1, 1, 1, mesh["dp"].size())
    return _with_optimizer(DataParallelNaive(MLP()))


def bucket(mesh):
    pgm.setup_process_group_manager(1, 1, 1, mesh["dp"].size())
    return _with_optimizer(DataParallelBucket(MLP()))


def step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if hasattr(model, "reset"):
        model.reset()
    return loss


def accumulating(model, optimizer, x, y):
    optimizer.zero_grad()
    total = 0
    for i, (a, b) in enumerate(zip(x.chunk(2), y.chunk(2), strict=True)):
        model.require_backward_grad_sync = i == 1
        loss = F.mse_loss(model(a), b) / 2
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    model.reset()
    return total


class Ring(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        pgm.setup_process_group_manager(1, mesh["cp"].size(), 1, 1)

    def forward(self, q, k, v):
        return RingAttentionFunc.apply(q, k, v, 0.5, True)


class Attention(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
