import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(8, 12)
        self.l2 = nn.Linear(12, 12)
        self.l3 = nn.Linear(12, 8)

    def forward(self, x):
        x = torch.sigmoid(self.l1(x))
        x = torch.sigmoid(self.l2(x)) + x
        return self.l3(x)


def create():
    model = Regressor()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.8, nesterov=True, weight_decay=1e-3
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    return model, optimizer, scheduler


def train_step(model, optimizer, scheduler, data, label):
    optimizer.zero_grad()
    loss = nn.MSELoss()(model(data), label)
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss
