import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist


class SyncNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        count = x.numel() // x.shape[1] * dist.get_world_size()
        sums = torch.stack([x.sum(dim=(0, 2, 3)), (x * x).sum(dim=(0, 2, 3))])
        dist.all_reduce(sums)
        mean = sums[0] / count
        var = sums[1] / count - mean * mean
        inv = torch.rsqrt(var + eps)
        normed = (x - mean[:, None, None]) * inv[:, None, None]
        ctx.count = count
        ctx.save_for_backward(normed, weight, inv)
        ctx.mark_non_differentiable(mean, var)
        return normed * weight[:, None, None] + bias[:, None, None], mean, var

    @staticmethod
    def backward(ctx, grad, *unused):
        normed, weight, inv = ctx.saved_tensors
        local = torch.stack([grad.sum(dim=(0, 2, 3)), (grad * normed).sum(dim=(0, 2, 3))])
        total = local.clone()
        dist.all_reduce(total)
        mean_grad, mean_proj = (total / ctx.count)[:, :, None, None]
        grad_x = (grad - mean_grad - normed * mean_proj) * (weight * inv)[:, None, None]
        return grad_x, local[1], local[0], None


class SyncBatchNorm(nn.Module):
    def __init__(self, channels, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        out, mean, var = SyncNorm.apply(x, self.weight, self.bias, self.eps)
        count = x.numel() // x.shape[1] * dist.get_world_size()
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * count / (count - 1), self.momentum)
        return out


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, padding=1, bias=False)
        self.bn1 = SyncBatchNorm(8)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.bn2 = SyncBatchNorm(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean(dim=(2, 3)))


def make_optimizer(net):
    decay = [p for n, p in net.named_parameters() if p.ndim > 1]
    plain = [p for n, p in net.named_parameters() if p.ndim == 1]
    groups = [{"params": decay, "weight_decay": 5e-2}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)


def average_gradients(net):
    world = dist.get_world_size()
    for name, p in net.named_parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def build():
    net = ConvNet()
    return net, make_optimizer(net)


def train_step(net, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    average_gradients(net)
    opt.step()
    return loss.detach()
