import torch
import torch.nn as nn
import torch.distributed as dist

VOCAB, WIDTH, LENGTH = 14, 6, 4
Z_COEF = 0.05


class Grid:
    """Ranks in rows of tensor-parallel neighbours; columns hold the replicas."""

    def __init__(self, tp=2):
        world, rank = dist.get_world_size(), dist.get_rank()
        self.tp = tp
        self.dp = world // tp
        self.tp_rank = rank % tp
        for i in range(self.dp):
            members = list(range(i * tp, (i + 1) * tp))
            group = dist.new_group(members)
            if rank in members:
                self.tp_group = group
        for j in range(tp):
            members = list(range(j, world, tp))
            group = dist.new_group(members)
            if rank in members:
                self.dp_group = group


class Lion:
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1):
        self.params = list(params)
        self.lr, self.betas, self.weight_decay = lr, betas, weight_decay
        self.trace = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def step(self):
        b1, b2 = self.betas
        for p, m in zip(self.params, self.trace):
            p.mul_(1 - self.lr * self.weight_decay)
            p.sub_(self.lr * torch.sign(b1 * m + (1 - b1) * p.grad))
            m.mul_(b2).add_(p.grad, alpha=1 - b2)

    def zero_grad(self):
        for p in self.params:
            p.grad = None


class SumOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class SumBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.group)
        return g, None


def own_rows(ids, rows, tp_rank):
    local = ids - tp_rank * rows
    mine = (local >= 0) & (local < rows)
    return local.clamp(0, rows - 1), mine


class VocabLoss(torch.autograd.Function):
    """-log p(label) + Z_COEF * log(Z)^2 for every token, from a slice of the logits."""

    @staticmethod
    def forward(ctx, logits, labels, grid):
        top = logits.amax(-1)
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=grid.tp_group)
        e = (logits - top[..., None]).exp()
        z = e.sum(-1)
        dist.all_reduce(z, group=grid.tp_group)
        local, mine = own_rows(labels, logits.shape[-1], grid.tp_rank)
        picked = logits.gather(-1, local[..., None]).squeeze(-1) * mine
        dist.all_reduce(picked, group=grid.tp_group)
        log_z = z.log() + top
        ctx.save_for_backward(e / z[..., None], log_z, local, mine)
        return log_z - picked + Z_COEF * log_z ** 2

    @staticmethod
    def backward(ctx, g):
        prob, log_z, local, mine = ctx.saved_tensors
        d = prob * (1 + 2 * Z_COEF * log_z)[..., None]
        d = d.scatter_add(-1, local[..., None], -mine[..., None].to(d.dtype))
        return d * g[..., None], None, None


class Bigram(nn.Module):
    def __init__(self, grid):
        super().__init__()
        self.grid = grid
        rows = VOCAB // grid.tp
        self.words = nn.Parameter(torch.randn(rows, WIDTH))
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.3)
        self.mix = nn.Linear(WIDTH, 2 * WIDTH)
        self.unmix = nn.Linear(2 * WIDTH, WIDTH)
        self.scores = nn.Parameter(torch.randn(rows, WIDTH))

    def look_up(self, tokens):
        local, mine = own_rows(tokens, self.words.shape[0], self.grid.tp_rank)
        return SumOut.apply(self.words[local] * mine[..., None], self.grid.tp_group)

    def forward(self, tokens, labels):
        h = self.look_up(tokens) + self.places
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], dim=1)
        h = h + self.unmix(torch.tanh(self.mix(h + 0.5 * before)))
        logits = SumBack.apply(h, self.grid.tp_group) @ self.scores.t()
        return VocabLoss.apply(logits, labels, self.grid).mean()


def build():
    net = Bigram(Grid())
    return net, Lion(net.parameters())


def train_step(net, opt, tokens, labels):
    grid = net.grid
    loss = net(tokens, labels)
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, group=grid.dp_group)
        p.grad /= grid.dp
    opt.step()
    opt.zero_grad()
    shown = loss.detach().clone()
    dist.all_reduce(shown, group=grid.dp_group)
    return shown / grid.dp
