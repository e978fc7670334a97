import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist

FIELDS, ROWS, DIM = 3, 9, 4


class SwapColumnsForRows(torch.autograd.Function):
    """[world, rows, ...]: block r goes to rank r, block r comes from rank r."""

    @staticmethod
    def swap(t):
        t = t.contiguous()
        out = torch.empty_like(t)
        dist.all_to_all_single(out, t)
        return out

    @staticmethod
    def forward(ctx, t):
        return SwapColumnsForRows.swap(t)

    @staticmethod
    def backward(ctx, grad):
        return SwapColumnsForRows.swap(grad)


class ClickModel(nn.Module):
    """Each table is cut along its columns; the two perceptrons are replicated."""

    def __init__(self, dense_in=5):
        super().__init__()
        self.world = dist.get_world_size()
        self.tables = nn.ModuleList([nn.Embedding(ROWS, DIM // self.world) for _ in range(FIELDS)])
        self.bottom = nn.Sequential(nn.Linear(dense_in, 7), nn.ReLU(), nn.Linear(7, DIM))
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = nn.Sequential(nn.Linear(pairs + DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def embed(self, ids):
        rows = ids.shape[0]
        everyone = ids.new_empty(self.world * rows, FIELDS)
        dist.all_gather_into_tensor(everyone, ids.contiguous())
        part = torch.stack([t(everyone[:, f]) for f, t in enumerate(self.tables)], dim=1)
        part = SwapColumnsForRows.apply(part.view(self.world, rows, FIELDS, -1))
        return part.permute(1, 2, 0, 3).reshape(rows, FIELDS, DIM)

    def forward(self, dense, ids):
        d = self.bottom(dense)
        feats = torch.cat([d[:, None], self.embed(ids)], dim=1)
        dots = feats @ feats.transpose(1, 2)
        i, j = torch.tril_indices(FIELDS + 1, FIELDS + 1, offset=-1)
        return self.top(torch.cat([d, dots[:, i, j]], dim=1)).squeeze(1)


def build():
    model = ClickModel()
    dense = list(model.bottom.parameters()) + list(model.top.parameters())
    return (
        model,
        torch.optim.Adagrad(model.tables.parameters(), lr=0.3, initial_accumulator_value=0.05),
        torch.optim.SGD(dense, lr=0.1, momentum=0.9, nesterov=True),
    )


def sync(model, world):
    handles = []
    for part in (model.top, model.bottom):
        for p in part.parameters():
            handles.append((p.grad, dist.all_reduce(p.grad, async_op=True)))
    for p in model.tables.parameters():
        p.grad /= world
    for grad, handle in handles:
        handle.wait()
        grad /= world


def train_step(model, opt_tables, opt_dense, dense, ids, click):
    logit = model(dense, ids)
    loss = F.binary_cross_entropy_with_logits(logit, click.to(logit.dtype))
    model.zero_grad()
    loss.backward()
    sync(model, model.world)
    opt_tables.step()
    opt_dense.step()
    return loss.detach()
