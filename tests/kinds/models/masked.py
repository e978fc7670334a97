"""A masked language model, whose table the model itself multiplies by."""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_attention_heads = num_heads
        self.attention_head_size = hidden_size // num_heads
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(hidden_size, self.all_head_size)
        self.key = nn.Linear(hidden_size, self.all_head_size)
        self.value = nn.Linear(hidden_size, self.all_head_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(*new_shape).permute(0, 2, 1, 3)

    def forward(self, hidden, mask):
        q = self.transpose_for_scores(self.query(hidden))
        k = self.transpose_for_scores(self.key(hidden))
        v = self.transpose_for_scores(self.value(hidden))
        scores = torch.matmul(q, k.transpose(-1, -2)) / self.attention_head_size**0.5 + mask
        ctx = torch.matmul(torch.softmax(scores, -1), v).permute(0, 2, 1, 3).contiguous()
        ctx = ctx.view(*ctx.size()[:-2], self.all_head_size)
        return self.dense(ctx)


class BertLayer(nn.Module):
    def __init__(self, h, n, i):
        super().__init__()
        self.attention = SelfAttention(h, n)
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.intermediate, self.output = nn.Linear(h, i), nn.Linear(i, h)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.output(nn.functional.gelu(self.intermediate(x))))


class Bert(nn.Module):
    def __init__(self, vocab=64, h=32, n=4, i=64, layers=2, length=16):
        super().__init__()
        self.word, self.position, self.segment = (
            nn.Embedding(vocab, h),
            nn.Embedding(length, h),
            nn.Embedding(2, h),
        )
        self.norm = nn.LayerNorm(h)
        self.layer = nn.ModuleList([BertLayer(h, n, i) for _ in range(layers)])
        self.pooler = nn.Linear(h, h)
        self.transform = nn.Linear(h, h)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.nsp = nn.Linear(h, 2)

    def forward(self, input_ids, token_type_ids, attention_mask):
        pos = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.norm(
            self.word(input_ids) + self.position(pos)[None] + self.segment(token_type_ids)
        )
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        for layer in self.layer:
            x = layer(x, mask)
        mlm = nn.functional.linear(
            nn.functional.gelu(self.transform(x)), self.word.weight, self.bias
        )
        return {"mlm": mlm, "nsp": self.nsp(torch.tanh(self.pooler(x[:, 0])))}
