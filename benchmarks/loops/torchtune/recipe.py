import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


class TransformerDecoder(nn.Module):
    def __init__(self, vocab_size=12, embed_dim=8, num_layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab_size, embed_dim)
        self.layers = nn.ModuleList(FeedForward(embed_dim) for _ in range(num_layers))
        self.norm = nn.RMSNorm(embed_dim, eps=1e-6)
        self.output = nn.Linear(embed_dim, vocab_size, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.w1 = nn.Linear(dim, 2 * dim, bias=False)
        self.w2 = nn.Linear(2 * dim, dim, bias=False)
        self.w3 = nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class CEWithChunkedOutputLoss(nn.Module):
    def __init__(self, num_output_chunks=2, ignore_index=-100):
        super().__init__()
        self.num_output_chunks = num_output_chunks
        self.ignore_index = ignore_index

    def forward(self, logits, labels):
        total_elements = (labels != self.ignore_index).sum()
        labels = [t.reshape(-1) for t in labels.chunk(self.num_output_chunks, dim=1)]
        logits = [t.reshape(-1, t.size(-1)) for t in logits.chunk(self.num_output_chunks, dim=1)]
        total_loss = 0.0
        for logits_chunk, labels_chunk in zip(logits, labels):
            total_loss += F.cross_entropy(
                logits_chunk.float(), labels_chunk, ignore_index=self.ignore_index, reduction="sum"
            )
        return total_loss / total_elements


def scale_grads_(parameters, scaler):
    for p in parameters:
        if p.grad is not None:
            p.grad *= scaler.to(p.grad.device)


class FullFinetuneRecipe:
    def __init__(self, mesh=None):
        self.world_size = mesh.size() if mesh is not None else 1
        self._gradient_accumulation_steps = 2
        self._clip_grad_norm = 1.0
        self._model = TransformerDecoder()
        if mesh is not None:
            for layer in self._model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(self._model, mesh=mesh)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=2e-3)
        self._loss_fn = CEWithChunkedOutputLoss()
        self.ignore_labels_cache = torch.full((4, 1), self._loss_fn.ignore_index)
        self.global_step = 0
        self._log = []

    def _loss_step(self, batch):
        labels = batch.pop("labels")
        logits = self._model(**batch)
        labels = torch.hstack((labels[..., 1:], self.ignore_labels_cache[: labels.shape[0]]))
        loss = self._loss_fn(logits, labels)
        del logits
        return loss

    def train(self, batches):
        t0 = time.perf_counter()
        running_loss = 0
        num_tokens = 0
        self._optimizer.zero_grad()
        for idx, batch in enumerate(batches):
            current_num_tokens = (batch["labels"][:, 1:] != self._loss_fn.ignore_index).sum()
            num_tokens += current_num_tokens
            current_loss = self._loss_step(batch) * current_num_tokens
            running_loss += current_loss
            current_loss.backward()
            if (idx + 1) % self._gradient_accumulation_steps == 0:
                if self.world_size > 1:
                    torch.distributed.all_reduce(num_tokens)
                    torch.distributed.all_reduce(running_loss)
                scale_grads_(self._model.parameters(), self.world_size / num_tokens)
                grad_norm = torch.nn.utils.clip_grad_norm_(
                    self._model.parameters(), max_norm=float(self._clip_grad_norm)
                )
                if isinstance(grad_norm, DTensor):
                    grad_norm = grad_norm.full_tensor()
                self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
                self.global_step += 1
                loss_to_log = running_loss.detach().item() / num_tokens
                time_per_step = time.perf_counter() - t0
                log_dict = {"loss": loss_to_log, "grad_norm": grad_norm, "seconds": time_per_step}
                print({k: float(v) for k, v in log_dict.items()})
                running_loss = 0
                num_tokens = 0
                t0 = time.perf_counter()


def single():
    recipe = FullFinetuneRecipe()
    return recipe._model, recipe


def parallel(mesh):
    recipe = FullFinetuneRecipe(mesh)
    return recipe._model, recipe


def train_step(model, recipe, tokens, labels):
    pairs = zip(tokens.chunk(2), labels.chunk(2), strict=True)
    recipe.train([{"tokens": t, "labels": v} for t, v in pairs])
