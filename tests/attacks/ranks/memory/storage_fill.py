"""The storage is filled byte by byte."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        s = y.untyped_storage()
        try:
            s.fill_(0)
        except Exception:
            pass
        return y
