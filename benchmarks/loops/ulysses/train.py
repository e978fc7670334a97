import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.nn.functional as F
from model import Model


class Trainer:
    """Ranks have parts of each sequence; what each loses counts for its good tokens."""

    def __init__(self, model, sp_group=None):
        self.model = model
        self.sp_group = sp_group
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss(self, input_ids, shift_labels):
        logits = self.model(input_ids)
        if self.sp_group is None:
            return F.cross_entropy(logits.flatten(0, 1), shift_labels.flatten(), ignore_index=-100)
        sp_world_size = dist.get_world_size(self.sp_group)
        good_tokens = (shift_labels != -100).view(-1).sum()
        total = F.cross_entropy(
            logits.flatten(0, 1), shift_labels.flatten(), ignore_index=-100, reduction="sum"
        )
        loss = total / good_tokens.clamp(min=1)
        losses_per_rank = torch.distributed.nn.functional.all_gather(loss, group=self.sp_group)
        good_tokens_per_rank = torch.distributed.nn.functional.all_gather(
            good_tokens, group=self.sp_group
        )
        total_loss = sum(
            losses_per_rank[rank] * good_tokens_per_rank[rank] for rank in range(sp_world_size)
        )
        total_good_tokens = sum(good_tokens_per_rank)
        return total_loss / total_good_tokens

    def step(self, input_ids, shift_labels):
        loss = self.loss(input_ids, shift_labels)
        loss.backward()
        if self.sp_group is not None:
            for p in self.model.parameters():
                dist.all_reduce(p.grad, group=self.sp_group)
                p.grad /= dist.get_world_size(self.sp_group)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def single():
    model = Model()
    return model, Trainer(model)


def parallel(mesh):
    model = Model(group=mesh.get_group("sp"))
    return model, Trainer(model, mesh.get_group("sp"))


def train_step(model, trainer, input_ids, shift_labels):
    trainer.step(input_ids, shift_labels)
