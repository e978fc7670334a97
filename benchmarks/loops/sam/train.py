import torch
from sam import SAM
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def build(wrap):
    model = wrap(nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 5)))
    optimizer = SAM(
        model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9, weight_decay=5e-4
    )
    return model, optimizer


def single():
    return build(lambda model: model)


def parallel():
    return build(DistributedDataParallel)


def smooth_crossentropy(pred, gold):
    return F.cross_entropy(pred, gold, label_smoothing=0.1, reduction="none")


def train_step(model, optimizer, inputs, targets):
    predictions = model(inputs)
    loss = smooth_crossentropy(predictions, targets).mean()
    loss.backward()
    optimizer.first_step(zero_grad=True)

    second = smooth_crossentropy(model(inputs), targets)
    second.mean().backward()
    optimizer.second_step(zero_grad=True)
    return loss.detach()
