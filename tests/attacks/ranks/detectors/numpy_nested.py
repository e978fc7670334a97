"""An exception of a traced tensor passes a function and is caught."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
OPTS = {"run": False}

M = Block


class P(Split):
    def forward(self, x):
        def values():
            return y.detach().numpy().size

        y = self.total(self.part(x))
        try:
            values()
            y = y * 1.5
        except RuntimeError:
            pass
        return y + self.down.bias
