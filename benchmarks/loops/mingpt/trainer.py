import time
from collections import defaultdict

import torch
from mingpt import GPT
from torch.nn.parallel import DistributedDataParallel


class Config:
    learning_rate = 3e-4
    betas = (0.9, 0.95)
    weight_decay = 0.1
    grad_norm_clip = 1.0


class Trainer:
    def __init__(self, config, model):
        self.config = config
        self.model = model
        self.optimizer = None
        self.callbacks = defaultdict(list)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = self.model.to(self.device)
        self.iter_num = 0
        self.iter_time = 0.0
        self.iter_dt = 0.0

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks.get(onevent, []):
            callback(self)

    def configure_optimizers(self):
        decay, no_decay = set(), set()
        for name, p in self.model.named_parameters():
            (no_decay if name.endswith("bias") or "ln_" in name else decay).add(name)
        named = dict(self.model.named_parameters())
        groups = [
            {"params": [named[n] for n in sorted(decay)], "weight_decay": 0.1},
            {"params": [named[n] for n in sorted(no_decay)], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=self.config.learning_rate, betas=self.config.betas
        )

    def run_iter(self, batch):
        model, config = self.model, self.config
        model.train()
        batch = [t.to(self.device) for t in batch]
        x, y = batch
        logits, self.loss = model(x, y)
        model.zero_grad(set_to_none=True)
        self.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
        self.optimizer.step()
        self.trigger_callbacks("on_batch_end")
        self.iter_num += 1
        tnow = time.time()
        self.iter_dt = tnow - self.iter_time
        self.iter_time = tnow


def report(trainer):
    if trainer.iter_num % 10 == 0:
        print(
            f"iter_dt {trainer.iter_dt * 1000:.2f}ms; iter {trainer.iter_num}: "
            f"train loss {trainer.loss.item():.5f}"
        )


def single():
    trainer = Trainer(Config(), GPT())
    trainer.configure_optimizers()
    trainer.add_callback("on_batch_end", report)
    return trainer.model, trainer


def parallel():
    trainer = Trainer(Config(), DistributedDataParallel(GPT()))
    trainer.configure_optimizers()
    trainer.add_callback("on_batch_end", report)
    return trainer.model, trainer


def train_step(model, trainer, x, y):
    trainer.run_iter((x, y))
