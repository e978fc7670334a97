import torch
import torch.distributed as dist
from modeling import BertForMaskedLM
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TrainingArguments:
    learning_rate = 5e-4
    max_grad_norm = 1.0
    gradient_accumulation_steps = 2


class TrainerState:
    global_step = 0
    log_history = []


class Trainer:
    def __init__(self, model, args):
        self.model, self.args, self.state = model, args, TrainerState()
        self.world_size = dist.get_world_size() if dist.is_initialized() else 1
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, eps=1e-8)
        self.lr_scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, 100)
        self._tr_loss = torch.tensor(0.0)

    def get_batch_samples(self, batches):
        num_items_in_batch = sum((batch["labels"].ne(-100)).sum() for batch in batches)
        if self.world_size > 1:
            dist.all_reduce(num_items_in_batch)
        return batches, num_items_in_batch

    def compute_loss(self, model, inputs, num_items_in_batch):
        labels = inputs.pop("labels")
        logits = model(**inputs)
        loss = nn.functional.cross_entropy(
            logits.view(-1, logits.size(-1)), labels.view(-1), ignore_index=-100, reduction="sum"
        )
        loss = loss / num_items_in_batch
        return loss * self.world_size

    def training_step(self, model, inputs, num_items_in_batch):
        model.train()
        loss = self.compute_loss(model, inputs, num_items_in_batch)
        loss.backward()
        return loss.detach()

    def inner_training_loop(self, batches):
        batch_samples, num_items_in_batch = self.get_batch_samples(batches)
        tr_loss = torch.tensor(0.0)
        for inputs in batch_samples:
            tr_loss = tr_loss + self.training_step(self.model, inputs, num_items_in_batch)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.lr_scheduler.step()
        self.model.zero_grad()
        self.state.global_step += 1
        return tr_loss


def single():
    model = BertForMaskedLM()
    return model, Trainer(model, TrainingArguments())


def parallel():
    model = DistributedDataParallel(BertForMaskedLM())
    return model, Trainer(model, TrainingArguments())


def train_step(model, trainer, input_ids, labels):
    batches = [{"input_ids": i, "labels": t} for i, t in zip(input_ids.split(2), labels.split(2))]
    trainer.inner_training_loop(batches)
