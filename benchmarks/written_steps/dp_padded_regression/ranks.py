import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class Recurrent(nn.Module):
    def __init__(self, n_in=4, n_state=7):
        super().__init__()
        self.drive = nn.Linear(n_in, n_state)
        self.carry = nn.Linear(n_state, n_state, bias=False)
        self.read = nn.Linear(n_state, 1)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.carry.in_features)
        outs = []
        for t in range(x.shape[1]):
            state = torch.tanh(self.drive(x[:, t]) + self.carry(state))
            outs.append(self.read(state).squeeze(-1))
        return torch.stack(outs, dim=1)


def valid(y, length):
    at = torch.arange(y.shape[1], device=y.device)
    return (at[None, :] < length[:, None]).to(y.dtype)


def build():
    net = Recurrent()
    return net, torch.optim.AdamW(net.parameters(), lr=0.02, eps=1e-2, amsgrad=True, weight_decay=0.1)


def train_step(net, adam, x, y, length):
    keep = valid(y, length)
    steps = keep.sum()
    dist.all_reduce(steps)
    err = F.huber_loss(net(x), y, reduction="none", delta=0.8)
    loss = (err * keep).sum() / steps.clamp(min=1.0)
    adam.zero_grad()
    loss.backward()
    waits = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
    for w in waits:
        w.wait()
    adam.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    return total
