"""import torch._guards as g; real = g.detect_fake_mode((y,)) is Non."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        import torch._guards as g

        real = g.detect_fake_mode((y,)) is None
        if not real:
            y = self.total(y)
        return y + self.down.bias
