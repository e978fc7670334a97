import contextlib

import torch
import torch.nn.functional as F
from model import Transformer
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

IGNORE_INDEX = -100


def apply_tp(model, tp_mesh):
    parallelize_module(
        model,
        tp_mesh,
        {
            "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "output": ColwiseParallel(
                input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
            ),
        },
    )
    for block in model.layers.values():
        plan = {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        }
        parallelize_module(block, tp_mesh, plan)


class OptimizersContainer:
    def __init__(self, parts):
        self.optimizers = [torch.optim.AdamW(m.parameters(), lr=8e-4, eps=1e-8) for m in parts]

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()


class LRSchedulersContainer:
    def __init__(self, optimizers, warmup=5, decay=50):
        def linear_warmup_stable_decay(current_step):
            if current_step < warmup:
                return float((current_step + 1) / warmup)
            return max(0.0, 1.0 - (current_step - warmup) / decay)

        self.schedulers = [
            torch.optim.lr_scheduler.LambdaLR(o, linear_warmup_stable_decay)
            for o in optimizers.optimizers
        ]

    def step(self):
        for scheduler in self.schedulers:
            scheduler.step()


def cross_entropy_loss(pred, labels):
    return F.cross_entropy(
        pred.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum", ignore_index=IGNORE_INDEX
    )


class Trainer:
    def __init__(self, world_mesh=None):
        model = Transformer()
        self.tp = world_mesh is not None
        if self.tp:
            apply_tp(model, world_mesh["tp"])
        model.train()
        self.model_parts = [model]
        self.optimizers = OptimizersContainer(self.model_parts)
        self.lr_schedulers = LRSchedulersContainer(self.optimizers)
        self.gradient_accumulation_steps = 2
        self.step = 0

    @contextlib.contextmanager
    def train_context(self):
        with contextlib.ExitStack() as stack:
            if self.tp:
                stack.enter_context(loss_parallel())
            yield

    def forward_backward_step(self, inputs, labels, global_valid_tokens):
        with self.train_context():
            pred = self.model_parts[0](inputs)
            loss_sum = cross_entropy_loss(pred, labels)
            loss = loss_sum / global_valid_tokens
            del pred
            loss.backward()
        return loss

    def train_step(self, data_iterator):
        self.optimizers.zero_grad()
        microbatches = []
        local_valid_tokens = torch.tensor(0, dtype=torch.int64)
        for _microbatch in range(self.gradient_accumulation_steps):
            input, labels = next(data_iterator)
            local_valid_tokens += (labels != IGNORE_INDEX).sum()
            microbatches.append((input, labels))
        global_valid_tokens = local_valid_tokens
        accumulated_losses = []
        for input, labels in microbatches:
            loss = self.forward_backward_step(input, labels, global_valid_tokens)
            accumulated_losses.append(loss.detach())
        grad_norm = torch.nn.utils.clip_grad_norm_(
            [p for m in self.model_parts for p in m.parameters()], 1.0, foreach=True
        )
        if isinstance(grad_norm, DTensor):
            grad_norm = grad_norm.full_tensor()
        self.optimizers.step()
        self.lr_schedulers.step()
        loss = torch.sum(torch.stack(accumulated_losses))
        self.step += 1
        return loss


def single():
    trainer = Trainer()
    return trainer.model_parts[0], trainer


def parallel(mesh):
    trainer = Trainer(mesh)
    return trainer.model_parts[0], trainer


def train_step(model, trainer, tokens, labels):
    loss = trainer.train_step(zip(tokens.chunk(2), labels.chunk(2), strict=True))
    return loss.full_tensor() if isinstance(loss, DTensor) else loss
