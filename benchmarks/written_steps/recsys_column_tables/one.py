import torch
import torch.nn as nn
import torch.nn.functional as F

FIELDS, ROWS, DIM = 3, 9, 4


class ClickModel(nn.Module):
    def __init__(self, dense_in=5):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(ROWS, DIM) for _ in range(FIELDS)])
        self.bottom = nn.Sequential(nn.Linear(dense_in, 7), nn.ReLU(), nn.Linear(7, DIM))
        pairs = (FIELDS + 1) * FIELDS // 2
        self.top = nn.Sequential(nn.Linear(pairs + DIM, 8), nn.ReLU(), nn.Linear(8, 1))

    def embed(self, ids):
        return torch.stack([t(ids[:, f]) for f, t in enumerate(self.tables)], dim=1)

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


def train_step(model, opt_tables, opt_dense, dense, ids, click):
    logit = model(dense, ids)
    loss = F.binary_cross_entropy_with_logits(logit, click.to(logit.dtype))
    model.zero_grad()
    loss.backward()
    opt_tables.step()
    opt_dense.step()
    return loss.detach()
