import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        norm_x = torch.mean(x * x, dim=-1, keepdim=True)
        x_normed = x * torch.rsqrt(norm_x + self.eps)
        return (x_normed.to(dtype) * self.weight).to(dtype)


class LLaMAMLP(nn.Module):
    def __init__(self, n_embd, hidden):
        super().__init__()
        self.fc_1 = nn.Linear(n_embd, hidden, bias=False)
        self.fc_2 = nn.Linear(n_embd, hidden, bias=False)
        self.proj = nn.Linear(hidden, n_embd, bias=False)

    def forward(self, x):
        return self.proj(F.silu(self.fc_1(x)) * self.fc_2(x))


class GPT(nn.Module):
    def __init__(self, vocab=12, n_embd=8, hidden=16):
        super().__init__()
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)
        self.wte = nn.Embedding(vocab, n_embd)
        self.norm = RMSNorm(n_embd)
        self.mlp = LLaMAMLP(n_embd, hidden)
        self.ln_f = RMSNorm(n_embd)

    def forward(self, idx):
        x = self.wte(idx)
        x = x + self.mlp(self.norm(x))
        return self.lm_head(self.ln_f(x))


def chunked_cross_entropy(logits, targets, chunk_size=128, ignore_index=-100):
    if chunk_size == 0:
        logits = logits.reshape(-1, logits.size(-1))
        targets = targets.reshape(-1)
        return F.cross_entropy(logits, targets, ignore_index=ignore_index)
    logits = logits.reshape(-1, logits.size(-1))
    targets = targets.reshape(-1)
    logit_chunks = logits.split(chunk_size)
    target_chunks = targets.split(chunk_size)
    loss_chunks = [
        F.cross_entropy(logit_chunk, target_chunk, ignore_index=ignore_index, reduction="none")
        for logit_chunk, target_chunk in zip(logit_chunks, target_chunks)
    ]
    non_masked_elems = (targets != ignore_index).sum()
    return torch.cat(loss_chunks).sum() / non_masked_elems.maximum(
        torch.ones_like(non_masked_elems)
    )
