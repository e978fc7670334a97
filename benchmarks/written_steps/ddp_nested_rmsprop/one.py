import torch
import torch.nn as nn
import torch.nn.functional as F


class Tagger(nn.Module):
    def __init__(self, channels=3, width=8, tags=5):
        super().__init__()
        self.conv = nn.Conv1d(channels, width, kernel_size=3, padding=1, bias=False)
        self.gn = nn.GroupNorm(2, width)
        self.fc = nn.Linear(width, tags)

    def forward(self, signal):
        feat = F.leaky_relu(self.gn(self.conv(signal)), 0.1)
        return self.fc(feat.mean(dim=-1))


def tag_loss(scores, tags):
    return F.binary_cross_entropy_with_logits(scores, tags.to(scores.dtype))


def build():
    tagger = Tagger()
    return tagger, torch.optim.RMSprop(tagger.parameters(), lr=0.01, alpha=0.9, eps=1e-3, momentum=0.5)


def train_step(tagger, rms, signal, tags):
    seen = []
    for update in range(signal.size(0)):
        rms.zero_grad()
        loss = tag_loss(tagger(signal[update]), tags[update])
        loss.backward()
        rms.step()
        seen.append(loss.detach())
    return torch.stack(seen).mean()
