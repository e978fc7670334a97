import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class DistAdam(torch.optim.Optimizer):
    """Each rank updates its rows of every parameter, with the mean of the gradients of these."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        distributed = dist.is_initialized()
        rank = dist.get_rank() if distributed else 0
        world_size = dist.get_world_size() if distributed else 1
        reduce_scatter_works = []
        all_gather_works = []
        grad_slices = []
        for group in self.param_groups:
            for param in group["params"]:
                grad = param.grad
                rank_size = grad.shape[0] // world_size
                grad_slice = torch.empty_like(grad[:rank_size])
                if distributed:
                    reduce_scatter_works.append(
                        dist.reduce_scatter_tensor(
                            grad_slice, grad, op=dist.ReduceOp.AVG, async_op=True
                        )
                    )
                else:
                    grad_slice.copy_(grad)
                grad_slices.append(grad_slice)

        idx = 0
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            eps, wd = group["eps"], group["weight_decay"]
            for p in group["params"]:
                if distributed:
                    reduce_scatter_works[idx].wait()
                rank_size = p.shape[0] // world_size
                p_slice = p[rank * rank_size : (rank + 1) * rank_size]
                lr = group["lr"] * getattr(p, "lr_mul", 1.0)
                state = self.state[p]
                g_slice = grad_slices[idx]
                if not state:
                    state["step"] = torch.tensor(0, dtype=torch.int64)
                    state["exp_avg"] = torch.zeros_like(p_slice)
                    state["exp_avg_sq"] = torch.zeros_like(p_slice)
                exp_avg = state["exp_avg"]
                exp_avg_sq = state["exp_avg_sq"]
                state["step"] += 1
                t = state["step"]
                if wd != 0:
                    eff_weight_decay = lr * wd * getattr(p, "wd_mul", 1.0)
                    p_slice.mul_(1 - eff_weight_decay)
                exp_avg.mul_(beta1).add_(g_slice, alpha=1 - beta1)
                exp_avg_sq.mul_(beta2).addcmul_(g_slice, g_slice, value=1 - beta2)
                bias1 = 1 - beta1**t
                bias2 = 1 - beta2**t
                denom = exp_avg_sq.sqrt().add_(eps)
                step_size = lr * (torch.sqrt(bias2) / bias1)
                update = exp_avg.div(denom).mul_(step_size)
                p_slice.add_(other=update, alpha=-1.0)
                idx += 1
                if distributed:
                    all_gather_works.append(dist.all_gather_into_tensor(p, p_slice, async_op=True))
        for work in all_gather_works:
            work.wait()


class GPT(nn.Module):
    def __init__(self, vocab=8, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.c_fc = nn.Linear(width, 2 * width, bias=False)
        self.c_proj = nn.Linear(2 * width, width, bias=False)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.embed.weight.lr_mul = 75.0

    def forward(self, idx, target):
        x = F.rms_norm(self.embed(idx), (4,))
        x = x + self.c_proj(F.relu(self.c_fc(x)).square())
        logits = self.lm_head(F.rms_norm(x, (4,)))
        logits = 30 * torch.sigmoid(logits / 7.5)
        return F.cross_entropy(logits.view(-1, logits.size(-1)), target.view(-1))


def build():
    model = GPT()
    return model, DistAdam(model.parameters(), lr=0.008, betas=(0.8, 0.95), eps=1e-10)


single = parallel = build


def train_step(model, optimizer, inputs, targets):
    loss = model(inputs, targets)
    loss.backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)
    return loss.detach()
