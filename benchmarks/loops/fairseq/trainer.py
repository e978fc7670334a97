import contextlib
import math

import torch
import torch.distributed as dist
from criterion import LabelSmoothedCrossEntropyCriterion
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PAD = 1


class Seq2Seq(nn.Module):
    def __init__(self, vocab=12, dim=8):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.encoder = nn.Linear(dim, dim)
        self.decoder = nn.Linear(dim, dim)
        self.layer_norm = nn.LayerNorm(dim)
        self.output_projection = nn.Linear(dim, vocab, bias=False)

    def forward(self, src_tokens, prev_output_tokens):
        memory = torch.tanh(self.encoder(self.embed_tokens(src_tokens))).mean(1, keepdim=True)
        x = self.decoder(self.embed_tokens(prev_output_tokens)) + memory
        return self.output_projection(self.layer_norm(x))


class FairseqAdam:
    def __init__(self, params):
        self.params = list(params)
        self.optimizer = torch.optim.Adam(
            self.params, lr=5e-3, betas=(0.9, 0.98), weight_decay=1e-4
        )

    def backward(self, loss):
        loss.backward()

    def multiply_grads(self, c):
        for p in self.params:
            if p.grad is not None:
                if torch.is_tensor(c):
                    c = c.to(p.grad.device)
                p.grad.data.mul_(c)

    def clip_grad_norm(self, max_norm):
        grads = [p.grad.detach() for p in self.params if p.grad is not None]
        total_norm = torch.norm(
            torch.stack([torch.norm(g, p=2, dtype=torch.float32) for g in grads])
        )
        if max_norm > 0:
            clip_coef = (float(max_norm) / (total_norm + 1e-6)).clamp_(max=1)
            torch._foreach_mul_(grads, clip_coef)
        return total_norm

    def set_lr(self, lr):
        for param_group in self.optimizer.param_groups:
            param_group["lr"] = lr

    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        for p in self.params:
            p.grad = None
        self.optimizer.zero_grad()


class InverseSquareRootSchedule:
    def __init__(self, optimizer, warmup_updates=40, lr=5e-3):
        self.optimizer = optimizer
        self.warmup_updates, self.lr = warmup_updates, lr

    def step_update(self, num_updates):
        step = max(num_updates, 1)
        factor = min(step / self.warmup_updates, math.sqrt(self.warmup_updates / step))
        self.optimizer.set_lr(self.lr * factor)


class Trainer:
    def __init__(self, model, world_size):
        self.model = model
        self.data_parallel_world_size = world_size
        self.criterion = LabelSmoothedCrossEntropyCriterion(PAD)
        self.optimizer = FairseqAdam(p for p in model.parameters() if p.requires_grad)
        self.lr_scheduler = InverseSquareRootSchedule(self.optimizer)
        self.lr_scheduler.step_update(0)
        self.num_updates = 0

    def train_step(self, samples):
        self.model.train()
        self.criterion.train()
        self.optimizer.zero_grad()
        logging_outputs, sample_size = [], 0
        for i, sample in enumerate(samples):

            def maybe_no_sync(last=i == len(samples) - 1):
                if self.data_parallel_world_size > 1 and not last:
                    return self.model.no_sync()
                return contextlib.ExitStack()

            with maybe_no_sync():
                loss, sample_size_i, logging_output = self.criterion(self.model, sample)
                self.optimizer.backward(loss)
                del loss
            logging_outputs.append(logging_output)
            sample_size = sample_size + sample_size_i
        total = sum(log["loss"] for log in logging_outputs)
        if self.data_parallel_world_size > 1:
            buf = torch.stack([total.double(), sample_size.double()])
            dist.all_reduce(buf)
            total, sample_size = buf[0].float(), buf[1].float()
        numer = self.data_parallel_world_size
        self.optimizer.multiply_grads(numer / (sample_size or 1.0))
        grad_norm = self.optimizer.clip_grad_norm(0.5)
        self.optimizer.step()
        self.num_updates += 1
        self.lr_scheduler.step_update(self.num_updates)
        return total / sample_size / math.log(2), grad_norm


def single():
    trainer = Trainer(Seq2Seq(), 1)
    return trainer.model, trainer


def parallel():
    trainer = Trainer(DistributedDataParallel(Seq2Seq()), dist.get_world_size())
    return trainer.model, trainer


def train_step(model, trainer, src_tokens, prev_output_tokens, target):
    samples = [
        {
            "net_input": {"src_tokens": s, "prev_output_tokens": p},
            "target": t,
            "ntokens": t.ne(PAD).sum(),
        }
        for s, p, t in zip(
            src_tokens.chunk(2), prev_output_tokens.chunk(2), target.chunk(2), strict=True
        )
    ]
    loss, grad_norm = trainer.train_step(samples)
    return loss
