"""Pipelines as their users write them with torch.distributed.pipelining, and what goes wrong."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)


def loss(y, target):
    return ((y - target) ** 2).mean()


class Net(nn.Module):
    """Layers that a stage keeps some of."""

    def __init__(self, layers=4, first=0, last=None, tied=False):
        super().__init__()
        names = [str(i) for i in range(layers)][first:last]
        self.layers = nn.ModuleDict({n: nn.Linear(2, 2, bias=False) for n in names})
        if tied:
            self.layers["3"].weight = self.layers["0"].weight

    def through(self, x):
        for layer in self.layers.values():
            x = torch.relu(layer(x))
        return x

    def forward(self, x, target):
        return loss(self.through(x), target)


class Both(Net):
    def forward(self, x, target):
        y = self.through(x)
        return y, loss(y, target)


class Tied(Net):
    def __init__(self):
        super().__init__(tied=True)


class Plain(Net):
    def forward(self, x):
        return self.through(x)


class Stage(Net):
    def forward(self, x):
        return self.through(x)


def stage(module, index, count, group, **more):
    return PipelineStage(module, index, count, torch.device("cpu"), group=group, **more)


def cut(pp_rank, pp_size, pp_group):
    each = 4 // pp_size
    part = Stage(4, pp_rank * each, (pp_rank + 1) * each)
    return stage(part, pp_rank, pp_size, pp_group)


def gpipe(pp_rank, pp_size, pp_group):
    return ScheduleGPipe(cut(pp_rank, pp_size, pp_group), 2, loss_fn=loss)


def one_forward_one_backward(pp_rank, pp_size, pp_group, micro_batches=2):
    return Schedule1F1B(cut(pp_rank, pp_size, pp_group), micro_batches, loss_fn=loss)


def known_shapes(pp_rank, pp_size, pp_group):
    x = torch.zeros(2, 2, requires_grad=pp_rank > 0)
    y = torch.zeros(2, 2, requires_grad=True)
    part = Stage(4, pp_rank * 2, pp_rank * 2 + 2)
    one = stage(part, pp_rank, pp_size, pp_group, input_args=x, output_args=y)
    return Schedule1F1B(one, 2, loss_fn=loss)


def several(numbers, pp_size, pp_group):
    return [stage(Stage(4, i, i + 1), i, 2 * pp_size, pp_group) for i in numbers]


def interleaved(pp_rank, pp_size, pp_group):
    found = several((pp_rank, pp_rank + pp_size), pp_size, pp_group)
    return ScheduleInterleaved1F1B(found, 2, loss_fn=loss)


def zero_bubble(pp_rank, pp_size, pp_group):
    found = several((pp_rank, pp_rank + pp_size), pp_size, pp_group)
    return ScheduleInterleavedZeroBubble(found, 2, loss_fn=loss)


def in_a_v(pp_rank, pp_size, pp_group):
    found = several((pp_rank, 2 * pp_size - 1 - pp_rank), pp_size, pp_group)
    return ScheduleZBVZeroBubble(found, 4, loss_fn=loss)


def in_a_v_not_divided(pp_rank, pp_size, pp_group):
    found = several((pp_rank, 2 * pp_size - 1 - pp_rank), pp_size, pp_group)
    return ScheduleZBVZeroBubble(found, 4, loss_fn=loss, scale_grads=False)


def forward_alone(pp_rank, pp_size, pp_group):
    return ScheduleGPipe(cut(pp_rank, pp_size, pp_group), 2)


def summed(pipeline):
    """Sums the gradients of the weight that both ends have."""
    ends = {"stage0": "0", "stage1": "3"}
    for name, layer in ends.items():
        if hasattr(pipeline, name):
            dist.all_reduce(getattr(pipeline, name).layers[layer].weight.grad)


def not_summed(pipeline):
    pass


def not_divided(pp_rank, pp_size, pp_group):
    one = cut(pp_rank, pp_size, pp_group)
    return Schedule1F1B(one, 2, loss_fn=loss, scale_grads=False)


def divided_twice(pp_rank, pp_size, pp_group):
    def half(y, target):
        return loss(y, target) / 2

    return Schedule1F1B(cut(pp_rank, pp_size, pp_group), 2, loss_fn=half)


class Skipping(Stage):
    def through(self, x):
        return torch.relu(self.layers["2"](x))


class Backwards(Stage):
    def through(self, x):
        return torch.relu(self.layers["2"](torch.relu(self.layers["3"](x))))


class Detached(Stage):
    def through(self, x):
        return super().through(x.detach() + 0 * x)


class Counting(Stage):
    """Every step runs otherwise than the one before."""

    calls = 0

    def through(self, x):
        self.calls += 1
        return super().through(x) * self.calls


class Flipped(Stage):
    def through(self, x):
        return super().through(x.flip(0))


def last_stage(kind):
    def build(pp_rank, pp_size, pp_group):
        part = kind(4, 2) if pp_rank else Stage(4, 0, 2)
        return Schedule1F1B(stage(part, pp_rank, pp_size, pp_group), 2, loss_fn=loss)

    return build


skipped, backwards, detached = map(last_stage, (Skipping, Backwards, Detached))
flipped, counting = map(last_stage, (Flipped, Counting))


def doubled(pp_rank, pp_size, pp_group):
    part = Stage(4, pp_rank, pp_rank + 3) if pp_rank else Stage(4, 0, 2)
    return Schedule1F1B(stage(part, pp_rank, pp_size, pp_group), 2, loss_fn=loss)


def lost(pp_rank, pp_size, pp_group):
    part = Stage(4, 3) if pp_rank else Stage(4, 0, 2)
    return Schedule1F1B(stage(part, pp_rank, pp_size, pp_group), 2, loss_fn=loss)


def swapped(pp_rank, pp_size, pp_group):
    part = Stage(4, 0, 2) if pp_rank else Stage(4, 2)
    return Schedule1F1B(stage(part, pp_rank, pp_size, pp_group), 2, loss_fn=loss)


class Mixed(Schedule1F1B):
    """Micro-batches meet the targets of others."""

    def _step_microbatches(self, arg_mbs=None, kwarg_mbs=None, target_mbs=None, *more, **options):
        target_mbs = target_mbs and target_mbs[::-1]
        return super()._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, *more, **options)


def mixed(pp_rank, pp_size, pp_group):
    return Mixed(cut(pp_rank, pp_size, pp_group), 2, loss_fn=loss)


def not_a_schedule(pp_rank, pp_size, pp_group):
    return cut(pp_rank, pp_size, pp_group)


def other_counts(pp_rank, pp_size, pp_group):
    """The stages do not agree on how many micro-batches there are."""
    return ScheduleGPipe(cut(pp_rank, pp_size, pp_group), 2 if pp_rank else 4, loss_fn=loss)


def scaled_by_hand(pp_rank, pp_size, pp_group):
    def half(y, target):
        return loss(y, target) / 2

    one = cut(pp_rank, pp_size, pp_group)
    return Schedule1F1B(one, 2, loss_fn=half, scale_grads=False)


def forgotten(pipeline):
    """The gradients are cleared too early."""
    for p in pipeline.parameters():
        p.grad = None


def late(pipeline):
    """A gradient of one stage is scaled once more."""
    for p in getattr(pipeline, "stage1", nn.Module()).parameters():
        p.grad.div_(2)


class Leaking(Stage):
    """Of every micro-batch, the rows of the first are passed on."""

    kept = None

    def through(self, x):
        self.kept = x if self.kept is None else self.kept
        return super().through(self.kept + 0 * x)


leaking = last_stage(Leaking)


class Late(Schedule1F1B):
    """The last micro-batch has no backward that counts."""

    def step(self, *args, **options):
        out = super().step(*args, **options)
        for p in self._stage.submod.parameters():
            p.grad.mul_(0.5)
        return out


def halved(pp_rank, pp_size, pp_group):
    return Late(cut(pp_rank, pp_size, pp_group), 2, loss_fn=loss)


def in_replicas(pp_rank, pp_size, pp_group, dp_group):
    """Each replica has rows of its own."""
    schedule = ScheduleGPipe(cut(pp_rank, pp_size, pp_group), 2, loss_fn=loss)
    schedule._stage.submod.replicas = dp_group
    return schedule


def averaged(pipeline):
    for part in pipeline.children():
        for p in part.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG, group=part.replicas)


def words_loss(y, target):
    return nn.functional.cross_entropy(y.flatten(0, 1), target.flatten())


class Words(nn.Module):
    """A model of words, of which a stage has the first or the last part."""

    def __init__(self, first=True, last=True):
        super().__init__()
        if first:
            self.words = nn.Embedding(5, 4)
            self.up = nn.Linear(4, 8)
        if last:
            self.norm = nn.LayerNorm(8)
            self.head = nn.Linear(8, 5, bias=False)

    def through(self, x):
        if hasattr(self, "words"):
            x = nn.functional.gelu(self.up(self.words(x)))
        return self.head(self.norm(x)) if hasattr(self, "head") else x

    def forward(self, x, target):
        return words_loss(self.through(x), target)


class PartOfWords(Words):
    def forward(self, x):
        return self.through(x)


def words(pp_rank, pp_size, pp_group, kind=Schedule1F1B):
    part = PartOfWords(pp_rank == 0, pp_rank == 1)
    return kind(stage(part, pp_rank, pp_size, pp_group), 2, loss_fn=words_loss)


def mixed_words(pp_rank, pp_size, pp_group):
    return words(pp_rank, pp_size, pp_group, Mixed)


def words_passed_on(pp_rank, pp_size, pp_group):
    """The first stage gives on what it is given: integers."""
    part = PartOfWords(pp_rank == 1, pp_rank == 1)
    return Schedule1F1B(stage(part, pp_rank, pp_size, pp_group), 2, loss_fn=words_loss)
