import torch
import torch.distributed as dist
from ddp import DistributedDataParallel, finalize_model_grads
from model import GPTModel


def get_ltor_masks(data, eod_token=0):
    loss_mask = torch.ones(data.size(), dtype=torch.float)
    loss_mask[data == eod_token] = 0.0
    return loss_mask


def loss_func(loss_mask, output_tensor):
    losses = output_tensor.view(-1).float()
    loss_mask = loss_mask.view(-1).float()
    loss = torch.sum(losses * loss_mask)
    num_tokens = loss_mask.sum().clone().detach().to(torch.int)
    reporting_loss = torch.cat([loss.clone().detach().view(1), num_tokens.view(1)])
    return loss, num_tokens, {"lm loss": reporting_loss}


def forward_backward_no_pipelining(model, batches):
    total_num_tokens = torch.zeros([], dtype=torch.int)
    forward_data_store = []
    for tokens, labels in batches:
        loss_mask = get_ltor_masks(tokens)
        output_tensor = model(tokens, labels)
        loss, num_tokens, reduced = loss_func(loss_mask, output_tensor)
        total_num_tokens += num_tokens
        forward_data_store.append(reduced)
        loss.backward()
        model.accumulate()
    finalize_model_grads(model, total_num_tokens)
    return forward_data_store


class MegatronOptimizer:
    def __init__(self, model):
        self.params = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-3, weight_decay=0.01)

    def get_grad_norm(self):
        total = torch.zeros(1)
        for p in self.params:
            total += torch.norm(p.main_grad, 2.0) ** 2
        return total**0.5

    def step(self, clip_grad=1.0):
        grad_norm = self.get_grad_norm()
        clip_coeff = clip_grad / (grad_norm + 1.0e-6)
        clip_coeff = torch.clamp(clip_coeff, max=1.0)
        for p in self.params:
            p.main_grad.mul_(clip_coeff)
            p.grad = p.main_grad
        self.optimizer.step()
        for p in self.params:
            p.grad = None
        return grad_norm


def single():
    model = DistributedDataParallel(GPTModel())
    return model, MegatronOptimizer(model)


def parallel():
    model = DistributedDataParallel(GPTModel(), dist.group.WORLD)
    return model, MegatronOptimizer(model)


def train_step(model, optimizer, tokens, labels):
    model.zero_grad_buffer()
    batches = list(zip(tokens.chunk(2), labels.chunk(2), strict=True))
    losses_reduced = forward_backward_no_pipelining(model, batches)
    optimizer.step()
    val = torch.vstack([x["lm loss"] for x in losses_reduced]).sum(dim=0)
    if model.group is not None:
        dist.all_reduce(val, group=model.group)
    return val[0] / val[1]
