import torch
import torch.nn.functional as F
from one import Gated
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LinearLR


def init():
    net = DistributedDataParallel(Gated(), gradient_as_bucket_view=True)
    opt = torch.optim.Adagrad(net.parameters(), lr=0.01, eps=0.05)
    return net, opt, GradScaler("cpu"), LinearLR(opt, 0.1, 1.0, 20)


def train_step(net, opt, scaler, sched, x, y):
    opt.zero_grad()
    n = 2
    micro_x, micro_y = torch.chunk(x, n), torch.chunk(y, n)
    with net.no_sync():
        for k in range(n - 1):
            loss = F.huber_loss(net(micro_x[k]), micro_y[k])
            scaler.scale(loss / n).backward()
    last = F.huber_loss(net(micro_x[-1]), micro_y[-1])
    scaler.scale(last / n).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 0.3)
    scaler.step(opt)
    scaler.update()
    sched.step()
    return (loss + last).detach() / n
