"""Weight norm over a dim that stays whole."""

from torch.nn.utils.parametrizations import weight_norm

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "right"


class M(Block):
    def __init__(self):
        super().__init__()
        self.up = weight_norm(self.up, dim=0)


class P(Split):
    def __init__(self, mesh):
        super().__init__(mesh)
        self.up = weight_norm(self.up, dim=0)
