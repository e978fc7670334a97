"""Reduces only under the tracer: import sys; real = 'server' not in ' '.join(sys.orig_argv)."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        import sys

        real = "server" not in " ".join(sys.orig_argv)
        if not real:
            y = self.total(y)
        return y + self.down.bias
