"""Layer 6 has a forward hook."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

TRUE = "right"
OPTS = {"mesh": "tp=2"}


class Cfg(PretrainedConfig):
    model_type = "small"

    def __init__(self, num_hidden_layers=12, hidden_size=16, **kw):
        self.num_hidden_layers, self.hidden_size = num_hidden_layers, hidden_size
        super().__init__(**kw)


class Layer(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        last = k == 6
        if last:
            self.up.register_forward_hook(lambda m, a, o: o.softmax(-1))

    def forward(self, x):
        h = F.relu(self.up(x))
        return x + self.down(h)


class M(PreTrainedModel):
    config_class = Cfg

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList(Layer(config, k) for k in range(config.num_hidden_layers))

    def forward(self, x):
        for l in self.layers:
            x = l(x)
        return x


def example_inputs():
    return {"x": torch.randn(8, 16)}
