"""Modules that change buffers and tensors they keep, as their users write them, and the models."""

import torch
from torch import nn
from torch.nn.functional import batch_norm


class Normed(nn.Module):
    """A batch norm by channel, of all channels or of a rank's."""

    def __init__(self, n=1):
        super().__init__()
        self.up = nn.Linear(4, 4 // n, bias=False)
        self.norm = nn.BatchNorm1d(4 // n)

    def forward(self, x):
        return self.norm(self.up(x))


class SplitNormed(Normed):
    def __init__(self, tp_size):
        super().__init__(tp_size)


class Slower(SplitNormed):
    def __init__(self, tp_size):
        super().__init__(tp_size)
        self.norm.momentum = 0.01  # here


class OneSlower(SplitNormed):
    """Only what one rank keeps is another value."""

    def __init__(self, tp_size, tp_rank):
        super().__init__(tp_size)
        self.norm.momentum = 0.01 if tp_rank else 0.1


class Held(SplitNormed):
    """Its forward reaches the statistics through a closure alone."""

    momentum = 0.1

    def __init__(self, tp_size):
        super().__init__(tp_size)
        mean, var = self.norm.running_mean, self.norm.running_var

        def forward(x):
            norm, x = self.norm, self.up(x)
            norm.num_batches_tracked.add_(1)
            return batch_norm(x, mean, var, norm.weight, norm.bias, True, self.momentum)

        self.forward = forward


class HeldSlower(Held):
    momentum = 0.01


class NeverMoved(SplitNormed):
    def forward(self, x):
        return batch_norm(self.up(x), None, None, self.norm.weight, self.norm.bias, True)


class Replaced(SplitNormed):
    """The buffer is another tensor after each call."""

    def forward(self, x):
        self.norm.running_mean = self.norm.running_mean * 2
        return super().forward(x)


class Cached(nn.Module):
    """What is computed for a row is kept, and added up with what was kept of others."""

    start = 1

    def __init__(self, n=1):
        super().__init__()
        self.up = nn.Linear(4, 8 // n, bias=False)
        self.kept = torch.zeros(6, 8 // n)

    def forward(self, x):
        self.kept[self.start : self.start + len(x)] = self.up(x)
        return self.kept[: self.start + len(x)].relu().sum(0)


class SplitCached(Cached):
    def __init__(self, tp_size):
        super().__init__(tp_size)


class OtherPlace(SplitCached):
    """What is returned is right: it is kept in another place."""

    def forward(self, x):
        y = super().forward(x)
        self.kept[5] = self.kept[0]
        return y


class Viewed(SplitCached):
    """What is kept is read by another name."""

    def __init__(self, tp_size):
        super().__init__(tp_size)
        self.first = self.kept[:3]

    def forward(self, x):
        return super().forward(x) + self.first.sum(0)


class Room(Normed):
    """Works in a buffer that the model does not have."""

    used = 4

    def __init__(self, tp_size):
        super().__init__(tp_size)
        self.register_buffer("room", torch.zeros(4, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.room[: self.used] = x[: self.used]
        return super().forward(self.room)


class ReadBefore(Room):
    used = 3


class TwoNames(SplitNormed):
    """What is written by one name is read by another, and the model has neither."""

    def __init__(self, tp_size):
        super().__init__(tp_size)
        self.register_buffer("by", torch.ones(1))
        self.same = self.by

    def forward(self, x):
        y = super().forward(x) * self.by
        self.same.add_(0.5)
        return y
