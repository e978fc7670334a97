import torch
from torch import nn


class BertSelfAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.heads = heads

    def transpose_for_scores(self, x):
        return x.view(*x.shape[:-1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, hidden_states):
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        context = torch.matmul(nn.functional.softmax(scores, dim=-1), v)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(*context.shape[:-2], -1)


class BertForMaskedLM(nn.Module):
    def __init__(self, vocab=12, hidden=8, heads=2, length=6):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab, hidden)
        self.position_embeddings = nn.Embedding(length, hidden)
        self.register_buffer("position_ids", torch.arange(length).expand((1, -1)))
        self.LayerNorm = nn.LayerNorm(hidden, eps=1e-12)
        self.attention = BertSelfAttention(hidden, heads)
        self.output = nn.Linear(hidden, hidden)
        self.transform = nn.Linear(hidden, hidden)
        self.decoder_bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, input_ids):
        position_ids = self.position_ids[:, : input_ids.shape[1]]
        x = self.word_embeddings(input_ids) + self.position_embeddings(position_ids)
        x = self.LayerNorm(x)
        x = x + self.output(self.attention(x))
        x = nn.functional.gelu(self.transform(x))
        return x @ self.word_embeddings.weight.t() + self.decoder_bias
