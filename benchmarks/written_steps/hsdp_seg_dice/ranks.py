import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.distributed.fsdp import fully_shard
from torch.distributed.nn.functional import all_reduce as differentiable_all_reduce

CLASSES, VOID = 4, 4


class SegNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.GELU())
        self.down = nn.Sequential(nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.GroupNorm(3, 12), nn.GELU())
        self.fuse = nn.Conv2d(20, 8, 3, padding=1)
        self.classify = nn.Conv2d(8, CLASSES, 1)

    def forward(self, image):
        fine = self.stem(image)
        coarse = F.interpolate(self.down(fine), size=fine.shape[-2:], mode="nearest")
        return self.classify(F.gelu(self.fuse(torch.cat([fine, coarse], dim=1))))


def dice(logits, mask, smooth=1.0):
    # batch dice: the overlap is of the whole batch, so both sums go over every replica.
    # all_reduce is itself a sum in backward, which undoes the mean FSDP takes.
    keep = (mask != VOID).unsqueeze(1)
    prob = logits.softmax(1) * keep
    hot = F.one_hot(mask, CLASSES + 1)[..., :CLASSES].permute(0, 3, 1, 2).to(prob.dtype)
    inter = differentiable_all_reduce((prob * hot).sum((0, 2, 3)))
    area = differentiable_all_reduce((prob + hot).sum((0, 2, 3)))
    return 1 - ((2 * inter + smooth) / (area + smooth)).mean()


def pixel_loss(logits, mask):
    pixels = (mask != VOID).sum()
    dist.all_reduce(pixels)
    total = F.cross_entropy(logits, mask, ignore_index=VOID, reduction="sum")
    return total / pixels * dist.get_world_size()


def build(mesh):
    net = SegNet()
    fully_shard(net.stem, mesh=mesh)
    fully_shard(net.down, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net, torch.optim.RAdam(net.parameters(), lr=5e-2, weight_decay=1e-3)


def train_step(net, opt, image, mask):
    logits = net(image)
    loss = pixel_loss(logits, mask) + 0.5 * dice(logits, mask)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    return loss.detach()
