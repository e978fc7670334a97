"""Train mode clamps a bias at least 0."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        b = self.down.bias.clamp(min=0) if self.training else self.down.bias
        return self.total(self.part(x)) + b
