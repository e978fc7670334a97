"""A loss beside the loss gives no gradients."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "is taken to get none"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        return {"loss": y.pow(2).mean(), "aux": y.abs().mean()}


class P(Split):
    def forward(self, x):
        y = super().forward(x)
        return {"loss": y.pow(2).mean(), "aux": y.detach().abs().mean()}
