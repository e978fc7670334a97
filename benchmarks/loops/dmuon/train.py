import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def newton_schulz(G, steps=2):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G
    if G.size(0) > G.size(1):
        X = X.T
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.T
        B = b * A + c * A @ A
        X = a * X + B @ X
    if G.size(0) > G.size(1):
        X = X.T
    return X


class Muon(torch.optim.Optimizer):
    """Matrices are orthogonalised whole, then each rank keeps its shard; the rest take AdamW."""

    def __init__(self, muon_params, adamw_params, lr=0.02, wd=0.1, momentum=0.95):
        defaults = dict(lr=lr, wd=wd, momentum=momentum, betas=(0.9, 0.95), eps=1e-8)
        muon_params, adamw_params = list(muon_params), list(adamw_params)
        super().__init__(muon_params + adamw_params, defaults)
        for p in muon_params:
            self.state[p]["use_muon"] = True
        for p in adamw_params:
            self.state[p]["use_muon"] = False

    def adjust_lr_for_muon(self, lr, param_shape):
        return lr * 0.2 * max(param_shape[:2]) ** 0.5

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, wd, momentum = group["lr"], group["wd"], group["momentum"]
            for p in [p for p in group["params"] if self.state[p]["use_muon"]]:
                g = p.grad
                if g is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(g)
                buf = state["momentum_buffer"]
                buf.mul_(momentum).add_(g)
                g = g.add(buf, alpha=momentum)
                if isinstance(g, DTensor):
                    whole = newton_schulz(g.full_tensor())
                    u = distribute_tensor(whole, g.device_mesh, g.placements)
                else:
                    u = newton_schulz(g)
                p.data.mul_(1 - lr * wd)
                p.data.add_(u, alpha=-self.adjust_lr_for_muon(lr, p.shape))
            beta1, beta2 = group["betas"]
            for p in [p for p in group["params"] if not self.state[p]["use_muon"]]:
                g = p.grad
                state = self.state[p]
                if "step" not in state:
                    state["step"] = 0
                    state["moment1"] = torch.zeros_like(g)
                    state["moment2"] = torch.zeros_like(g)
                state["step"] += 1
                step = state["step"]
                buf1, buf2 = state["moment1"], state["moment2"]
                buf1.lerp_(g, 1 - beta1)
                buf2.lerp_(g.square(), 1 - beta2)
                g = buf1 / (group["eps"] + buf2.sqrt())
                scale = (1 - beta1**step) / (1 - beta2**step) ** 0.5
                p.data.mul_(1 - lr * wd)
                p.data.add_(g, alpha=-lr / scale)


class GPT(nn.Module):
    def __init__(self, vocab=8, width=4):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.c_fc = nn.Linear(width, 2 * width, bias=False)
        self.c_proj = nn.Linear(2 * width, width, bias=False)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, idx):
        x = F.rms_norm(self.wte(idx), (4,))
        x = x + self.c_proj(F.relu(self.c_fc(x)).square())
        return self.lm_head(F.rms_norm(x, (4,)))


def optimizer_of(model):
    muon = [p for n, p in model.named_parameters() if "c_" in n]
    adamw = [p for n, p in model.named_parameters() if "c_" not in n]
    return Muon(muon, adamw)


def single():
    model = GPT()
    return model, optimizer_of(model)


def parallel(mesh):
    model = GPT()
    fully_shard(model.c_fc, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, optimizer_of(model)


def train_step(model, optimizer, x, y):
    logits = model(x)
    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()
