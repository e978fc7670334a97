import contextlib

import torch
from modeling import ForCausalLM
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR


class AcceleratedOptimizer:
    def __init__(self, optimizer, state):
        self.optimizer, self.state = optimizer, state

    def step(self):
        if self.state.sync_gradients:
            self.optimizer.step()

    def zero_grad(self):
        if self.state.sync_gradients:
            self.optimizer.zero_grad()


class AcceleratedScheduler:
    def __init__(self, scheduler, state):
        self.scheduler, self.state = scheduler, state

    def step(self):
        if self.state.sync_gradients:
            self.scheduler.step()


class GradientState:
    sync_gradients = True


class Accelerator:
    def __init__(self, gradient_accumulation_steps):
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.gradient_state = GradientState()
        self.step = 0

    def prepare(self, model, optimizer, scheduler):
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            model = DistributedDataParallel(model)
        return (
            model,
            AcceleratedOptimizer(optimizer, self.gradient_state),
            AcceleratedScheduler(scheduler, self.gradient_state),
        )

    @contextlib.contextmanager
    def accumulate(self, model):
        self.step += 1
        self.gradient_state.sync_gradients = self.step % self.gradient_accumulation_steps == 0
        context = contextlib.nullcontext
        if not self.gradient_state.sync_gradients:
            context = getattr(model, "no_sync", context)
        with context():
            yield

    def backward(self, loss):
        (loss / self.gradient_accumulation_steps).backward()


def get_scheduler(optimizer, num_warmup_steps, num_training_steps):
    def lr_lambda(current_step):
        if current_step < num_warmup_steps:
            return float(current_step) / float(max(1, num_warmup_steps))
        left = float(num_training_steps - current_step)
        return max(0.0, left / float(max(1, num_training_steps - num_warmup_steps)))

    return LambdaLR(optimizer, lr_lambda)


def build():
    model = ForCausalLM()
    no_decay = ["bias", "layernorm.weight"]
    named = list(model.named_parameters())
    optimizer_grouped_parameters = [
        {
            "params": [p for n, p in named if not any(nd in n for nd in no_decay)],
            "weight_decay": 0.01,
        },
        {"params": [p for n, p in named if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(optimizer_grouped_parameters, lr=5e-3)
    lr_scheduler = get_scheduler(optimizer, 10, 200)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model, optimizer, lr_scheduler = accelerator.prepare(model, optimizer, lr_scheduler)
    return model, optimizer, lr_scheduler, accelerator


def train_step(model, optimizer, lr_scheduler, accelerator, input_ids):
    total_loss = 0
    completed_steps = 0
    for chunk in input_ids.chunk(2):
        batch = {"input_ids": chunk, "labels": chunk.clone()}
        with accelerator.accumulate(model):
            outputs = model(**batch)
            loss = outputs.loss
            total_loss += loss.detach().float()
            accelerator.backward(loss)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
        if accelerator.gradient_state.sync_gradients:
            completed_steps += 1


single = parallel = build
