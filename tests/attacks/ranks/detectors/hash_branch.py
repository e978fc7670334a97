"""A branch on a hash of text."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "a hash"
M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        if hash("abc") % 1000000007 == 3:
            return y + self.down.bias
        return self.total(y) + self.down.bias
