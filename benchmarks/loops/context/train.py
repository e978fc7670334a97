import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from zigzag import positions, zigzag_attn


def rotate(x, position_ids, theta=100.0):
    half = x.shape[-1] // 2
    inv_freq = 1.0 / theta ** (torch.arange(half) / half)
    angle = position_ids[:, None] * inv_freq[None, :]
    cos, sin = angle.cos(), angle.sin()
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x, position_ids, group):
        b, t, d = x.shape
        y = self.norm1(x)
        q, k, v = (
            w(y).view(b, t, self.heads, -1).transpose(1, 2)
            for w in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, position_ids), rotate(k, position_ids)
        y = zigzag_attn(q, k, v, group).transpose(1, 2).reshape(b, t, d)
        x = x + self.o_proj(y)
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Llama(nn.Module):
    def __init__(self, vocab=11, dim=8, heads=2, layers=1):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, position_ids, group):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x, position_ids, group)
        return self.lm_head(self.norm(x))


def build(group=None):
    model = Llama()
    return model, torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.1), group


def single():
    return build()


def parallel(group):
    return build(group)


def train_step(model, optimizer, group, input_ids, target_ids):
    world_size = 1 if group is None else dist.get_world_size(group)
    local = input_ids.shape[1]
    position_ids = torch.arange(local)
    if group is not None:
        position_ids = positions(dist.get_rank(group), world_size, local)
    logits = model(input_ids, position_ids, group)
    loss = F.cross_entropy(logits.flatten(0, 1), target_ids.flatten(), reduction="sum")
    valid = (target_ids != -100).sum()
    if group is not None:
        dist.all_reduce(valid, group=group)
    loss = loss / valid
    loss.backward()
    if group is not None:
        for p in model.parameters():
            dist.all_reduce(p.grad, group=group)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
