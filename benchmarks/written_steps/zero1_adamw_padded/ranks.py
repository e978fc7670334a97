import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        return self.fc2(F.silu(self.norm(self.fc1(x))))


class ShardedAdamW:
    def __init__(self, params, lr, betas, eps, weight_decay, max_norm):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.max_norm = lr, betas, eps, max_norm
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        self.numel = sum(p.numel() for p in self.params)
        self.chunk = (self.numel + self.world - 1) // self.world
        decay = [torch.full_like(p.data, weight_decay if p.ndim > 1 else 0.0) for p in self.params]
        self.decay = self.own(self.flatten(decay))
        self.m = torch.zeros_like(self.decay)
        self.v = torch.zeros_like(self.decay)
        self.t = 0

    def flatten(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return F.pad(flat, (0, self.chunk * self.world - self.numel))

    def own(self, flat):
        return flat[self.rank * self.chunk:(self.rank + 1) * self.chunk]

    def reduce_gradients(self):
        flat = self.flatten([p.grad for p in self.params])
        shard = torch.empty_like(self.m)
        dist.reduce_scatter_tensor(shard, flat)
        shard /= self.world
        return shard

    def clip(self, grad):
        sq = grad.pow(2).sum()
        dist.all_reduce(sq)
        return grad * torch.clamp(self.max_norm / (sq.sqrt() + 1e-6), max=1.0)

    def scatter_back(self, shard):
        full = shard.new_empty(self.chunk * self.world)
        dist.all_gather_into_tensor(full, shard)
        offset = 0
        for p in self.params:
            p.copy_(full[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    @torch.no_grad()
    def step(self):
        grad = self.clip(self.reduce_gradients())
        self.t += 1
        b1, b2 = self.betas
        weight = self.own(self.flatten(self.params))
        weight = weight * (1 - self.lr * self.decay)
        self.m.lerp_(grad, 1 - b1)
        self.v.mul_(b2).addcmul_(grad, grad, value=1 - b2)
        m_hat = self.m / (1 - b1 ** self.t)
        v_hat = self.v / (1 - b2 ** self.t)
        self.scatter_back(weight - self.lr * m_hat / (v_hat.sqrt() + self.eps))

    def zero_grad(self):
        for p in self.params:
            p.grad = None


def build():
    net = Net()
    opt = ShardedAdamW(net.parameters(), lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, max_norm=1.0)
    return net, opt


def train_step(net, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    return loss.detach()
