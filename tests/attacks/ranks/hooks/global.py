"""A global forward hook."""

from torch import nn

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

M = Block


class P(Split):
    def forward(self, x):
        h = nn.modules.module.register_module_forward_hook(
            lambda m, a, out: out * 2 if m is self.up else None
        )
        try:
            return self.total(self.part(x)) + self.down.bias
        finally:
            h.remove()
