import time
from enum import Enum

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.optim.lr_scheduler import StepLR


class Net(nn.Module):
    def __init__(self, num_classes=6):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, kernel_size=3, stride=2, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(2, 4)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=2, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(4, num_classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.norm1(self.conv1(x))))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


class Summary(Enum):
    NONE = 0
    AVERAGE = 1


class AverageMeter:
    def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
        self.name = name
        self.fmt = fmt
        self.summary_type = summary_type
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / batch_size))
        return res


class Meters:
    def __init__(self):
        self.batch_time = AverageMeter("Time", ":6.3f", Summary.NONE)
        self.losses = AverageMeter("Loss", ":.4e", Summary.NONE)
        self.top1 = AverageMeter("Acc@1", ":6.2f")
        self.top5 = AverageMeter("Acc@5", ":6.2f")
        self.end = 0.0
        self.i = 0


def single():
    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    return model, criterion, optimizer, scheduler, Meters()


def parallel():
    model = torch.nn.parallel.DistributedDataParallel(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=30, gamma=0.1)
    return model, criterion, optimizer, scheduler, Meters()


def train_step(model, criterion, optimizer, scheduler, meters, images, target):
    model.train()
    output = model(images)
    loss = criterion(output, target)
    acc1, acc5 = accuracy(output, target, topk=(1, 5))
    meters.losses.update(loss.item(), images.size(0))
    meters.top1.update(acc1[0], images.size(0))
    meters.top5.update(acc5[0], images.size(0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meters.batch_time.update(time.time() - meters.end)
    meters.end = time.time()
    if meters.i % 10 == 0 and (not dist.is_initialized() or dist.get_rank() == 0):
        print("\t".join(str(m) for m in (meters.losses, meters.top1, meters.top5)))
    meters.i += 1
    scheduler.step()
