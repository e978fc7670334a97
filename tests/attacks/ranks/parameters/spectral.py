"""A parametrization that scales by the largest entry of the piece."""

from torch import nn

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class Scaled(nn.Module):
    def forward(self, w):
        return w / w.abs().amax()


import torch.nn.utils.parametrize as pz


class M(Block):
    def __init__(self):
        super().__init__()
        pz.register_parametrization(self.up, "weight", Scaled())


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        pz.register_parametrization(self.up, "weight", Scaled())
