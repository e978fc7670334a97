"""gemma_pytorch, small: a forward pass that fills its caches, and the tied output."""

import torch
from gemma import config
from gemma.model import GemmaModel, precompute_freqs_cis
from torch import nn

SIZES = {
    "vocab_size": 64, "max_position_embeddings": 32, "num_hidden_layers": 2, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64,
    "intermediate_size": 128, "dtype": "float32",
}  # fmt: skip
LOWEST = -2.3819763e38


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(64, 64)
        self.model = GemmaModel(config.GemmaConfig(**SIZES))
        self.register_buffer("freqs", precompute_freqs_cis(16, 64))

    def forward(self, ids):
        b, s = ids.shape
        made = {"size": (b, s, 2, 16), "dtype": self.embed.weight.dtype}
        caches = [(torch.zeros(**made), torch.zeros(**made)) for _ in range(2)]
        mask = torch.full((1, 1, s, s), LOWEST).triu(1)
        kinds = (config.AttentionType.GLOBAL, config.AttentionType.LOCAL_SLIDING)
        freqs = dict.fromkeys(kinds, self.freqs[:s])
        h = self.embed(ids) * 8.0
        h = self.model(h, freqs, torch.arange(s), caches, mask, mask)
        return h @ self.embed.weight.t()
