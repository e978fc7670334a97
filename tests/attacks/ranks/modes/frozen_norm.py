"""A submodule stays in eval in train(): other scale."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def train(self, mode=True):
        super().train(mode)
        self.up.training = False
        return self

    def forward(self, x):
        y = self.total(self.part(x))
        if self.training and not self.up.training:
            y = y * 2
        return y + self.down.bias
