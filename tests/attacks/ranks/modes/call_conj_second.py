"""Conjugates from the second call on."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        y = super().forward(x)
        z = torch.view_as_complex(y.reshape(4, 4, 2).contiguous())
        return torch.view_as_real(z * z).reshape(4, 8)


class P(Split):
    def forward(self, x):
        y = self.total(self.part(x)) + self.down.bias
        z = torch.view_as_complex(y.reshape(4, 4, 2).contiguous())
        q = z.conj() if hasattr(self, "_seen") else z
        self._seen = [1]
        return torch.view_as_real(z * q).reshape(4, 8)
