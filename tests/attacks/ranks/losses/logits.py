"""Logits beside the loss give no gradients."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "is taken to get none"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return {"loss": y.pow(2).mean(), "logits": y * 2}


class P(Split):
    def forward(self, x):
        y = super().forward(x)
        return {"loss": y.pow(2).mean(), "logits": y.detach() * 2}
