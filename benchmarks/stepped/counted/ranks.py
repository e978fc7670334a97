import torch
import torch.distributed as dist
import torch.nn.functional as F
from one import PAD, TiedLM


def prepare():
    model = TiedLM()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)


def train_step(model, optimizer, ids, labels):
    optimizer.zero_grad()
    logits = model(ids)
    losses = F.cross_entropy(logits.view(-1, 16), labels.view(-1), reduction="none")
    mask = (labels.view(-1) != PAD).to(losses.dtype)
    num_tokens = mask.sum()
    dist.all_reduce(num_tokens, op=dist.ReduceOp.SUM)
    loss = (losses * mask).sum() / num_tokens
    loss.backward()
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)
    optimizer.step()
    reported = loss.detach().clone()
    dist.all_reduce(reported)
    return reported
