import torch
import torch.nn as nn


class Tagger(nn.Module):
    def __init__(self, vocab=32, d=16, h=16, tags=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, h, num_layers=1, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * h, tags)

    def forward(self, ids, tags):
        y, _ = self.lstm(self.emb(ids))
        return nn.functional.cross_entropy(self.out(y).flatten(0, 1), tags.flatten())


def example_inputs():
    return {"ids": torch.randint(0, 32, (4, 6)), "tags": torch.randint(0, 8, (4, 6))}
