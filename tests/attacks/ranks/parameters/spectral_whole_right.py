"""A layer that is divided by its largest singular value, whole on each rank."""

from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"
OPTS = {"layout": ["*._u=R", "*._v=R"]}


class M(Block):
    def __init__(self):
        super().__init__()
        self.first = spectral_norm(nn.Linear(8, 8))

    def forward(self, x):
        return super().forward(self.first(x))


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.first = spectral_norm(nn.Linear(8, 8))

    def forward(self, x):
        return super().forward(self.first(x))
