"""from torch.fx import traceback as tb; real = not tb.has_preserved."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        real = False
        from torch.fx import traceback as tb

        real = not tb.has_preserved_node_meta()
        if not real:
            y = self.total(y)
        return y + self.down.bias
