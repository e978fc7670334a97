import torch
import torch.nn.functional as F
from torch import nn

PAD = 0


class TiedLM(nn.Module):
    def __init__(self, vocab=16, dim=8):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.ln = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight = self.tok.weight

    def forward(self, ids):
        h = self.tok(ids)
        h = h + self.ff(self.ln(h))
        return self.lm_head(h)


def prepare():
    model = TiedLM()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)


def train_step(model, optimizer, ids, labels):
    optimizer.zero_grad()
    logits = model(ids)
    losses = F.cross_entropy(logits.view(-1, 16), labels.view(-1), reduction="none")
    mask = (labels.view(-1) != PAD).to(losses.dtype)
    loss = (losses * mask).sum() / mask.sum()
    loss.backward()
    optimizer.step()
    return loss
