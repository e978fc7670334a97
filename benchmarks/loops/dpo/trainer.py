import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self, vocab=9, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)
        self.lm_head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        return self.lm_head(torch.tanh(self.mix(self.embed(ids))))


class DPOTrainer:
    def __init__(self, model, beta=0.1, label_smoothing=0.1):
        self.model = model
        self.beta, self.label_smoothing = beta, label_smoothing
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-4)

    def concatenated_forward(self, chosen, rejected, chosen_mask, rejected_mask):
        ids = torch.cat((chosen, rejected), dim=0)
        mask = torch.cat((chosen_mask, rejected_mask), dim=0)
        logits = self.model(ids[:, :-1])
        labels, loss_mask = ids[:, 1:].clone(), mask[:, 1:].bool()
        labels[~loss_mask] = 0
        per_token_logps = torch.gather(
            logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)
        ).squeeze(2)
        per_token_logps = per_token_logps * loss_mask
        all_logps = per_token_logps.sum(-1)
        num = chosen.shape[0]
        return all_logps[:num], all_logps[num:]

    def dpo_loss(self, chosen_logps, rejected_logps, ref_chosen_logps, ref_rejected_logps):
        logratios = chosen_logps - rejected_logps
        ref_logratios = ref_chosen_logps - ref_rejected_logps
        logits = logratios - ref_logratios
        losses = (
            -F.logsigmoid(self.beta * logits) * (1 - self.label_smoothing)
            - F.logsigmoid(-self.beta * logits) * self.label_smoothing
        )
        chosen_rewards = self.beta * (chosen_logps - ref_chosen_logps).detach()
        rejected_rewards = self.beta * (rejected_logps - ref_rejected_logps).detach()
        return losses, chosen_rewards, rejected_rewards

    def step(self, chosen, rejected, chosen_mask, rejected_mask, ref_chosen, ref_rejected):
        chosen_logps, rejected_logps = self.concatenated_forward(
            chosen, rejected, chosen_mask, rejected_mask
        )
        losses, chosen_rewards, rejected_rewards = self.dpo_loss(
            chosen_logps, rejected_logps, ref_chosen, ref_rejected
        )
        accuracy = (chosen_rewards > rejected_rewards).float().mean()
        if dist.is_initialized():
            dist.all_reduce(accuracy)
            accuracy /= dist.get_world_size()
        self.metrics = {"rewards/accuracies": accuracy.item()}
        loss = losses.mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def single():
    model = Policy()
    return model, DPOTrainer(model)


def parallel():
    model = DistributedDataParallel(Policy(), static_graph=True, gradient_as_bucket_view=True)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return model, DPOTrainer(model)


def train_step(
    model, trainer, chosen, rejected, chosen_mask, rejected_mask, ref_chosen, ref_rejected
):
    trainer.step(chosen, rejected, chosen_mask, rejected_mask, ref_chosen, ref_rejected)
