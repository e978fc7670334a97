import torch
import torch.distributed as dist
import torch.nn.functional as F
from engine import DeepSpeedEngine
from torch import nn


class WarmupDecayLR(torch.optim.lr_scheduler.LambdaLR):
    def __init__(self, optimizer, total, warmup):
        def gamma(step):
            return step / warmup if step < warmup else max(0.0, (total - step) / (total - warmup))

        super().__init__(optimizer, gamma)


class SimpleModel(nn.Module):
    def __init__(self, hidden_dim=8, nlayers=2):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(hidden_dim, hidden_dim) for _ in range(nlayers)])

    def forward(self, x, y):
        for linear in self.linears:
            x = x + torch.tanh(linear(x))
        return F.cross_entropy(x, y)


CONFIG = {"gradient_accumulation_steps": 2, "gradient_clipping": 0.5}


def initialize(group=None):
    model = SimpleModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.8, 0.999), eps=1e-8)
    engine = DeepSpeedEngine(model, optimizer, WarmupDecayLR(optimizer, 50, 5), CONFIG, group)
    return engine, optimizer


def single():
    return initialize()


def parallel():
    return initialize(dist.group.WORLD)


def train_step(model_engine, optimizer, x, y):
    for batch in zip(x.chunk(2), y.chunk(2), strict=True):
        loss = model_engine(batch[0], batch[1])
        model_engine.backward(loss)
        model_engine.step()
