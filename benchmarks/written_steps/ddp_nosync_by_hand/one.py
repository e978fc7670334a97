import torch
import torch.nn as nn
import torch.nn.functional as F

TEMPERATURE = 3.0


def student():
    return nn.Sequential(
        nn.Linear(9, 14),
        nn.ELU(),
        nn.Linear(14, 14),
        nn.Softplus(),
        nn.Linear(14, 5),
    )


def distill(scores, teacher):
    log_p = F.log_softmax(scores / TEMPERATURE, dim=-1)
    q = F.softmax(teacher / TEMPERATURE, dim=-1)
    return F.kl_div(log_p, q, reduction="batchmean") * TEMPERATURE ** 2


def build():
    net = student()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.8, dampening=0.2)
    return net, sgd


def train_step(net, sgd, obs, teacher):
    sgd.zero_grad()
    loss = distill(net(obs), teacher)
    loss.backward()
    sgd.step()
    return loss.detach()
