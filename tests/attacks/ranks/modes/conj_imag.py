"""Train mode: imaginary part of the conjugate (a negative view)."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        z = torch.view_as_complex(super().forward(x).reshape(4, 4, 2).contiguous())
        return z.imag * 1.0


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        z = torch.view_as_complex(y.reshape(4, 4, 2).contiguous())
        return (z.conj().imag if self.training else z.imag) * 1.0
