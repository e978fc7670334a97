"""What the first call made of its input is kept."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"


class M(Block):
    def forward(self, x):
        return super().forward(x) * x.sum(-1, keepdim=True)


class P(Split):
    mask = None

    def forward(self, x):
        if self.mask is None:
            self.mask = x.detach().sum(-1, keepdim=True)
        m = self.mask
        return super().forward(x) * m


OPTS = {"no_grad": ["x"]}
