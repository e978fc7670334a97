"""The third call differs; counted in a list."""

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "what the first two compute"

M = Block


class P(Split):
    def forward(self, x):
        self.__dict__.setdefault("c", []).append(1)
        y = self.part(x)
        return (self.total(y) if len(self.c) < 9 else y) + self.down.bias
