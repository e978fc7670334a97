import torch
from one import Net, warm_cosine
from torch import nn
from torch.distributed.fsdp import fully_shard

ACCUMULATE = 2


def build(mesh):
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh, reshard_after_forward=False)
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
    return net, opt, torch.optim.lr_scheduler.LambdaLR(opt, warm_cosine)


def train_step(net, opt, sched, x, y):
    opt.zero_grad(set_to_none=True)
    rows = x.shape[0] // ACCUMULATE
    total = 0.0
    for i in range(ACCUMULATE):
        net.set_requires_gradient_sync(i + 1 == ACCUMULATE)
        xb = x[i * rows : (i + 1) * rows]
        yb = y[i * rows : (i + 1) * rows]
        loss = nn.functional.l1_loss(net(xb), yb) / ACCUMULATE
        loss.backward()
        total += loss.detach()
    opt.step()
    sched.step()
    torch.distributed.all_reduce(total)
    return total / torch.distributed.get_world_size()
