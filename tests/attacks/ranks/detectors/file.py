"""A branch on a file."""

from pathlib import Path

from tests.attacks.blocks import Block, Split, example_inputs as example_inputs

TRUE = "wrong"
GIVEN = "reads a file"
M = Block


class P(Split):
    def forward(self, x):
        y = self.part(x)
        return (y if Path("/nowhere").exists() else self.total(y)) + self.down.bias
