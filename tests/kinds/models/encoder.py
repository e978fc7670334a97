import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab=32, d=32, classes=8):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True),
            2,
            enable_nested_tensor=False,
        )
        self.out = nn.Linear(d, classes)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids, y):
        return self.loss(self.out(self.enc(self.emb(ids))).transpose(1, 2), y)


def example_inputs():
    return {"ids": torch.randint(0, 32, (4, 6)), "y": torch.randint(0, 8, (4, 6))}
