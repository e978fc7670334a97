import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def gather(tensor):
    if not dist.is_initialized():
        return tensor
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.cat(parts)


class Policy(nn.Module):
    def __init__(self, vocab=7, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.mix(self.embed(ids))))


class GRPOTrainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.num_generations = 2
        self.epsilon, self.beta = 0.2, 0.04
        self.num_processes = dist.get_world_size() if dist.is_initialized() else 1
        self.process_index = dist.get_rank() if dist.is_initialized() else 0

    def advantages(self, rewards):
        local = len(rewards)
        rewards = gather(rewards)
        grouped = rewards.view(-1, self.num_generations)
        mean = grouped.mean(dim=1).repeat_interleave(self.num_generations, dim=0)
        std = grouped.std(dim=1).repeat_interleave(self.num_generations, dim=0)
        advantages = (rewards - mean) / (std + 1e-4)
        process_slice = slice(self.process_index * local, (self.process_index + 1) * local)
        return advantages[process_slice]

    def per_token_logps(self, ids):
        logps = self.model(ids[:, :-1]).log_softmax(-1)
        return logps.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)

    def compute_loss(self, ids, mask, advantages, old_logps, ref_logps):
        logps = self.per_token_logps(ids)
        coef_1 = torch.exp(logps - old_logps)
        coef_2 = torch.clamp(coef_1, 1 - self.epsilon, 1 + self.epsilon)
        advantages = advantages.unsqueeze(1)
        per_token_loss = -torch.min(coef_1 * advantages, coef_2 * advantages)
        per_token_kl = torch.exp(ref_logps - logps) - (ref_logps - logps) - 1
        per_token_loss = per_token_loss + self.beta * per_token_kl
        num_items_in_batch = gather(mask.sum().view(1)).sum()
        normalizer = num_items_in_batch.clamp(min=1) / self.num_processes
        return (per_token_loss * mask).sum() / normalizer


def single():
    model = Policy()
    return model, GRPOTrainer(model)


def parallel():
    model = DistributedDataParallel(Policy())
    return model, GRPOTrainer(model)


def train_step(model, trainer, ids, mask, rewards, old_logps, ref_logps):
    advantages = trainer.advantages(rewards)
    loss = trainer.compute_loss(ids, mask, advantages, old_logps, ref_logps)
    loss.backward()
    nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
