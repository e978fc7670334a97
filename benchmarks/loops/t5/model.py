import torch
import torch.nn.functional as F
from torch import nn


class T5LayerNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states


class T5Block(nn.Module):
    def __init__(self, d_model, d_ff, cross):
        super().__init__()
        self.norm = T5LayerNorm(d_model)
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.kv = nn.Linear(d_model, 2 * d_model, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)
        self.ff_norm = T5LayerNorm(d_model)
        self.wi = nn.Linear(d_model, d_ff, bias=False)
        self.wo = nn.Linear(d_ff, d_model, bias=False)
        self.cross = cross

    def forward(self, x, memory, mask):
        normed = self.norm(x)
        k, v = self.kv(memory if self.cross else normed).chunk(2, -1)
        scores = self.q(normed) @ k.transpose(-1, -2)
        scores = scores + (1.0 - mask[:, None, :].to(scores.dtype)) * -1e4
        x = x + self.o(F.softmax(scores, dim=-1) @ v)
        return x + self.wo(F.relu(self.wi(self.ff_norm(x))))


class T5ForConditionalGeneration(nn.Module):
    def __init__(self, vocab_size=12, d_model=8, d_ff=16):
        super().__init__()
        self.shared = nn.Embedding(vocab_size, d_model)
        self.encoder = nn.ModuleList([T5Block(d_model, d_ff, cross=False)])
        self.decoder = nn.ModuleList([T5Block(d_model, d_ff, cross=True)])
        self.d_model = d_model

    def _shift_right(self, labels):
        shifted = labels.new_zeros(labels.shape)
        shifted[..., 1:] = labels[..., :-1].clone()
        shifted[..., 0] = 0
        shifted.masked_fill_(shifted == -100, 0)
        return shifted

    def forward(self, input_ids, attention_mask, labels):
        memory = self.shared(input_ids)
        for block in self.encoder:
            memory = block(memory, memory, attention_mask)
        x = self.shared(self._shift_right(labels))
        for block in self.decoder:
            x = block(x, memory, attention_mask)
        logits = F.linear(x * self.d_model**-0.5, self.shared.weight)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100)
        return {"loss": loss, "logits": logits}
