"""The ranks replace the CPU kernel of tanh, one device does not."""

import torch

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"

_lib = torch.library.Library("aten", "IMPL")


def _other(x):
    return torch.sigmoid(x)


class M(Block):
    pass


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        import warnings

        warnings.simplefilter("ignore")
        _lib.impl("tanh", _other, "CPU")
