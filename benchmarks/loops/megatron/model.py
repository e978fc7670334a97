import torch
from torch import nn


class GPTModel(nn.Module):
    def __init__(self, vocab=12, hidden=8):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.linear_fc1 = nn.Linear(hidden, 4 * hidden)
        self.linear_fc2 = nn.Linear(4 * hidden, hidden)
        self.final_norm = nn.LayerNorm(hidden)
        self.output_layer = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens, labels=None):
        x = self.embedding(tokens).transpose(0, 1).contiguous()
        x = x + self.linear_fc2(torch.nn.functional.gelu(self.linear_fc1(self.norm(x))))
        logits = self.output_layer(self.final_norm(x))
        if labels is None:
            return logits.transpose(0, 1).contiguous()
        labels = labels.transpose(0, 1).contiguous()
        loss = nn.functional.cross_entropy(
            logits.float().view(-1, logits.shape[-1]), labels.view(-1), reduction="none"
        )
        return loss.view(labels.shape).transpose(0, 1).contiguous()
