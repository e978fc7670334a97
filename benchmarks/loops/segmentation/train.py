import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Segmenter(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, 6)
        self.layer = nn.Conv2d(6, 6, 3, padding=2, dilation=2)
        self.classifier = nn.Conv2d(6, classes, 1)
        self.aux_classifier = nn.Conv2d(6, classes, 1)

    def forward(self, x):
        input_shape = x.shape[-2:]
        low = F.relu(self.norm(self.stem(x)))
        high = F.relu(self.layer(low))
        out = F.interpolate(self.classifier(high), size=input_shape, mode="nearest")
        aux = F.interpolate(self.aux_classifier(low), size=input_shape, mode="nearest")
        return {"out": out, "aux": aux}


def criterion(inputs, target):
    losses = {}
    valid = (target != 255).sum()
    world = 1
    if dist.is_initialized():
        world = dist.get_world_size()
        dist.all_reduce(valid)
    for name, x in inputs.items():
        summed = nn.functional.cross_entropy(x, target, ignore_index=255, reduction="sum")
        losses[name] = world * summed / valid.clamp(min=1)
    if len(losses) == 1:
        return losses["out"]
    return losses["out"] + 0.5 * losses["aux"]


class SmoothedValue:
    def __init__(self, window_size=20):
        self.deque = []
        self.total = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n


def setup(model, inner):
    backbone = [inner.stem, inner.norm, inner.layer]
    params_to_optimize = [
        {"params": [p for m in backbone for p in m.parameters() if p.requires_grad]},
        {"params": [p for p in inner.classifier.parameters() if p.requires_grad]},
        {"params": [p for p in inner.aux_classifier.parameters()], "lr": 0.1 * 10},
    ]
    optimizer = torch.optim.SGD(params_to_optimize, lr=0.1, momentum=0.9, weight_decay=1e-4)
    iters = 50
    lr_scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=iters, power=0.9)
    return model, optimizer, lr_scheduler, SmoothedValue()


def single():
    model = Segmenter()
    return setup(model, model)


def parallel():
    model = Segmenter()
    return setup(nn.parallel.DistributedDataParallel(model), model)


def train_step(model, optimizer, lr_scheduler, meter, image, target):
    model.train()
    output = model(image)
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    lr_scheduler.step()
    meter.update(loss.item())
