"""whisper, small, with the loss of the next token."""

from torch import nn
from whisper.model import ModelDimensions, Whisper


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Whisper(ModelDimensions(8, 16, 64, 4, 2, 64, 16, 64, 4, 2))
        nn.init.normal_(self.net.decoder.positional_embedding)  # whisper leaves it to a checkpoint

    def forward(self, mel, tokens, targets):
        logits = self.net(mel, tokens)
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
