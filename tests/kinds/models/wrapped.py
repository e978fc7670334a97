import torch
import torch.nn as nn
from transformers import LlamaConfig, LlamaModel


class Valued(nn.Module):
    """A value head on a transformers model."""

    cache = True

    def __init__(self):
        super().__init__()
        config = LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, use_cache=self.cache,
        )  # fmt: skip
        self.body = LlamaModel(config)
        self.value = nn.Linear(32, 1)

    def forward(self, ids, reward):
        h = self.body(input_ids=ids).last_hidden_state
        return (self.value(h[:, -1]).squeeze(-1) - reward).pow(2).mean()


class Uncached(Valued):
    cache = False


def example_inputs():
    return {"ids": torch.randint(0, 64, (4, 8)), "reward": torch.randn(4)}
