"""Data parallelism, layers filled at construction, and the merged layers of serving engines, by
hand; and the models."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import linear, relu, silu

SERVING = torch.library.Library("serving", "DEF")
SERVING.define("all_reduce(Tensor x, str group) -> Tensor")
SERVING.impl("all_reduce", lambda x, group: torch.empty_like(x), "Meta")


class MLP(nn.Module):
    def __init__(self, hidden=8, inner=16):
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        return {"loss": self.down(relu(self.up(x))).pow(2).mean()}


class Averaged(MLP):
    """Gradients are averaged after the backward, one by one."""

    def __init__(self, dp_group):
        super().__init__()
        self.group = dp_group


def averaged(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)
        p.grad /= model.group.size()


def added_up(model):
    for p in model.parameters():
        dist.all_reduce(p.grad, group=model.group)  # never divided


def in_a_bucket(model):
    """All gradients in one buffer."""
    grads = [p.grad for p in model.parameters()]
    bucket = torch.cat([g.flatten() for g in grads]) / model.group.size()
    dist.all_reduce(bucket, group=model.group)
    for g, part in zip(grads, bucket.split([g.numel() for g in grads]), strict=True):
        g.copy_(part.view_as(g))


def in_an_old_bucket(model):
    """What comes back is not copied."""
    grads = [p.grad for p in model.parameters()]
    bucket = torch.cat([g.flatten() for g in grads]) / model.group.size()
    dist.all_reduce(bucket.clone(), group=model.group)  # the sum is lost
    for g, part in zip(grads, bucket.split([g.numel() for g in grads]), strict=True):
        g.copy_(part.view_as(g))


class Whole(torch.autograd.Function):
    """A weight of which each rank has some rows: gathered, and its gradient scattered."""

    @staticmethod
    def forward(ctx, w, group, divided):
        ctx.group, ctx.divided = group, divided
        out = w.new_empty(w.shape[0] * group.size(), *w.shape[1:])
        dist.all_gather_into_tensor(out, w.contiguous(), group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_empty(grad.shape[0] // ctx.group.size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(out, grad.contiguous(), group=ctx.group)
        return out / ctx.group.size() if ctx.divided else out, None, None


class Sharded(MLP):
    """Weights are gathered where they are used (ZeRO-3)."""

    divided = True

    def __init__(self, dp_group, hidden=8, inner=16):
        nn.Module.__init__(self)
        n = dp_group.size()
        self.group = dp_group
        self.up, self.down = nn.Linear(hidden, inner // n), nn.Linear(inner, hidden // n)

    def forward(self, x):
        h = relu(linear(x, self.whole(self.up.weight), self.whole(self.up.bias)))
        y = linear(h, self.whole(self.down.weight), self.whole(self.down.bias))
        return {"loss": y.pow(2).mean()}

    def whole(self, w):
        return Whole.apply(w, self.group, self.divided)


class ShardedSum(Sharded):
    divided = False


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        return linear(x, self.weight)


class Filled(Plain):
    """A weight that is filled from a larger one while the module is built."""

    def __init__(self, tp_group):
        nn.Module.__init__(self)
        n = tp_group.size()
        self.weight = nn.Parameter(torch.empty(16 // n, 8))
        with torch.no_grad():
            torch.cat([torch.randn(16, 8).chunk(n)[tp_group.rank()]], out=self.weight)


class FilledTwice(Filled):
    def forward(self, x):
        return linear(x, self.weight) + linear(x, self.weight)  # counted twice


class Block(nn.Module):
    """Attention and a gated MLP."""

    def __init__(self, hidden=16, heads=4, groups=4, inner=16):
        super().__init__()
        self.heads, self.groups, self.d = heads, groups, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * self.d, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        h = x + self.summed(self.out(self.attended(x)))
        gate, up = self.gate_up(h).chunk(2, -1)
        return h + self.summed(self.down(silu(gate) * up))

    def summed(self, y):
        return y

    def attended(self, x):
        sizes = [n * self.d for n in (self.heads, self.groups, self.groups)]
        q, k, v = (t.unflatten(-1, (-1, self.d)) for t in self.qkv(x).split(sizes, -1))
        k, v = (self.repeated(t) for t in (k, v))
        q, k, v = (t.transpose(0, 1) for t in (q, k, v))
        return (torch.softmax(q @ k.mT / 2, -1) @ v).transpose(0, 1).flatten(1)

    def repeated(self, t):
        return t.repeat_interleave(self.heads // self.groups, 1)


class Served(Block):
    """A rank's heads, and its part of gate and up, in merged weights; sums by an op of the engine's
    own, which has no body in Python."""

    def __init__(self, tp_group, hidden=16, heads=4, groups=4, inner=16):
        nn.Module.__init__(self)
        n = tp_group.size()
        self.group = tp_group
        self.heads, self.groups, self.d = heads // n, groups // n, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) // n * self.d, bias=False)
        self.out = nn.Linear(hidden // n, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner // n, bias=False)
        self.down = nn.Linear(inner // n, hidden, bias=False)

    def summed(self, y):
        return torch.ops.serving.all_reduce(y, self.group.group_name)


class ServedUnsummed(Served):
    """What the MLP gives is not summed."""

    def forward(self, x):
        h = x + self.summed(self.out(self.attended(x)))
        gate, up = self.gate_up(h).chunk(2, -1)
        return h + self.down(silu(gate) * up)  # a part of the sum


class ServedTurned(Served):
    """Gate and up change places."""

    def forward(self, x):
        h = x + self.summed(self.out(self.attended(x)))
        up, gate = self.gate_up(h).chunk(2, -1)  # the other way round
        return h + self.summed(self.down(silu(gate) * up))
