import math

import torch
import torch.nn as nn


class DisentangledSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_heads, max_rel):
        super().__init__()
        self.num_attention_heads = num_heads
        self.attention_head_size = hidden_size // num_heads
        self.all_head_size = hidden_size
        self.query_proj = nn.Linear(hidden_size, self.all_head_size)
        self.key_proj = nn.Linear(hidden_size, self.all_head_size)
        self.value_proj = nn.Linear(hidden_size, self.all_head_size)
        self.pos_key_proj = nn.Linear(hidden_size, self.all_head_size)
        self.pos_query_proj = nn.Linear(hidden_size, self.all_head_size)
        self.max_rel = max_rel
        self.pos_att_type = ["c2p", "p2c"]

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_attention_heads, -1)
        x = x.view(new_shape)
        return x.permute(0, 2, 1, 3).contiguous().view(-1, x.size(1), x.size(-1))

    def forward(self, hidden_states, attention_mask, relative_pos, rel_embeddings):
        q = self.transpose_for_scores(self.query_proj(hidden_states))
        k = self.transpose_for_scores(self.key_proj(hidden_states))
        v = self.transpose_for_scores(self.value_proj(hidden_states))
        scale = math.sqrt(q.size(-1) * (1 + len(self.pos_att_type)))
        scores = torch.bmm(q, k.transpose(-1, -2)) / scale
        scores = scores + self.disentangled_bias(q, k, relative_pos, rel_embeddings, scale)
        scores = scores.view(-1, self.num_attention_heads, scores.size(-2), scores.size(-1))
        scores = scores.masked_fill(~attention_mask.bool(), torch.finfo(q.dtype).min)
        probs = torch.softmax(scores, dim=-1)
        ctx = torch.bmm(probs.view(-1, probs.size(-2), probs.size(-1)), v)
        ctx = (
            ctx.view(-1, self.num_attention_heads, ctx.size(-2), ctx.size(-1))
            .permute(0, 2, 1, 3)
            .contiguous()
        )
        return ctx.view(ctx.size()[:-2] + (-1,))

    def disentangled_bias(self, q, k, relative_pos, rel_embeddings, scale):
        att_span = self.max_rel
        batch = q.size(0) // self.num_attention_heads
        rel = rel_embeddings[: att_span * 2].unsqueeze(0)
        pos_key = self.transpose_for_scores(self.pos_key_proj(rel)).repeat(batch, 1, 1)
        pos_query = self.transpose_for_scores(self.pos_query_proj(rel)).repeat(batch, 1, 1)
        score = 0
        c2p = torch.bmm(q, pos_key.transpose(-1, -2))
        c2p_pos = torch.clamp(relative_pos + att_span, 0, att_span * 2 - 1)
        c2p = torch.gather(
            c2p, dim=-1, index=c2p_pos.expand(q.size(0), q.size(1), relative_pos.size(-1))
        )
        score += c2p / scale
        p2c = torch.bmm(k, pos_query.transpose(-1, -2))
        p2c_pos = torch.clamp(-relative_pos + att_span, 0, att_span * 2 - 1)
        p2c = torch.gather(
            p2c, dim=-1, index=p2c_pos.expand(q.size(0), k.size(1), k.size(1))
        ).transpose(-1, -2)
        score += p2c / scale
        return score


class DebertaLayer(nn.Module):
    def __init__(self, h, heads, inter, max_rel):
        super().__init__()
        self.attention = DisentangledSelfAttention(h, heads, max_rel)
        self.attn_out = nn.Linear(h, h)
        self.attn_norm = nn.LayerNorm(h, 1e-7)
        self.intermediate = nn.Linear(h, inter)
        self.output = nn.Linear(inter, h)
        self.out_norm = nn.LayerNorm(h, 1e-7)
        self.dropout = nn.Dropout(0.0)

    def forward(self, x, mask, rel_pos, rel_emb):
        a = self.dropout(self.attn_out(self.attention(x, mask, rel_pos, rel_emb)))
        x = self.attn_norm(a + x)
        y = self.dropout(self.output(nn.functional.gelu(self.intermediate(x))))
        return self.out_norm(y + x)


class DebertaForMaskedLM(nn.Module):
    def __init__(
        self,
        vocab_size=64,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        intermediate_size=128,
        max_rel=8,
    ):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden_size, padding_idx=0)
        self.emb_norm = nn.LayerNorm(hidden_size, 1e-7)
        self.rel_embeddings = nn.Embedding(max_rel * 2, hidden_size)
        self.rel_norm = nn.LayerNorm(hidden_size, 1e-7)
        self.layers = nn.ModuleList(
            [
                DebertaLayer(hidden_size, num_heads, intermediate_size, max_rel)
                for _ in range(num_layers)
            ]
        )
        self.transform = nn.Linear(hidden_size, hidden_size)
        self.transform_norm = nn.LayerNorm(hidden_size, 1e-7)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, input_ids, attention_mask):
        x = self.emb_norm(self.word_embeddings(input_ids))
        x = x * attention_mask.unsqueeze(-1).to(x.dtype)
        ext = attention_mask.unsqueeze(1).unsqueeze(2)
        mask = ext * ext.squeeze(-2).unsqueeze(-1)
        s = input_ids.size(1)
        pos = torch.arange(s, device=input_ids.device)
        rel_pos = (pos[:, None] - pos[None, :]).unsqueeze(0)
        rel_emb = self.rel_norm(self.rel_embeddings.weight)
        for layer in self.layers:
            x = layer(x, mask, rel_pos, rel_emb)
        x = self.transform_norm(nn.functional.gelu(self.transform(x)))
        return torch.matmul(x, self.word_embeddings.weight.t()) + self.bias
