import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class CopyToModelParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class ReduceFromModelParallel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, start):
        peak = logits.max(dim=-1).values
        dist.all_reduce(peak, op=dist.ReduceOp.MAX)
        logits = logits - peak.unsqueeze(-1)
        local = target - start
        outside = (local < 0) | (local >= logits.shape[-1])
        local = local.masked_fill(outside, 0)
        picked = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(picked)
        probs = logits.exp()
        total = probs.sum(dim=-1)
        dist.all_reduce(total)
        probs = probs / total.unsqueeze(-1)
        ctx.save_for_backward(probs, local, outside)
        return total.log() - picked

    @staticmethod
    def backward(ctx, grad):
        probs, local, outside = ctx.saved_tensors
        hit = (~outside).to(probs.dtype).unsqueeze(-1)
        grad_logits = probs.scatter_add(-1, local.unsqueeze(-1), -hit)
        return grad_logits * grad.unsqueeze(-1), None, None


class VocabParallelEmbedding(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.rows = vocab // dist.get_world_size()
        self.start = dist.get_rank() * self.rows
        self.weight = nn.Parameter(torch.randn(self.rows, dim) * 0.02)

    def forward(self, ids):
        local = ids - self.start
        outside = (local < 0) | (local >= self.rows)
        out = F.embedding(local.masked_fill(outside, 0), self.weight)
        out = out.masked_fill(outside.unsqueeze(-1), 0.0)
        return ReduceFromModelParallel.apply(out)


class ColumnParallelLinear(nn.Module):
    def __init__(self, fan_in, fan_out, bias=True):
        super().__init__()
        rows = fan_out // dist.get_world_size()
        self.weight = nn.Parameter(torch.randn(rows, fan_in) * 0.02)
        self.bias = nn.Parameter(torch.zeros(rows)) if bias else None

    def forward(self, x):
        return F.linear(CopyToModelParallel.apply(x), self.weight, self.bias)


class RowParallelLinear(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        cols = fan_in // dist.get_world_size()
        self.weight = nn.Parameter(torch.randn(fan_out, cols) * 0.02)
        self.bias = nn.Parameter(torch.zeros(fan_out))

    def forward(self, x):
        out = F.linear(x, self.weight)
        return ReduceFromModelParallel.apply(out) + self.bias


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads // dist.get_world_size(), dim // heads
        self.qkv = ColumnParallelLinear(dim, 3 * dim, bias=False)
        self.proj = RowParallelLinear(dim, dim)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, self.heads, 3, self.head_dim).permute(3, 0, 2, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(o.transpose(1, 2).reshape(b, s, -1))


class Gpt(nn.Module):
    def __init__(self, vocab=16, dim=16, heads=4):
        super().__init__()
        self.emb = VocabParallelEmbedding(vocab, dim)
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = ColumnParallelLinear(dim, 2 * dim)
        self.fc2 = RowParallelLinear(2 * dim, dim)
        self.head = ColumnParallelLinear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.emb(ids)
        h = h + self.attn(self.norm1(h))
        h = h + self.fc2(F.gelu(self.fc1(self.norm2(h))))
        return self.head(h)


def build():
    net = Gpt()
    return net, torch.optim.Adam(net.parameters(), lr=5e-3)


def train_step(net, opt, ids, labels):
    opt.zero_grad()
    logits = net(ids)
    loss = VocabParallelCrossEntropy.apply(logits, labels, net.emb.start).mean()
    loss.backward()
    opt.step()
    return loss.detach()
