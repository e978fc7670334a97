import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def zeropower_via_newtonschulz5(G, steps, eps=1e-7):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G / (G.norm() + eps)
    if G.size(0) > G.size(1):
        X = X.T
    for _ in range(steps):
        A = X @ X.T
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.T if G.size(0) > G.size(1) else X


class Muon(torch.optim.Optimizer):
    """Each rank makes the updates of its parameters; a sum gives them to all."""

    def __init__(self, params, lr=0.02, momentum=0.95, backend_steps=2):
        super().__init__(params, dict(lr=lr, momentum=momentum, backend_steps=backend_steps))
        self.world_size = dist.get_world_size() if dist.is_initialized() else 1
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            momentum = group["momentum"]
            updates_flat = torch.zeros(sum(p.numel() for p in group["params"]))
            curr_idx = 0
            for i, p in enumerate(group["params"]):
                if i % self.world_size == self.rank:
                    g = p.grad
                    state = self.state[p]
                    if "momentum_buffer" not in state:
                        state["momentum_buffer"] = torch.zeros_like(g)
                    buf = state["momentum_buffer"]
                    buf.mul_(momentum).add_(g)
                    g = g.add(buf, alpha=momentum)
                    g = zeropower_via_newtonschulz5(g, group["backend_steps"])
                    g = g * max(1, g.size(0) / g.size(1)) ** 0.5
                    updates_flat[curr_idx : curr_idx + p.numel()] = g.flatten()
                curr_idx += p.numel()
            if self.world_size > 1:
                dist.all_reduce(updates_flat, op=dist.ReduceOp.SUM)
            curr_idx = 0
            for p in group["params"]:
                g = updates_flat[curr_idx : curr_idx + p.numel()].view_as(p.data)
                p.data.add_(g, alpha=-group["lr"])
                curr_idx += p.numel()


class GPT(nn.Module):
    def __init__(self, vocab=8, width=4):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.c_fc = nn.Linear(width, 2 * width, bias=False)
        self.c_proj = nn.Linear(2 * width, width, bias=False)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, idx, target):
        x = F.rms_norm(self.wte(idx), (self.wte.weight.size(1),))
        x = x + self.c_proj(F.relu(self.c_fc(x)).square())
        logits = 30 * torch.tanh(self.lm_head(F.rms_norm(x, (x.size(-1),))) / 30)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), target.view(-1))


def build(wrap):
    model = GPT()
    adam = torch.optim.Adam([model.wte.weight, model.lm_head.weight], lr=3e-3, betas=(0.9, 0.95))
    muon = Muon([model.c_fc.weight, model.c_proj.weight])
    return wrap(model), [adam, muon]


def single():
    return build(lambda model: model)


def parallel():
    return build(DistributedDataParallel)


def train_step(model, optimizers, x, y):
    loss = model(x, y)
    loss.backward()
    for opt in optimizers:
        opt.step()
    model.zero_grad(set_to_none=True)
    return loss.detach()
