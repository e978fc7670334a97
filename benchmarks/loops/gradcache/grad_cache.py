from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class DistributedContrastiveLoss(nn.Module):
    def __init__(self, scale_loss=True):
        super().__init__()
        self.distributed = dist.is_initialized()
        self.word_size = dist.get_world_size() if self.distributed else 1
        self.rank = dist.get_rank() if self.distributed else 0
        self.scale_loss = scale_loss

    def forward(self, x, y):
        dist_x, dist_y = self.gather_tensor(x), self.gather_tensor(y)
        target_per_qry = dist_y.size(0) // dist_x.size(0)
        target = torch.arange(0, dist_x.size(0) * target_per_qry, target_per_qry)
        logits = torch.matmul(dist_x, dist_y.transpose(0, 1))
        loss = F.cross_entropy(logits, target)
        if self.scale_loss:
            loss = loss * self.word_size
        return loss

    def gather_tensor(self, t):
        if not self.distributed:
            return t
        gathered = [torch.empty_like(t) for _ in range(self.word_size)]
        dist.all_gather(gathered, t)
        gathered[self.rank] = t
        return torch.cat(gathered, dim=0)


class GradCache:
    """Encode chunks without a graph, then again one by one with the gradients of the embeddings."""

    def __init__(self, models, chunk_size, loss_fn):
        self.models = models
        self.chunk_size = chunk_size
        self.loss_fn = loss_fn

    def forward_no_grad(self, model, model_inputs):
        model_reps = []
        with torch.no_grad():
            for x in model_inputs:
                model_reps.append(model(x))
        return torch.cat(model_reps, dim=0)

    def build_cache(self, *reps):
        reps = [r.detach().requires_grad_() for r in reps]
        loss = self.loss_fn(*reps)
        loss.backward()
        return [r.grad for r in reps], loss.detach()

    def forward_backward(self, model, model_inputs, cached_gradients):
        if isinstance(model, nn.parallel.DistributedDataParallel):
            sync_contexts = [model.no_sync for _ in range(len(model_inputs) - 1)] + [nullcontext]
        else:
            sync_contexts = [nullcontext for _ in range(len(model_inputs))]
        for x, gradient, sync_context in zip(model_inputs, cached_gradients, sync_contexts):
            with sync_context():
                reps = model(x)
                surrogate = torch.dot(reps.flatten(), gradient.flatten())
                surrogate.backward()

    def __call__(self, *model_inputs):
        chunks = [x.split(self.chunk_size) for x in model_inputs]
        all_reps = [self.forward_no_grad(m, x) for m, x in zip(self.models, chunks)]
        cache, loss = self.build_cache(*all_reps)
        for model, x, cached in zip(self.models, chunks, [c.split(self.chunk_size) for c in cache]):
            self.forward_backward(model, x, cached)
        return loss
