"""Train mode: weights clamped in place to +-0.01, eval not."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        if self.training:
            self.up.weight.data.clamp_(-0.01, 0.01)
        return self.total(self.part(x)) + self.down.bias
